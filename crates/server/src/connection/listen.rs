//! Accepts connections, serves HTTP/1.1 or HTTP/2 on each, and shuts them down gracefully.

use super::client_address::{ClientAddress, Peer, TrustedProxies};
use super::drain_on_drop::DrainOnDrop;
use super::guarded_stream::GuardedStream;
use super::listener::{Listener, Socket};
use super::open_requests::{Held, OpenBody, OpenRequests};
use super::request_tasks::RequestTasks;
use super::seats::{Seat, Seats};
use super::tls::{self, Handshake, Tls};
use crate::request::BodyRoom;
use crate::response::{ProblemResponse, in_pieces};
use axum::Router;
use axum::extract::Request;
use http::header::CONNECTION;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;
use towline_api::Code;

/// Limit for the headers of a request.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit for a whole TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: u32 = 64 << 10;
const STREAMS_MAX: u32 = 256;
/// What the library holds of each response besides its body.
pub(super) const SEND_BYTES_MAX: usize = 128 << 10;
const PING_INTERVAL: Duration = Duration::from_secs(60);
/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_millis(100);

fn builder() -> Builder<RequestTasks> {
    let mut builder = Builder::new(RequestTasks);
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
        .max_send_buf_size(SEND_BYTES_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .adaptive_window(true);
    builder
}

/// What serves connections, and which of them.
pub(crate) struct Serving {
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) router: Router,
    pub(crate) connections_max: usize,
    /// One for each of these connections.
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) trusted_proxies: TrustedProxies,
    /// Memory for large responses.
    pub(crate) send_room: Arc<BodyRoom>,
}

/// Serves until `stop` completes, then waits up to `drain` for requests in progress.
pub(crate) async fn serve(
    listener: Listener,
    serving: Serving,
    stop: impl Future<Output = ()>,
    drain: Duration,
) {
    let Serving { tls, router, permits, connections_max, trusted_proxies, send_room } = serving;
    let (builder, trusted_proxies) = (Arc::new(builder()), Arc::new(trusted_proxies));
    let graceful = GracefulShutdown::new();
    // Dropped after `drain`: connections that are still busy then end and release the store.
    let (alive, cut) = watch::channel(());
    // Dropped at once: a connection in its TLS handshake has no request yet.
    let (open, closing) = watch::channel(());
    let seats = Seats::new(connections_max);
    tokio::pin!(stop);
    loop {
        // Without a permit, connections wait in the accept queue of the operating system.
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = &mut stop => break,
            next = next => next,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_ERROR_PAUSE).await;
                continue;
            }
        };
        // A trusted proxy has the connections of many clients.
        let limited = if trusted_proxies.has_peer(peer) { None } else { peer.ip() };
        let Ok(seat) = limited.map(|address| seats.take(address).ok_or(())).transpose() else {
            tracing::debug!(%peer, "closed a connection: its client has too many");
            continue;
        };
        let connection = Connection {
            builder: Arc::clone(&builder),
            router: router.clone(),
            peer,
            trusted_proxies: Arc::clone(&trusted_proxies),
            send_room: Arc::clone(&send_room),
            seat: (permit, seat),
        };
        let tls = tls.as_deref().map(|tls| (tls.acceptor(), closing.clone()));
        let (watcher, mut cut) = (graceful.watcher(), cut.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = connection.serve_socket(socket, tls, watcher) => {}
                _ = cut.changed() => {}
            }
        });
    }
    drop((listener, open));
    let open = graceful.count();
    if tokio::time::timeout(drain, graceful.shutdown()).await.is_err() {
        tracing::warn!(
            "{open} connections were open at the stop; the server cuts those that are busy after {drain:?}"
        );
    }
    drop(alive);
}

/// Answers a client that speaks HTTP without TLS to a port that accepts only TLS.
fn refusing() -> Router {
    Router::new().fallback(|| async {
        let remedy = "this port accepts only TLS; use https:// in the address";
        ([(CONNECTION, "close")], ProblemResponse::new(Code::TlsRequired, remedy))
    })
}

/// What a connection needs, with or without TLS.
struct Connection {
    builder: Arc<Builder<RequestTasks>>,
    router: Router,
    peer: Peer,
    trusted_proxies: Arc<TrustedProxies>,
    send_room: Arc<BodyRoom>,
    seat: (Result<OwnedSemaphorePermit, AcquireError>, Option<Seat>),
}

impl Connection {
    /// Serves a socket, after its TLS handshake if it is a TCP socket and the server has a certificate.
    async fn serve_socket(
        self,
        socket: Socket,
        tls: Option<(TlsAcceptor, watch::Receiver<()>)>,
        watcher: Watcher,
    ) {
        let stream = match socket {
            Socket::Tcp(stream) => stream,
            Socket::Unix(stream) => return self.serve(stream, watcher).await,
        };
        let Some((acceptor, mut closing)) = tls else { return self.serve(stream, watcher).await };
        let handshake = tokio::select! {
            handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls::handshake(acceptor, stream)) => handshake,
            _ = closing.changed() => return,
        };
        let peer = self.peer;
        match handshake {
            Ok(Ok(Handshake::Tls(stream))) => self.serve(*stream, watcher).await,
            Ok(Ok(Handshake::PlainHttp(stream))) => {
                Connection { router: refusing(), ..self }.serve(stream, watcher).await
            }
            Ok(Err(error)) => tracing::debug!(%peer, "TLS handshake failed: {error}"),
            Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
        }
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, watcher: Watcher) {
        let Connection { builder, router, peer, trusted_proxies, send_room, seat } = self;
        let requests = OpenRequests::default();
        let stream = TokioIo::new(GuardedStream::new(stream, requests.clone(), seat));
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(DrainOnDrop::new);
            let client = ClientAddress::new(peer, request.headers(), &trusted_proxies);
            request.extensions_mut().insert(client);
            let (router, open, send_room) = (router.clone(), requests.begin(), Arc::clone(&send_room));
            async move {
                let mut response = router.oneshot(request).await?;
                let held = response.extensions_mut().remove::<Held>();
                Ok::<_, Infallible>(response.map(|body| OpenBody {
                    body: in_pieces(body, &send_room),
                    _request: open,
                    _held: held,
                }))
            }
        });
        let connection = builder.serve_connection_with_upgrades(stream, service).into_owned();
        // Only for debugging: clients may disconnect at any time or not speak HTTP.
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!("connection ended: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::routing::get;
    use bytes::Bytes;
    use http_body_util::{BodyExt, Empty};
    use hyper::client::conn::http2;
    use hyper_util::rt::TokioExecutor;
    use tokio::io::DuplexStream;
    use tokio::time::{sleep, timeout};

    const IDLE: Duration = Duration::from_secs(180);

    /// Serves one connection, which has the only seat. Dropping the shutdown would begin it.
    async fn connection(router: Router) -> (GracefulShutdown, Arc<Semaphore>, DuplexStream) {
        let (near, far) = tokio::io::duplex(64 << 10);
        let permits = Arc::new(Semaphore::new(1));
        let connection = Connection {
            builder: Arc::new(builder()),
            router,
            peer: Peer::Unix,
            trusted_proxies: Arc::default(),
            send_room: BodyRoom::new(8 << 20),
            seat: (Arc::clone(&permits).acquire_owned().await, None),
        };
        let graceful = GracefulShutdown::new();
        tokio::spawn(connection.serve(near, graceful.watcher()));
        (graceful, permits, far)
    }

    fn request(path: &str) -> Request<Empty<Bytes>> {
        Request::get(format!("http://localhost{path}")).body(Empty::new()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_http2_connection_without_a_request_ends_although_its_client_answers_pings() {
        let slow = || async {
            sleep(Duration::from_secs(600)).await;
            "done"
        };
        let (_graceful, permits, far) = connection(Router::new().route("/", get(slow))).await;
        let (mut sender, client) = http2::handshake(TokioExecutor::new(), TokioIo::new(far)).await.unwrap();
        let mut client = tokio::spawn(client);
        let response = sender.send_request(request("/")).await.unwrap();
        assert_eq!(
            response.into_body().collect().await.unwrap().to_bytes(),
            "done",
            "a request may take long"
        );
        assert!(
            timeout(Duration::from_secs(170), &mut client).await.is_err(),
            "the client may send more requests"
        );
        timeout(Duration::from_secs(120), client)
            .await
            .expect("the server ends the connection")
            .unwrap()
            .ok();
        drop(sender);
        drop(timeout(Duration::from_secs(10), permits.acquire()).await.expect("its seat is free").unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn an_http2_client_that_makes_no_room_for_a_response_loses_it_and_nothing_else() {
        let slow = || async {
            sleep(Duration::from_secs(600)).await;
            "done"
        };
        let endless = || async { Body::from_stream(futures::stream::repeat(Ok::<_, Infallible>("part"))) };
        let router = Router::new()
            .route("/small", get(|| async { "small" }))
            .route("/large", get(|| async { vec![7; 1 << 20] }))
            .route("/endless", get(endless))
            .route("/slow", get(slow));
        let (_graceful, permits, far) = connection(router).await;
        let mut client = http2::Builder::new(TokioExecutor::new());
        // The client reads the connection and answers PING frames, but takes no byte of a response.
        client.initial_stream_window_size(0);
        let (mut sender, client) = client.handshake(TokioIo::new(far)).await.unwrap();
        let client = tokio::spawn(client);
        let waiting = tokio::spawn(sender.send_request(request("/slow")));
        for (path, limit) in [("/small", 60), ("/large", 240), ("/endless", 60)] {
            let mut body = sender.send_request(request(path)).await.unwrap().into_body();
            let early = Duration::from_secs(limit - 5);
            assert!(timeout(early, body.frame()).await.is_err(), "{path}: the client has time to read");
            let ended = timeout(Duration::from_secs(10), body.frame()).await.expect(path);
            assert!(ended.unwrap().is_err(), "{path}");
        }
        assert_eq!(waiting.await.unwrap().unwrap().status(), 200, "another request of the connection");
        timeout(2 * IDLE, client).await.expect("no request is left").unwrap().ok();
        drop(timeout(Duration::from_secs(10), permits.acquire()).await.expect("its seat is free").unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn an_http2_client_that_reads_slowly_gets_the_whole_response() {
        let (_graceful, _permits, far) =
            connection(Router::new().route("/", get(|| async { vec![7; 300 << 10] }))).await;
        let mut client = http2::Builder::new(TokioExecutor::new());
        client.initial_stream_window_size(16 << 10);
        let (mut sender, client) = client.handshake(TokioIo::new(far)).await.unwrap();
        tokio::spawn(client);
        let mut body = sender.send_request(request("/")).await.unwrap().into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame.unwrap().into_data().unwrap().len();
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(bytes, 300 << 10);
    }
}
