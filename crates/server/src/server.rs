//! The server as a whole: open, run, stop.

use crate::app::App;
use crate::auth::Auth;
use crate::auth::audit::Audit;
use crate::auth::records::{self, Place};
use crate::backend::Backend;
use crate::config::Settings;
use crate::metrics::Metrics;
use crate::tls::{Tls, TlsError};
use crate::traces::Traces;
use crate::{listen, routes};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use towline_broker::{Broker, SteadyClock, Storage, entropy};
use towline_buffers::{BufferError, Buffers, Location};
use towline_embedded::OpenError;
use towline_store::{Clock, StoreError};

/// How long the last spans may take on their way out.
const LAST_SPANS: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot use the database: {0}")]
    Postgres(StoreError),
    #[error(
        "cannot listen on {address}: {error}; stop whatever does, or choose another address with --listen"
    )]
    Listen { address: SocketAddr, error: io::Error },
    #[error("cannot use {place} for buffers: {error}; correct that, or name another place with --buffers")]
    Buffers { place: String, error: BufferError },
    #[error("cannot speak TLS: {0}")]
    Tls(#[from] TlsError),
    #[error("cannot write to the audit log {path}: {error}; name another file with --audit-log", path = .path.display())]
    Audit { path: PathBuf, error: io::Error },
    #[error(
        "this server asks for tokens and there are none: make the first one with \
         `towline token create NAME --scope admin`, with --data or --store as here"
    )]
    NoTokens,
    #[error("cannot send spans: {0}")]
    Traces(String),
    #[error("cannot keep figures: {0}")]
    Metrics(#[from] prometheus::Error),
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
}

/// A server that is ready to run: its store is open and its port is taken.
pub struct Server {
    settings: Settings,
    backend: Backend,
    buffers: Buffers,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    traces: Option<Traces>,
    tls: Option<Arc<Tls>>,
    audit: Arc<Audit>,
    listener: TcpListener,
    address: SocketAddr,
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

    /// With another clock for its embedded store, for tests. PostgreSQL has its own.
    pub async fn open_with_clock(settings: Settings, clock: Arc<dyn Clock>) -> Result<Server, ServerError> {
        raise_file_limit();
        let tls = settings.tls_files().map(Tls::open).transpose()?.map(Arc::new);
        let audit = Audit::open(settings.audit_log.clone()).map_err(|error| ServerError::Audit {
            path: settings.audit_log.clone().unwrap_or_default(),
            error,
        })?;
        // The port before the store: it is the cheaper one to find taken.
        let listen = |error| ServerError::Listen { address: settings.listen, error };
        let listener = TcpListener::bind(settings.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let backend = Backend::open(&settings, clock.clone()).await?;
        // A store that cannot say so now will be asked again.
        if settings.asks_for_tokens() && records::any(Place::Alone(&*backend.store())).await == Ok(false) {
            return Err(ServerError::NoTokens);
        }
        let buffers = open_buffers(&settings).await?;
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
        })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a client on this machine is told.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Serves until SIGTERM or SIGINT, then stops.
    pub async fn run(self) -> Result<(), ServerError> {
        let mut terminate = signal(SignalKind::terminate()).map_err(ServerError::Signals)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ServerError::Signals)?;
        let rereading = self.reread_on_hangup()?;
        self.run_until(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        })
        .await;
        rereading.inspect(JoinHandle::abort);
        Ok(())
    }

    /// SIGHUP ends a server that has nothing to read again: its terminal is gone.
    fn reread_on_hangup(&self) -> Result<Option<JoinHandle<()>>, ServerError> {
        let (tls, audit) = (self.tls.clone(), Arc::clone(&self.audit));
        if tls.is_none() && !audit.has_file() {
            return Ok(None);
        }
        let mut hangup = signal(SignalKind::hangup()).map_err(ServerError::Signals)?;
        Ok(Some(tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                match tokio::task::block_in_place(|| tls.as_ref().map(|tls| tls.reload())) {
                    Some(Ok(())) => tracing::info!("the certificate was read anew"),
                    Some(Err(error)) => tracing::error!("the certificate stays the old one: {error}"),
                    None => {}
                }
                if let Err(error) = tokio::task::block_in_place(|| audit.reopen()) {
                    tracing::error!("the audit log goes on in the old file: {error}");
                }
            }
        })))
    }

    /// Serves until `stop` is ready, then stops: no new receives, what is in flight is answered, the store is synced
    /// and closed.
    pub async fn run_until(self, stop: impl Future<Output = ()>) {
        let Server { settings, backend, buffers, clock, metrics, traces, tls, audit, listener, address } =
            self;
        let storage = Storage { buffers, offload: settings.offload, collection: settings.collection };
        let broker = Broker::start(backend.store(), clock, Some(storage), backend.sharing());
        let listening = backend.listen(&broker);
        let auth = Auth::new(settings.asks_for_tokens(), audit);
        let app = App::new(broker, &backend, metrics, traces, auth, &settings);
        let checking = app.auth.required.then(|| tokio::spawn(Auth::keep_checking(app.clone())));
        let router = routes::router(app.clone());
        tracing::info!(%address, tls = tls.is_some(), tokens = app.auth.required, store = %settings.store_shown(), durability = ?settings.durability, "serving");
        let stop = async {
            stop.await;
            tracing::info!("stopping: receives are refused, what is under way is finished");
            app.stop();
        };
        listen::serve(listener, tls, router, settings.connections_max, stop, settings.drain).await;
        app.unfollowed(settings.drain).await;
        listening.inspect(JoinHandle::abort);
        checking.inspect(JoinHandle::abort);
        if let Some(traces) = &app.traces {
            traces.stop(LAST_SPANS).await;
        }
        drop(app);
        let closed = tokio::task::spawn_blocking(move || backend.close()).await;
        if !closed.unwrap_or(false) {
            tracing::warn!("the store is still in use and is left to recover at the next start");
        }
        tracing::info!("stopped");
    }
}

/// Proved before anything is served: a bucket that is not there is better told now than to the first writer.
async fn open_buffers(settings: &Settings) -> Result<Buffers, ServerError> {
    let location = settings.buffers.location(&settings.data);
    let place = match &location {
        Location::Directory(path) => path.display().to_string(),
        Location::S3 { bucket, prefix } => format!("s3://{bucket}/{prefix}"),
    };
    let refused = |error| ServerError::Buffers { place: place.clone(), error };
    let open = || Buffers::open(&location, settings.buffers.options());
    let buffers = tokio::task::block_in_place(open).map_err(refused)?;
    buffers.check(entropy::bytes()).await.map_err(refused)?;
    Ok(buffers)
}

/// A store keeps a file open for every segment, and every connection takes one.
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
