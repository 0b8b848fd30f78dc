//! An S3-protocol server inside the test process that stores objects as files.

use std::path::Path;
use std::sync::Arc;

use http::Request;
use http::header::IF_NONE_MATCH;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

pub const BUCKET: &str = "towline";
pub const KEY: &str = "test-key";
pub const SECRET: &str = "test-secret";

pub struct S3Server {
    pub endpoint: String,
    serving: JoinHandle<()>,
}

impl S3Server {
    pub async fn start(root: &Path) -> Self {
        std::fs::create_dir_all(root.join(BUCKET)).unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).unwrap());
        builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = builder.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        // `s3s_fs` checks for the object and then writes it, not atomically. The lock makes conditional puts atomic.
        let creating = Arc::new(Mutex::new(()));
        let service = service_fn(move |request: Request<Incoming>| {
            let (service, creating) = (service.clone(), Arc::clone(&creating));
            async move {
                let creates = request.headers().contains_key(IF_NONE_MATCH);
                let _alone = if creates { Some(creating.lock().await) } else { None };
                Service::call(&service, request).await
            }
        });
        let serving = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let connection = auto::Builder::new(TokioExecutor::new());
                    let _ = connection.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { endpoint, serving }
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
