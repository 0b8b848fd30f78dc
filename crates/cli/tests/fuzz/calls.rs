//! Valid calls for every route, which the test then mutates.

use crate::connection::Ended;
use crate::mutate;
use crate::random::Random;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use towline_api::Format;

#[derive(Debug, Clone)]
pub struct Call {
    pub method: &'static str,
    pub path: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    pub may_wait: bool,
}

impl Call {
    pub fn head(&self, host: &str) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\nhost: {host}\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        write!(head, "content-length: {}\r\n\r\n", self.body.len()).unwrap();
        head
    }

    /// The raw bytes of the call, to send again with `printf` and `nc`.
    pub fn reproduction(&self) -> String {
        let body: String =
            self.body.iter().take(4000).flat_map(|byte| byte.escape_ascii()).map(char::from).collect();
        let cut = if self.body.len() > 4000 { "..." } else { "" };
        format!("{} {} {:?}\n  {body}{cut}", self.method, self.path, self.headers)
    }
}

/// Ids and leases from the server.
#[derive(Debug, Default)]
pub struct Known {
    ids: Vec<String>,
    leases: Vec<(String, String)>,
}

pub struct Caller {
    random: Random,
    known: Arc<Mutex<Known>>,
}

const QUEUES: u64 = 8;
const KNOWN_MAX: usize = 300;
const VERBS: [&str; 7] = ["heartbeat", "edit", "commit", "fail", "retry", "release", "defer"];

impl Caller {
    pub fn new(random: Random, known: Arc<Mutex<Known>>) -> Caller {
        Caller { random, known }
    }

    pub fn next(&mut self) -> Call {
        let (method, mut path, body, may_wait) = self.valid();
        let mut headers = Vec::new();
        if self.random.one_in(15) {
            path = mutate::path(&mut self.random, path);
        }
        let bytes = match body {
            None => Vec::new(),
            Some(mut value) => {
                let bent = !self.random.one_in(8);
                if bent && !self.random.one_in(3) {
                    for _ in 0..1 + self.random.below(3) {
                        mutate::value(&mut self.random, &mut value);
                    }
                }
                let format = if self.random.one_in(2) { Format::Json } else { Format::MessagePack };
                let mut bytes = encoded(format, &value);
                if bent && self.random.one_in(2) {
                    for _ in 0..1 + self.random.below(3) {
                        mutate::bytes(&mut self.random, &mut bytes, format);
                    }
                }
                headers.push(("content-type", self.content_type(format)));
                bytes
            }
        };
        if self.random.one_in(10) {
            let accept = ["*/*", "application/msgpack", "text/html", ",,;q=;", "application/x-ndjson"];
            headers.push(("accept", (*self.random.pick(&accept).unwrap()).to_owned()));
        }
        Call { method, path, headers, body: bytes, may_wait }
    }

    fn content_type(&mut self, format: Format) -> String {
        match self.random.below(40) {
            0 => "text/plain".to_owned(),
            1 => "application/json; charset=utf-16".to_owned(),
            2 => ";".to_owned(),
            3 => "application/msgpack".to_owned(),
            _ => format.content_type().to_owned(),
        }
    }

    fn queue(&mut self) -> String {
        format!("q{}", self.random.below(QUEUES))
    }

    fn item(&mut self) -> String {
        let known = self.known.lock().unwrap();
        let unknown = "01890a5d-ac96-774b-bcce-b302099a8057".to_owned();
        self.random.pick(&known.ids).cloned().filter(|_| !self.random.one_in(10)).unwrap_or(unknown)
    }

    fn held(&mut self) -> (String, String) {
        let held = self.random.pick(&self.known.lock().unwrap().leases).cloned();
        held.unwrap_or_else(|| (self.item(), "00000000000000000000000000000000".to_owned()))
    }

    fn valid(&mut self) -> (&'static str, String, Option<Value>, bool) {
        let queue = self.queue();
        let of_queue = |rest: &str| format!("/v1/queues/{queue}{rest}");
        match self.random.below(100) {
            0..10 => ("PUT", of_queue(""), Some(self.put()), false),
            10..15 => ("PATCH", of_queue(""), Some(json!({ "policy": self.policy() })), false),
            15..40 => ("POST", of_queue("/items"), Some(json!({ "items": self.items() })), false),
            40..52 => ("POST", of_queue("/receive"), Some(self.receive()), true),
            52..64 => {
                let actions: Vec<Value> =
                    (0..1 + self.random.below(4)).map(|_| self.action(true).2).collect();
                ("POST", "/v1/settle".to_owned(), Some(json!({ "actions": actions })), false)
            }
            64..78 => {
                let (id, verb, body) = self.action(false);
                ("POST", format!("/v1/items/{id}/{verb}"), Some(body), false)
            }
            78..81 => {
                let path = format!("/v1/items/{}/cancel", self.item());
                ("POST", path, Some(json!({ "reason": "changed my mind" })), false)
            }
            81..84 => {
                let verb = *self.random.pick(&["redrive", "pause", "resume"]).unwrap();
                ("POST", format!("/v1/items/{}/{verb}", self.item()), None, false)
            }
            84..86 => {
                let verb = *self.random.pick(&["close", "pause", "resume", "resume"]).unwrap();
                ("POST", of_queue(&format!("/{verb}")), None, false)
            }
            86..89 => ("GET", format!("/v1/items/{}/wait?timeout=5ms", self.item()), None, true),
            89..90 => ("GET", format!("/v1/items/{}?fields=payload,metadata", self.item()), None, false),
            90..91 => {
                let path = format!("/v1/events?for=5ms&after=oldest&kind=item.*&queue={queue}");
                ("GET", path, None, true)
            }
            91..93 => {
                let list = "/items?state=unfinished&tag=a=b&limit=20&fields=payload&created_from=2020-01-01T00:00:00Z";
                ("GET", of_queue(list), None, false)
            }
            93 => ("GET", of_queue(""), None, false),
            94 => ("GET", of_queue("/counts"), None, false),
            95 => ("GET", "/v1/queues?limit=5&cursor=q2".to_owned(), None, false),
            96 => ("DELETE", of_queue("/items?state=completed&force=true"), None, false),
            97 => ("DELETE", format!("/v1/items/{}?force=true", self.item()), None, false),
            98 => ("DELETE", of_queue("?force=true"), None, false),
            _ => (
                "GET",
                (*self.random.pick(&["/healthz", "/v1/openapi.json", "/v1/nothing"]).unwrap()).to_owned(),
                None,
                false,
            ),
        }
    }

    fn policy(&mut self) -> Value {
        json!({
            "visibility_timeout": "30s", "max_retries": 5, "backoff": {"base": "1s", "factor": 1.5, "max": "1m", "jitter": 0.5},
            "completed_ttl": "1h", "failed_ttl": null, "expire_after": "1d", "give_up_after": 90_000, "poison_after": 3,
            "depth_limit": 1000, "dead_letter_queue": "q0", "lease": {"renewals_max": 5},
        })
    }

    fn put(&mut self) -> Value {
        let schema = json!({"inputs": ["raw?", "more?"], "outputs": ["result?"], "input_params": ["n?"], "output_params": []});
        match self.random.below(6) {
            0 => json!({ "policy": self.policy() }),
            1 => json!({ "schema": schema }),
            2 => {
                json!({"policy": {"order": {"score": {"fee_permille": 400, "age_unit": "1h", "tiers_permille": {"gold": 900}}}}})
            }
            3 => json!({"policy": {"order": "fifo", "item_ttl": "5m", "backoff": "tyger"}, "schema": schema}),
            _ => json!({}),
        }
    }

    fn items(&mut self) -> Vec<Value> {
        let mut full = json!({
            "inputs": {"raw": "buffer-1"}, "params": {"n": 1, "deep": {"a": [1, 2.5, null, true, "x"]}}, "priority": -5,
            "delay": "10ms", "idempotency_key": format!("key-{}", self.random.below(500)), "tags": {"a": "b"},
            "fairness_key": "tenant", "group": "g", "parent": self.item(), "source": "here", "payload": "aGVsbG8=",
            "state_blob": "AAEC", "metadata": "", "parameters": "/+8=", "fee": 10, "size_bytes": 99, "tier": "gold",
            "max_retries": 2, "backoff": {"delay": "1s"}, "completed_ttl": "1h", "failed_ttl": "2h",
            "expire_after": "3h", "give_up_after": "4h",
        });
        // A buffer that does not exist, so that about half of the calls are accepted.
        if self.random.one_in(2) {
            full["inputs"] = json!({});
        }
        let count = if self.random.one_in(30) { 50 } else { 1 + self.random.below(3) };
        let mut item = || match self.random.below(4) {
            0 => full.clone(),
            1 => json!({"ready_at": "2030-01-31T08:00:00Z", "payload": "aGVsbG8="}),
            2 => json!({}),
            _ => json!({"payload": "aGVsbG8=", "params": {"n": self.random.below(9)}}),
        };
        (0..count).map(|_| item()).collect()
    }

    fn receive(&mut self) -> Value {
        match self.random.below(6) {
            0 => {
                json!({"max": 10, "wait": "5ms", "visibility_timeout": "1s", "fields": ["payload", "state_blob"]})
            }
            1 => json!({"create_output_buffers": true}),
            2 => json!({}),
            _ => json!({"max": 5, "visibility_timeout": "30s"}),
        }
    }

    /// The item, the verb, and the body of the call.
    fn action(&mut self, in_batch: bool) -> (String, &'static str, Value) {
        let (id, lease) = self.held();
        let verb = *self.random.pick(&VERBS).unwrap();
        let mut body = match verb {
            "heartbeat" => json!({"visibility_timeout": "1m"}),
            "edit" => json!({"set": {"payload": "aGVsbG8=", "metadata": "AA=="}, "unset": ["state_blob"]}),
            "commit" => json!({"outputs": {"result": "buffer-2"}, "output_params": {"score": 0.5}}),
            "fail" => json!({"reason": "broken"}),
            "retry" => json!({"reason": "not yet", "delay": "1s", "priority": 3}),
            "release" => json!({"delay": 5, "queue": self.queue()}),
            _ => json!({"ready_at": "2030-01-31T08:00:00Z"}),
        };
        body["lease"] = lease.into();
        if in_batch {
            body["verb"] = verb.into();
            body["id"] = id.clone().into();
        }
        (id, verb, body)
    }

    /// Remembers ids and leases of an answer for later calls.
    pub fn learn(&mut self, ended: &Ended) {
        let Ended::Answered(answer) = ended else { return };
        if answer.status != 200 || !answer.content_type.starts_with("application/json") {
            return;
        }
        let Ok(Value::Object(body)) = serde_json::from_slice(&answer.body) else { return };
        let Some(items) = body.get("items").and_then(Value::as_array) else { return };
        let mut known = self.known.lock().unwrap();
        for item in items.iter().take(20) {
            let text = |name: &str| item.get(name).and_then(Value::as_str).map(str::to_owned);
            let Some(id) = text("id") else { continue };
            if let Some(lease) = text("lease") {
                keep(&mut self.random, &mut known.leases, (id.clone(), lease));
            }
            keep(&mut self.random, &mut known.ids, id);
        }
    }
}

fn keep<T>(random: &mut Random, list: &mut Vec<T>, value: T) {
    if list.len() < KNOWN_MAX {
        return list.push(value);
    }
    let at = usize::try_from(random.below(KNOWN_MAX as u64)).unwrap();
    list[at] = value;
}

fn encoded(format: Format, value: &Value) -> Vec<u8> {
    format.encode(value).unwrap()
}
