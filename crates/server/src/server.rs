//! Opening, running and stopping the server.

use crate::app::App;
use crate::auth::audit::AuditLog;
use crate::auth::token_store::TokenStore;
use crate::auth::{Auth, InternalSecret};
use crate::backend::{Backend, buffers};
use crate::config::Settings;
use crate::connection::{self, ListenAddress, Listener, Serving, Tls, TlsError};
use crate::metrics::Metrics;
use crate::routes;
use crate::traces::Traces;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use towline_broker::{Broker, OwnershipError, SteadyClock, Storage, entropy};
use towline_buffers::{BufferError, Buffers};
use towline_compute::Compute;
use towline_embedded::OpenError;
use towline_store::{Clock, StoreError};

/// How long a stopping server tries to send its last spans.
const SPAN_FLUSH_MAX: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot use the database: {0}")]
    Postgres(StoreError),
    #[error(
        "cannot listen on {address}: {error}; stop the program that uses the port, or choose another address with --listen"
    )]
    Listen { address: ListenAddress, error: io::Error },
    #[error("cannot store buffers in {location}: {error}; fix this, or give another location with --buffers")]
    Buffers { location: String, error: BufferError },
    #[error("there are no buffers in {location}; give the place for buffers with --buffers")]
    NoBuffers { location: String },
    #[error(
        "cannot use the place for buffers {location}: {error}; check --store and --data, or give another place with --buffers. \
         If this store replaces the owner (a restore, an import), take the place over with --adopt-buffers: \
         what only the owner's items refer to is then deleted"
    )]
    BuffersOwner { location: String, error: OwnershipError },
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] TlsError),
    #[error("cannot write to the audit log {path}: {error}; give another file with --audit-log", path = .path.display())]
    Audit { path: PathBuf, error: io::Error },
    #[error(
        "this server requires tokens and the store has none; create the first one with \
         `towline token create NAME --scope admin --out FILE` and the same --data or --store"
    )]
    NoTokens,
    #[error("cannot send spans: {0}")]
    Traces(String),
    #[error("cannot set up metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
}

/// A server that is ready to run: its store is open and its port is bound.
pub struct Server {
    settings: Settings,
    backend: Backend,
    buffers: Buffers,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    traces: Option<Traces>,
    tls: Option<Arc<Tls>>,
    audit: Arc<AuditLog>,
    listener: Listener,
    address: ListenAddress,
    internal: Option<InternalSecret>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    pub async fn open(settings: Settings) -> Result<Server, ServerError> {
        Server::open_with_clock(settings, Arc::new(SteadyClock::new())).await
    }

    /// Opens the server with another clock for its embedded store, for tests. PostgreSQL has its own clock.
    pub async fn open_with_clock(settings: Settings, clock: Arc<dyn Clock>) -> Result<Server, ServerError> {
        raise_file_limit();
        let tls = settings.tls_files().map(Tls::open).transpose()?.map(Arc::new);
        let audit = open_audit_log(&settings)?;
        // The port first: finding it in use is cheaper than opening the store.
        let listen = |error| ServerError::Listen { address: settings.listen.clone(), error };
        let listener = Listener::bind(&settings.listen).await.map_err(listen)?;
        let address = listener.address().map_err(listen)?;
        let backend = Backend::open(&settings, clock.clone()).await?;
        // If the store cannot answer now, the server starts, and each request checks its token.
        if settings.requires_tokens() && TokenStore::Store(&*backend.store()).any().await == Ok(false) {
            return Err(ServerError::NoTokens);
        }
        let identity = backend.store().identity();
        let buffers = buffers::open_and_claim(&settings, &identity, &audit, clock.now()).await?;
        let internal = settings.requires_tokens().then(|| InternalSecret::new(entropy::token_seed().0));
        let traces = Traces::start(&settings.traces).map_err(ServerError::Traces)?;
        Ok(Server {
            traces,
            settings,
            backend,
            buffers,
            clock,
            metrics: Metrics::new()?,
            tls,
            audit: Arc::new(audit),
            listener,
            address,
            internal,
        })
    }

    /// The token of a node inside this server, if the server requires tokens. No other server accepts it.
    #[must_use]
    pub fn node_token(&self) -> Option<String> {
        self.internal.as_ref().map(InternalSecret::text)
    }

    /// The TCP address. For a Unix socket, an address without a port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        match self.address {
            ListenAddress::Tcp(address) => address,
            ListenAddress::Unix(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
        }
    }

    /// The URL of the address that the server listens on.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.address {
            ListenAddress::Unix(_) => self.address.to_string(),
            ListenAddress::Tcp(address) if self.tls.is_some() => format!("https://{address}"),
            ListenAddress::Tcp(address) => format!("http://{address}"),
        }
    }

    /// The URL that works for clients on this machine: they can connect to its host, and the certificate is valid for it.
    #[must_use]
    pub fn client_url(&self) -> String {
        let ListenAddress::Tcp(mut address) = self.address else { return self.address.to_string() };
        match address.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        let Some(tls) = &self.tls else { return format!("http://{address}") };
        let mut hosts = vec![address.ip().to_string()];
        if address.ip().is_loopback() {
            hosts.push("localhost".to_owned());
        }
        match tls.host(&hosts) {
            Some(host) if host != hosts[0] => format!("https://{host}:{}", address.port()),
            _ => format!("https://{address}"),
        }
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Serves until SIGTERM or SIGINT, then stops.
    pub async fn run(self) -> Result<(), ServerError> {
        self.run_beside(|stop| async { drop(stop.await) }).await
    }

    /// Like [`Server::run`], with a companion that needs the server. On a signal, the companion gets the message to stop, and the server
    /// stops after it.
    pub async fn run_beside<F: Future<Output = ()> + Send + 'static>(
        self,
        companion: impl FnOnce(oneshot::Receiver<()>) -> F,
    ) -> Result<(), ServerError> {
        let (tell, told) = oneshot::channel();
        let companion = tokio::spawn(companion(told));
        let mut terminate = signal(SignalKind::terminate()).map_err(ServerError::Signals)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ServerError::Signals)?;
        let reload = self.reload_on_hangup()?;
        self.run_until(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            let _ = tell.send(());
            let _ = companion.await;
        })
        .await;
        reload.inspect(JoinHandle::abort);
        Ok(())
    }

    /// Reloads the certificate and reopens the audit log on SIGHUP. Without either, SIGHUP ends the server, because it then means
    /// that the terminal is gone.
    fn reload_on_hangup(&self) -> Result<Option<JoinHandle<()>>, ServerError> {
        let (tls, audit) = (self.tls.clone(), Arc::clone(&self.audit));
        if tls.is_none() && !audit.has_file() {
            return Ok(None);
        }
        let mut hangup = signal(SignalKind::hangup()).map_err(ServerError::Signals)?;
        Ok(Some(tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                match tokio::task::block_in_place(|| tls.as_ref().map(|tls| tls.reload())) {
                    Some(Ok(())) => tracing::info!("reloaded the certificate"),
                    Some(Err(error)) => {
                        tracing::error!("cannot reload the certificate, the old one stays in use: {error}")
                    }
                    None => {}
                }
                if let Err(error) = tokio::task::block_in_place(|| audit.reopen()) {
                    tracing::error!("cannot reopen the audit log, the old file stays in use: {error}");
                }
            }
        })))
    }

    /// Serves until `stop` completes, then stops: refuses new receives, finishes requests in progress, syncs and closes the
    /// store.
    pub async fn run_until(self, stop: impl Future<Output = ()>) {
        let Server {
            settings,
            backend,
            buffers,
            clock,
            metrics,
            traces,
            tls,
            audit,
            listener,
            address,
            internal,
        } = self;
        let storage =
            Storage { buffers: buffers.clone(), offload: settings.offload, collection: settings.collection };
        let broker = Broker::start(backend.store(), clock, Some(storage), backend.sharing());
        let listening = backend.listen(&broker);
        let auth =
            Auth::new(settings.requires_tokens(), settings.connections_max, audit, internal, broker.now());
        let compute = Compute::new(broker.clone(), buffers);
        let keeping = tokio::spawn(compute.clone().keep());
        let app = App::new(broker, compute, &backend, metrics, traces, auth, &settings);
        let refreshing = tokio::spawn(Auth::keep_tokens_fresh(app.clone()));
        let router = routes::router(app.clone());
        tracing::info!(%address, tls = tls.is_some(), tokens = app.auth.required, store = %settings.store_description(), durability = ?settings.durability, "serving");
        let stop = async {
            stop.await;
            tracing::info!("stopping: refusing receives, finishing requests in progress");
            app.stop();
        };
        let serving = Serving {
            tls,
            router,
            connections_max: settings.connections_max,
            permits: app.connections(),
            trusted_proxies: settings.trusted_proxies.clone(),
            send_room: Arc::clone(&app.send_room),
        };
        connection::serve(listener, serving, stop, settings.drain).await;
        app.wait_for_followers(settings.drain).await;
        listening.inspect(JoinHandle::abort);
        refreshing.abort();
        keeping.abort();
        if let Some(traces) = &app.traces {
            traces.stop(SPAN_FLUSH_MAX).await;
        }
        drop(app);
        let closed = tokio::task::spawn_blocking(move || backend.close()).await;
        if !closed.unwrap_or(false) {
            tracing::warn!("the store is still in use and was not closed; the next start recovers it");
        }
        tracing::info!("stopped");
    }
}

pub(crate) fn open_audit_log(settings: &Settings) -> Result<AuditLog, ServerError> {
    AuditLog::open(settings.audit_log.clone())
        .map_err(|error| ServerError::Audit { path: settings.audit_log.clone().unwrap_or_default(), error })
}

/// The embedded store keeps each segment open, and each connection needs a file descriptor.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!("cannot raise the limit on open files: {error}");
        }
    }
}
