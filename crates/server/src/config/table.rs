//! The table of settings. The names in the configuration file and in the environment, the flags of `towline serve` with their
//! help, and the table in `docs/server.md` are all made from it.

use super::parse;
use super::{Settings, traces};
use towline_domain::Millis;

#[derive(Debug)]
pub struct Setting {
    /// The name in the configuration file.
    pub name: &'static str,
    pub flag: Flag,
    pub default: DefaultValue,
    pub help: &'static str,
    pub(super) set: fn(&mut Settings, &str) -> Result<(), String>,
}

/// How a setting is given on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// `--name VALUE`; the text is the placeholder for the value.
    Value(&'static str),
    /// Like `Value`, and may be given several times.
    Repeated(&'static str),
    /// `--name` sets the setting to `true`.
    Switch,
    /// A flag with its own name and help sets the setting to `false`.
    SwitchOff(&'static str, &'static str),
}

/// What applies if a setting is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    Text(&'static str),
    /// The value of an environment variable that other programs use too.
    Variable(&'static str),
    Described(&'static str),
    None,
}

use DefaultValue::{Described, Text, Variable};
use Flag::{Repeated, Switch, SwitchOff, Value};

macro_rules! settings {
    ($($name:literal, $flag:expr, $default:expr, |$settings:ident, $value:ident| $set:expr, $help:literal;)*) => {
        /// Every setting. Values are applied in this order.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            name: $name,
            flag: $flag,
            default: $default,
            help: $help,
            set: |$settings, $value| {
                $set;
                Ok(())
            },
        }),*];
    };
}

settings! {
    "listen", Value("ADDRESS"), Text("127.0.0.1:7420"), |s, v| s.listen = parse::listen(v)?,
        "Address and port to listen on, or unix:/path for a Unix socket that only the server's user can connect to";
    "data", Value("DIRECTORY"), Text("towline-data"), |s, v| s.data = parse::directory(v)?,
        "Directory of the embedded store";
    "store", Repeated("STORE"), Text("embedded"), |s, v| s.store = parse::store(v)?,
        "Where queues and items are stored: embedded, or postgres://user@host/database. Several databases are used as shards; separate them with spaces";
    "store_password_file", Value("FILE"), DefaultValue::None, |s, v| s.set_store_password(&parse::secret_file(v)?)?,
        "File that contains the password of the database";
    "store_migrate", SwitchOff("no-migrate", "Do not migrate the schema of the database at start; `towline migrate` does it"), Text("true"), |s, v| s.store_migrate = parse::boolean(v)?,
        "Migrate the schema of the database at start. If `false`, run `towline migrate` before you start a new version";
    "durability", Value("POLICY"), Text("sync"), |s, v| s.durability = parse::durability(v)?,
        "When the embedded store acknowledges a write: sync (it is on disk) or interval:<ms> (the operating system has it, and it is on disk within that many milliseconds)";
    "insecure", Switch, Text("false"), |s, v| s.insecure = parse::boolean(v)?,
        "Allow an address that other machines can reach, without TLS, and without tokens unless require_tokens is set";
    "tls_cert", Value("FILE"), DefaultValue::None, |s, v| s.tls_cert = Some(v.into()),
        "Certificate of the server and its chain, in PEM. SIGHUP reloads it";
    "tls_key", Value("FILE"), DefaultValue::None, |s, v| s.tls_key = Some(v.into()),
        "Private key of the certificate, in PEM. SIGHUP reloads it";
    "require_tokens", Switch, Text("false"), |s, v| s.require_tokens = parse::boolean(v)?,
        "Require tokens on a loopback address too, for example behind a proxy. On other addresses tokens are required unless insecure is set";
    "hosts", Repeated("NAME"), DefaultValue::None, |s, v| s.hosts = parse::hosts(v)?,
        "Names of this server that clients may use while it requires no tokens, besides IP addresses and localhost. Separate several with spaces";
    "trusted_proxies", Repeated("ADDRESS"), DefaultValue::None, |s, v| s.trusted_proxies = parse::proxies(v)?,
        "Proxies that name the client of a request in X-Forwarded-For or Forwarded: addresses, networks like 10.0.0.0/8, or unix for every client of a Unix socket. Separate several with spaces";
    "auto_create_queues", Switch, Text("false"), |s, v| s.auto_create_queues = parse::boolean(v)?,
        "Create a queue that does not exist, with the default policy, when a client submits items to it. A token needs the scope `queue:<pattern>:admin` for it";
    "audit_log", Value("FILE"), Described("the log"), |s, v| s.audit_log = Some(v.into()),
        "File for the audit log: one line of JSON per administrative call. SIGHUP reopens it";
    "drain", Value("DURATION"), Text("10s"), |s, v| s.drain = parse::duration(v, Millis::ZERO, Millis::MAX)?,
        "How long a stopping server waits for requests in progress before it cuts their connections";
    "log", Value("FILTER"), Text("info"), |s, v| s.log = parse::log_filter(v)?,
        "Log level (error, warn, info, debug or trace), or a filter like info,towline_server=debug";
    "log_format", Value("FORMAT"), Text("pretty"), |s, v| s.log_format = parse::log_format(v)?,
        "Log format: pretty or json";
    "otlp_endpoint", Value("URL"), Variable("OTEL_EXPORTER_OTLP_ENDPOINT"), |s, v| s.traces.endpoint = Some(traces::endpoint(v)?),
        "OpenTelemetry collector that accepts OTLP over HTTP, like http://host:4318. Without one, tracing is disabled";
    "otlp_headers_file", Value("FILE"), Variable("OTEL_EXPORTER_OTLP_HEADERS"), |s, v| s.traces.headers = traces::headers(&parse::secret_file(v)?)?,
        "File with HTTP headers for the collector, one per line, like authorization: Bearer ...";
    "trace_sample", Value("SHARE"), Variable("OTEL_TRACES_SAMPLER"), |s, v| s.traces.sample_ppm = Some(traces::sample(v)?),
        "Share of the traces started by this server that are recorded, from 0 to 1. Without the variable, every trace is recorded";
    "connections_max", Value("COUNT"), Text("10000"), |s, v| s.connections_max = parse::number(v, 1, 1_000_000)?,
        "Maximum number of open connections. More connections wait to be accepted";
    "body_bytes_max", Value("BYTES"), Text("67108864"), |s, v| s.body_bytes_max = parse::number(v, 1024, 1 << 30)?,
        "Maximum size of one request body, in bytes";
    "bodies_bytes_max", Value("BYTES"), Text("536870912"), |s, v| s.bodies_bytes_max = parse::number(v, 1 << 20, 1 << 40)?,
        "Maximum size of all request bodies in memory, in bytes. Above it, the server responds with busy";
    "buffers", Value("LOCATION"), Described("`buffers` in the data directory"), |s, v| s.buffers.location = Some(parse::location(v)?),
        "Where buffers are stored: a directory, or s3://bucket/prefix";
    "buffer_writer_timeout", Value("DURATION"), Text("60s"), |s, v| s.buffers.writer_timeout = parse::millis(v, Millis::seconds(1), Millis::days(7))?,
        "How long the writer of a buffer may be silent before the buffer fails";
    "offload_above", Value("BYTES"), Text("65536"), |s, v| s.offload.above = parse::number(v, 0, 1 << 30)?,
        "Offload payload fields larger than this to buffer storage, in bytes";
    "offload_delayed_by", Value("DURATION"), Text("1d"), |s, v| s.offload.delayed_by = parse::millis(v, Millis::ZERO, Millis::MAX)?,
        "Offload payload fields larger than 4096 bytes if their item is delayed by at least this long";
    "collection_interval", Value("DURATION"), Text("60s"), |s, v| s.collection.every = parse::duration(v, Millis(100), Millis::days(30))?,
        "How often the server removes objects that no item refers to from buffer storage";
    "collection_grace", Value("DURATION"), Text("10m"), |s, v| s.collection.grace = parse::millis(v, Millis::seconds(1), Millis::days(30))?,
        "Minimum age of such an object: an item that is being submitted may still refer to it";
    "compute", Value("RUNNER"), Described("`process` on a loopback address, `off` on others"), |s, v| s.compute.runner = Some(parse::compute_runner(v)?),
        "How this server runs runs, services and triggers: process (as processes of this machine, with the rights of the server's user), container (in containers of Docker or Podman) or off";
    "compute_slots", Value("COUNT"), Text("16"), |s, v| s.compute.slots = parse::number(v, 1, 10_000)?,
        "How many runs, replicas and slots of triggers this server runs at once";
    "compute_pool", Value("POOL"), Text("default"), |s, v| s.compute.pool = v.to_owned(),
        "The pool whose runs, services and triggers this server runs";
    "compute_directory", Value("DIRECTORY"), Described("a directory for temporary files"), |s, v| s.compute.directory = Some(parse::directory(v)?),
        "Where the processes of runs and services have their working directories and pipes";
    "compute_engine", Value("ADDRESS"), Described("`$DOCKER_HOST`, or the socket of Docker or Podman"), |s, v| s.compute.engine = Some(v.to_owned()),
        "Address of the container engine: unix:///path or http://host:port";
    "compute_network", Value("NETWORK"), Described("the engine's"), |s, v| s.compute.network = Some(v.to_owned()),
        "Network of the containers, for example host. A container must be able to reach the address of the server";
    "compute_cli", Value("FILE"), DefaultValue::None, |s, v| s.compute.cli = Some(v.into()),
        "A statically linked towline to mount into the containers";
    "s3_endpoint", Value("URL"), Variable("AWS_ENDPOINT_URL"), |s, v| s.buffers.endpoint = Some(parse::s3_endpoint(v)?),
        "URL of an S3-compatible service, like https://host:9000. Without one, AWS is used";
    "s3_region", Value("REGION"), Variable("AWS_REGION"), |s, v| s.buffers.region = Some(v.to_owned()),
        "S3 region";
    "s3_access_key_id", Value("ID"), Variable("AWS_ACCESS_KEY_ID"), |s, v| s.buffers.access_key_id = Some(v.to_owned()),
        "S3 access key";
    // Secrets come from files: other users of the machine can read a command line.
    "s3_secret_access_key_file", Value("FILE"), Variable("AWS_SECRET_ACCESS_KEY"), |s, v| s.buffers.secret_access_key = Some(parse::secret(v)?),
        "File that contains the secret of the S3 access key";
    "s3_session_token_file", Value("FILE"), Variable("AWS_SESSION_TOKEN"), |s, v| s.buffers.session_token = Some(parse::secret(v)?),
        "File that contains the S3 session token, if there is one";
    "s3_virtual_hosted", Switch, Text("false"), |s, v| s.buffers.virtual_hosted = parse::boolean(v)?,
        "Put the bucket into the host name instead of the path";
    "s3_write_once", Value("GUARD"), Text("service"), |s, v| s.buffers.write_once = parse::write_once(v)?,
        "What prevents an object from being written twice: service, or process if the service cannot and only one server uses it";
}

impl Setting {
    /// The flag of `towline serve`, without the dashes.
    #[must_use]
    pub fn flag_name(&self) -> String {
        match self.flag {
            SwitchOff(name, _) => name.to_owned(),
            _ => self.name.replace('_', "-"),
        }
    }

    /// The help text of the flag.
    #[must_use]
    pub fn flag_help(&self) -> String {
        match (self.flag, self.default) {
            (SwitchOff(_, help), _) => help.to_owned(),
            (Switch, _) | (_, DefaultValue::None) => self.help.to_owned(),
            (_, Text(text) | Described(text)) => format!("{} [default: {text}]", self.help),
            (_, Variable(name)) => format!("{} [default: ${name}]", self.help),
        }
    }

    pub(super) fn find(name: &str) -> Option<(usize, &'static Setting)> {
        SETTINGS.iter().enumerate().find(|(_, setting)| setting.name == name)
    }

    /// Suggests a setting for a name that does not exist.
    pub(super) fn suggestion(name: &str) -> String {
        let distance = |setting: &&Setting| strsim::damerau_levenshtein(setting.name, name);
        match SETTINGS.iter().min_by_key(distance).filter(|setting| distance(setting) <= 1 + name.len() / 3) {
            Some(setting) => format!("did you mean {:?}?", setting.name),
            None => {
                let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
                format!("use one of: {}", names.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/server.md");
    const BEGIN: &str = "<!-- Generated from crates/server/src/config/table.rs; TOWLINE_BLESS=1 with the tests rewrites it. -->\n\n";

    #[test]
    fn default_texts_are_the_defaults_of_the_struct() {
        let mut settings = Settings::default();
        for setting in SETTINGS {
            if let Text(text) = setting.default {
                (setting.set)(&mut settings, text).unwrap();
            }
        }
        assert_eq!(settings, Settings::default());
    }

    fn markdown() -> String {
        let mut rows = "| file | environment | flag | default | |\n|---|---|---|---|---|\n".to_owned();
        for setting in SETTINGS {
            let (name, flag, help) = (setting.name, setting.flag_name(), setting.help.replace('|', "\\|"));
            let default = match setting.default {
                Text(text) => format!("`{text}`"),
                Variable(variable) => format!("`${variable}`"),
                Described(text) => text.to_owned(),
                DefaultValue::None => String::new(),
            };
            rows += &format!(
                "| `{name}` | `{}{}` | `--{flag}` | {default} | {help} |\n",
                super::super::PREFIX,
                name.to_uppercase()
            );
        }
        rows + "\n"
    }

    #[test]
    fn the_docs_contain_the_generated_table() {
        let docs = std::fs::read_to_string(DOCS).unwrap();
        let (before, rest) = docs.split_once(BEGIN).expect("the marker is in docs/server.md");
        let rows = rest.split_inclusive('\n').take_while(|line| line.starts_with('|'));
        let end = rows.map(str::len).sum::<usize>() + 1;
        let generated = format!("{before}{BEGIN}{}{}", markdown(), &rest[end..]);
        if std::env::var_os("TOWLINE_BLESS").is_some() {
            std::fs::write(DOCS, &generated).unwrap();
        }
        assert!(
            generated == std::fs::read_to_string(DOCS).unwrap(),
            "the settings have changed; run the tests with TOWLINE_BLESS=1 to rewrite docs/server.md"
        );
    }
}
