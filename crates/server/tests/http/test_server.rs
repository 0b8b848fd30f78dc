//! A server in the test process, with a free port and its own directory.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{Client as Http, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use towline_api::{Client, Code, NewToken};
use towline_server::{Server, Settings, Tokens};

pub struct TestServer {
    pub address: SocketAddr,
    /// Sent with every request, if the server requires tokens.
    token: Option<String>,
    http: Http<HttpConnector, Full<Bytes>>,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
    directory: tempfile::TempDir,
}

pub struct TestResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl TestResponse {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The body of a successful response.
    #[track_caller]
    pub fn success(self) -> Value {
        assert!(self.status.is_success(), "{}: {}", self.status, String::from_utf8_lossy(&self.body));
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// The code of a problem. Checks that the problem is complete and its code known.
    #[track_caller]
    pub fn code(&self) -> &'static str {
        assert!(!self.status.is_success(), "not refused: {}", String::from_utf8_lossy(&self.body));
        let problem = self.json();
        let code = Code::parse(problem["code"].as_str().unwrap()).unwrap_or_else(|| panic!("{problem}"));
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(problem["status"], self.status.as_u16(), "{problem}");
        assert_eq!(code.status(), self.status.as_u16(), "{problem}");
        assert_eq!(problem["title"], code.title(), "{problem}");
        assert_eq!(problem["type"], format!("urn:towline:{}", code.name()), "{problem}");
        assert!(!problem["detail"].as_str().unwrap().is_empty(), "{problem}");
        code.name()
    }

    /// The detail of a problem. Checks its code.
    #[track_caller]
    pub fn problem(&self, code: &str) -> String {
        assert_eq!(self.code(), code, "{}", self.json());
        self.json()["detail"].as_str().unwrap().to_owned()
    }
}

impl TestServer {
    pub async fn start() -> TestServer {
        TestServer::start_with(|_| {}).await
    }

    pub async fn start_with(change: impl FnOnce(&mut Settings)) -> TestServer {
        let directory = tempfile::tempdir().unwrap();
        TestServer::start_in(directory, change).await
    }

    /// A server that requires tokens, and an admin token for it.
    pub async fn start_with_tokens(change: impl FnOnce(&mut Settings)) -> TestServer {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings { data: directory.path().join("data"), ..Settings::default() };
        let made = tokio::spawn(async move {
            let tokens = Tokens::open(&settings).await.unwrap();
            let new =
                NewToken { name: "test".to_owned(), scopes: vec!["admin".to_owned()], ..NewToken::default() };
            let made = tokens.create(new).await.unwrap();
            tokio::task::block_in_place(|| tokens.close());
            made
        });
        let token = Some(made.await.unwrap().token.0);
        let server = TestServer::start_in(directory, |settings| {
            settings.require_tokens = true;
            change(settings);
        });
        TestServer { token, ..server.await }
    }

    async fn start_in(directory: tempfile::TempDir, change: impl FnOnce(&mut Settings)) -> TestServer {
        let data: PathBuf = directory.path().join("data");
        let mut settings = Settings { listen: "127.0.0.1:0".parse().unwrap(), data, ..Settings::default() };
        change(&mut settings);
        let server = tokio::spawn(Server::open(settings)).await.unwrap().unwrap();
        let address = server.address();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run_until(async { drop(stopped.await) }));
        let http = Http::builder(TokioExecutor::new()).build_http();
        TestServer { address, token: None, http, stop: Some(stop), running: Some(running), directory }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn client(&self) -> Client {
        Client::new(&self.url()).unwrap()
    }

    pub async fn send(&self, mut request: Request<Full<Bytes>>) -> TestResponse {
        if let Some(token) = &self.token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        self.send_bare(request).await
    }

    async fn send_bare(&self, request: Request<Full<Bytes>>) -> TestResponse {
        let response = self.http.request(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        TestResponse { status, headers, body }
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> TestResponse {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url()));
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map_or(Bytes::new(), |body| body.to_string().into());
        self.send(request.body(Full::new(body)).unwrap()).await
    }

    pub async fn get(&self, path: &str) -> TestResponse {
        self.call(Method::GET, path, None).await
    }

    pub async fn put(&self, path: &str, body: Value) -> TestResponse {
        self.call(Method::PUT, path, Some(body)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> TestResponse {
        self.call(Method::POST, path, Some(body)).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> TestResponse {
        self.call(Method::PATCH, path, Some(body)).await
    }

    /// Sends raw bytes with these headers.
    pub async fn send_bytes(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> TestResponse {
        self.send(self.request(method, path, headers, body)).await
    }

    /// Sends these headers, without the default token.
    pub async fn send_as_is(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> TestResponse {
        self.send_bare(self.request(method, path, headers, body)).await
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Full::new(body.into())).unwrap()
    }

    /// Sends another token.
    pub async fn call_as(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> TestResponse {
        let bearer = format!("Bearer {token}");
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(body.is_some().then_some(("content-type", "application/json")));
        self.send_as_is(method, path, &headers, body.map_or(String::new(), |body| body.to_string())).await
    }

    pub async fn post_as(&self, token: &str, path: &str, body: Value) -> TestResponse {
        self.call_as(token, Method::POST, path, Some(body)).await
    }

    /// Creates a token with these scopes. Returns the token and its id.
    pub async fn token_for(&self, scopes: &[&str]) -> (String, String) {
        let made = self.post("/v1/tokens", json!({"name": "test client", "scopes": scopes})).await.success();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        (text("token"), text("id"))
    }

    /// Sends text with the content type of JSON.
    pub async fn post_text(&self, path: &str, body: impl Into<Bytes>) -> TestResponse {
        self.send_bytes(Method::POST, path, &[("content-type", "application/json")], body).await
    }

    /// Creates a queue.
    pub async fn queue(&self, name: &str, policy: Value) {
        self.put(&format!("/v1/queues/{name}"), json!({"policy": policy})).await.success();
    }

    /// Creates a buffer with this content.
    pub async fn buffer(&self) -> String {
        let made = self.post("/v1/buffers", json!({})).await.success();
        let id = made["id"].as_str().unwrap().to_owned();
        self.fill(&id, "data").await.success();
        id
    }

    /// Writes a whole buffer.
    pub async fn fill(&self, id: &str, content: impl Into<Bytes>) -> TestResponse {
        let headers = [("content-type", "application/octet-stream")];
        self.send_bytes(Method::PUT, &format!("/v1/buffers/{id}/content"), &headers, content).await
    }

    /// Flips a bit in the middle of a stored chunk.
    pub fn damage_chunk(&self, id: &str, n: u32) {
        fn find(directory: &std::path::Path, id: &str, name: &str) -> Option<PathBuf> {
            std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).find_map(|path| {
                let is_it = path.ends_with(name) && path.to_str().unwrap().contains(id);
                if path.is_dir() { find(&path, id, name) } else { is_it.then_some(path) }
            })
        }
        let path = find(self.directory.path(), id, &format!("{n:08}")).expect("the chunk file exists");
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }

    /// Changes the first of these bytes in the log of the embedded store.
    pub fn damage_log(&self, what: &[u8]) {
        let files = std::fs::read_dir(self.directory.path().join("data")).unwrap();
        let segments = files.map(|entry| entry.unwrap().path());
        for path in segments.filter(|path| path.extension().is_some_and(|extension| extension == "log")) {
            let bytes = std::fs::read(&path).unwrap();
            if let Some(at) = bytes.windows(what.len()).position(|window| window == what) {
                let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                return file.write_all_at(&[!what[0]], at as u64).unwrap();
            }
        }
        panic!("no segment contains {:?}", String::from_utf8_lossy(what));
    }

    /// Submits items and returns their ids. All must be accepted.
    pub async fn submit(&self, queue: &str, items: Value) -> Vec<String> {
        let answer = self.post(&format!("/v1/queues/{queue}/items"), json!({"items": items})).await.success();
        let id = |item: &Value| item["id"].as_str().unwrap_or_else(|| panic!("{item}")).to_owned();
        answer["items"].as_array().unwrap().iter().map(id).collect()
    }

    /// Receives a ready item.
    pub async fn receive(&self, queue: &str) -> Value {
        let answer =
            self.post(&format!("/v1/queues/{queue}/receive"), json!({"wait": "30s"})).await.success();
        assert_eq!(answer["items"].as_array().unwrap().len(), 1, "{answer}");
        answer["items"][0].clone()
    }

    /// Submits and receives an item: its id and its lease.
    pub async fn hold(&self, queue: &str) -> (String, String) {
        self.submit(queue, json!([{}])).await;
        let item = self.receive(queue).await;
        (item["id"].as_str().unwrap().to_owned(), item["lease"].as_str().unwrap().to_owned())
    }

    /// One call of a lease holder.
    pub async fn act(&self, id: &str, verb: &str, body: Value) -> TestResponse {
        self.post(&format!("/v1/items/{id}/{verb}"), body).await
    }

    pub async fn item(&self, id: &str) -> Value {
        self.get(&format!("/v1/items/{id}")).await.success()
    }

    pub async fn counts(&self, queue: &str) -> Value {
        self.get(&format!("/v1/queues/{queue}/counts")).await.success()
    }

    pub async fn delete(&self, path: &str) -> TestResponse {
        self.call(Method::DELETE, path, None).await
    }

    /// Tells the server to stop, without waiting.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until the server has stopped.
    pub async fn stopped(&mut self) {
        self.stop();
        if let Some(running) = self.running.take() {
            running.await.unwrap();
        }
    }

    /// Stops the server and starts another one on the same data.
    pub async fn restart(self) -> TestServer {
        self.restart_with(|_| {}).await
    }

    pub async fn restart_with(mut self, change: impl FnOnce(&mut Settings)) -> TestServer {
        self.stopped().await;
        TestServer::start_in(self.directory, change).await
    }
}
