//! The TLS handshake selects the HTTP version (ALPN).

use crate::test_server::TestServer;
use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

async fn connect(server: &TestServer, roots: &RootCertStore, protocols: &[&str]) -> TlsStream<TcpStream> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn alpn_selects_http2_or_http1() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let server =
        TestServer::start_with(|settings| (settings.tls_cert, settings.tls_key) = (Some(cert), Some(key)))
            .await;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let get = |version, origin: &str| {
        let request = Request::get("https://localhost/healthz").version(version).header("origin", origin);
        // HTTP/1.1 sends the host as a header.
        let request = if version == Version::HTTP_2 { request } else { request.header("host", "localhost") };
        request.body(Full::<Bytes>::default()).unwrap()
    };

    let stream = connect(&server, &roots, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut http, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let answer = http.send_request(get(Version::HTTP_2, "https://localhost")).await.unwrap();
    assert_eq!((answer.version(), answer.status().as_u16()), (Version::HTTP_2, 200));
    // A page of the same host without TLS is another origin.
    let answer = http.send_request(get(Version::HTTP_2, "http://localhost")).await.unwrap();
    assert_eq!(answer.status().as_u16(), 403);

    for protocols in [&["http/1.1"][..], &[]] {
        let stream = connect(&server, &roots, protocols).await;
        let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        assert_eq!(agreed, protocols.first().map(|protocol| protocol.as_bytes().to_vec()));
        let (mut http, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let answer = http.send_request(get(Version::HTTP_11, "https://localhost")).await.unwrap();
        assert_eq!((answer.version(), answer.status().as_u16()), (Version::HTTP_11, 200));
        answer.into_body().collect().await.unwrap();
    }
}
