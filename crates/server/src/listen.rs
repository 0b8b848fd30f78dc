//! Accepts connections, speaks HTTP/1.1 or HTTP/2 on each as its client does, and lets them end well.

use crate::first_byte::FirstByte;
use crate::lingering::Lingering;
use crate::tls::Tls;
use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;

/// To the first byte of a connection, and from one request to the end of the next one's headers.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(30);
/// For a TLS handshake, however many bytes of it have come.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: u32 = 64 << 10;
const STREAMS_MAX: u32 = 256;
const PING_EVERY: Duration = Duration::from_secs(60);
/// Out of file descriptors, say: it passes.
const AFTER_ACCEPT_ERROR: Duration = Duration::from_millis(100);

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .keep_alive_interval(PING_EVERY)
        .adaptive_window(true);
    builder
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Serves until `stop` is ready, then waits up to `drain` for what is under way.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    router: Router,
    connections_max: usize,
    stop: impl Future<Output = ()>,
    drain: Duration,
) {
    let builder = Arc::new(builder());
    let graceful = GracefulShutdown::new();
    // Dropped when the time is over: what is still busy then ends, and with it its hold on the store.
    let (alive, cut) = watch::channel(());
    // Dropped at once: who is still shaking hands has asked for nothing yet.
    let (open, closing) = watch::channel(());
    let seats = Arc::new(Semaphore::new(connections_max));
    tokio::pin!(stop);
    loop {
        // A seat first: who has none waits in the listener's queue, which is the operating system's.
        let next = async {
            let seat = Arc::clone(&seats).acquire_owned().await;
            (seat, listener.accept().await)
        };
        let (seat, accepted) = tokio::select! {
            () = &mut stop => break,
            next = next => next,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(AFTER_ACCEPT_ERROR).await;
                continue;
            }
        };
        // Answers are whole when they are written; waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        let acceptor = tls.as_deref().map(Tls::acceptor);
        let connection =
            Connection { builder: Arc::clone(&builder), router: router.clone(), peer: Peer(peer) };
        let (watcher, mut cut, mut closing) = (graceful.watcher(), cut.clone(), closing.clone());
        tokio::spawn(async move {
            let held = async {
                let Some(acceptor) = acceptor else { return connection.hold(stream, watcher).await };
                let shaken = tokio::select! {
                    shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)) => shaken,
                    _ = closing.changed() => return,
                };
                match shaken {
                    Ok(Ok(stream)) => connection.hold(stream, watcher).await,
                    Ok(Err(error)) => tracing::debug!(%peer, "no TLS: {error}"),
                    Err(_) => tracing::debug!(%peer, "no TLS: the handshake took too long"),
                }
            };
            tokio::select! {
                () = held => {}
                _ = cut.changed() => {}
            }
            drop(seat);
        });
    }
    drop((listener, open));
    let open = graceful.count();
    if tokio::time::timeout(drain, graceful.shutdown()).await.is_err() {
        tracing::warn!("{open} connections were open after {drain:?}; those still busy are cut");
    }
    drop(alive);
}

/// What every connection needs, encrypted or not.
struct Connection {
    builder: Arc<Builder<TokioExecutor>>,
    router: Router,
    peer: Peer,
}

impl Connection {
    async fn hold(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, watcher: Watcher) {
        let Connection { builder, router, peer } = self;
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Lingering::new);
            request.extensions_mut().insert(peer);
            router.clone().oneshot(request)
        });
        let stream = FirstByte::within(TokioIo::new(stream), HEADERS_TIMEOUT);
        let connection = builder.serve_connection_with_upgrades(stream, service).into_owned();
        // A client that breaks off or sends no HTTP is not the server's trouble.
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!("connection ended: {error}");
        }
    }
}
