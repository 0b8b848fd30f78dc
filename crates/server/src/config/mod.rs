//! Configuration: defaults, then `towline.toml`, then `TOWLINE_*` in the environment, then flags. A later source wins.
//!
//! [`SETTINGS`] is the only list of settings. Every source goes through it.

mod buffers;
mod parse;
mod redact;
mod table;
mod traces;

pub use buffers::BufferSettings;
pub(crate) use parse::{listen as parse_listen, secret_file};
pub use table::{DefaultValue, Flag, SETTINGS, Setting};
pub use traces::TraceSettings;

use crate::connection::{ListenAddress, TlsFiles, TrustedProxies};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_postgres::config::Host;
use towline_broker::{CollectionRule, OffloadRule};
use towline_embedded::Durability;
use towline_postgres::Address;

/// Read from the working directory if it exists and no other file is given.
const FILE_DEFAULT: &str = "towline.toml";
/// The prefix of environment variables.
const PREFIX: &str = "TOWLINE_";
/// Variables with the prefix that clients use. The server ignores them.
const CLIENT_VARIABLES: [&str; 4] = ["TOWLINE_URL", "TOWLINE_TOKEN", "TOWLINE_TOKEN_FILE", "TOWLINE_CA_FILE"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub listen: ListenAddress,
    pub data: PathBuf,
    pub store: StoreChoice,
    /// Whether to migrate the schema of the database at start.
    pub store_migrate: bool,
    pub durability: Durability,
    /// Whether to allow an address other than loopback without TLS and without tokens.
    pub insecure: bool,
    /// Set together with `tls_key`, or not at all.
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    /// Whether to require tokens on loopback too.
    pub require_tokens: bool,
    /// In lower case. Names that clients may use in the `Host` header while tokens are not required.
    pub hosts: Vec<String>,
    pub trusted_proxies: TrustedProxies,
    /// Whether a submit to a queue that does not exist creates it.
    pub auto_create_queues: bool,
    /// The file of the audit log. Without one, audit entries go to the log.
    pub audit_log: Option<PathBuf>,
    /// How long a stopping server waits before it cuts connections.
    pub drain: Duration,
    pub log: String,
    pub log_format: LogFormat,
    pub connections_max: usize,
    pub body_bytes_max: usize,
    /// Bytes of all request bodies in memory.
    pub bodies_bytes_max: usize,
    pub buffers: BufferSettings,
    /// Whether to take the place for buffers over from another store, at this start only. Set by a flag alone, because
    /// a configuration file would adopt at every start.
    pub adopt_buffers: bool,
    pub offload: OffloadRule,
    pub collection: CollectionRule,
    pub traces: TraceSettings,
    pub compute: ComputeSettings,
    /// About variables that are not settings. Other software may have set them, so they are not errors.
    pub warnings: Vec<String>,
}

/// The node inside the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComputeSettings {
    /// `None`: as [`Settings::compute_runner`] says.
    pub runner: Option<ComputeRunner>,
    pub slots: usize,
    pub pool: String,
    /// Where processes have their directories. `None`: in the directory for temporary files.
    pub directory: Option<PathBuf>,
    /// The address of the container engine. `None`: the usual one.
    pub engine: Option<String>,
    pub network: Option<String>,
    /// A statically linked `towline` for containers.
    pub cli: Option<PathBuf>,
}

/// How the node inside the server runs programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComputeRunner {
    Off,
    Process,
    Container,
}

impl Default for ComputeSettings {
    fn default() -> ComputeSettings {
        let pool = towline_api::compute::POOL_DEFAULT.to_owned();
        ComputeSettings {
            runner: None,
            slots: 16,
            pool,
            directory: None,
            engine: None,
            network: None,
            cli: None,
        }
    }
}

/// Where queues and items are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreChoice {
    /// In the directory [`Settings::data`].
    Embedded,
    /// One database, or several as shards. `Debug` omits their passwords.
    Postgres(Vec<Address>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Pretty,
    Json,
}

impl Settings {
    #[must_use]
    pub fn tls_files(&self) -> Option<TlsFiles> {
        let (cert, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        Some(TlsFiles { cert, key })
    }

    /// Whether clients need tokens. They do if other machines can reach the server, unless `insecure` is set.
    #[must_use]
    pub fn requires_tokens(&self) -> bool {
        self.require_tokens || !self.listen.is_loopback() && !self.insecure
    }

    /// How the node inside the server runs programs. Without the setting it runs them as processes, unless other machines can
    /// reach the server.
    #[must_use]
    pub fn compute_runner(&self) -> ComputeRunner {
        let default = if self.listen.is_loopback() { ComputeRunner::Process } else { ComputeRunner::Off };
        self.compute.runner.unwrap_or(default)
    }

    /// Describes the store for logs and terminals, without secrets.
    #[must_use]
    pub fn store_description(&self) -> String {
        match &self.store {
            StoreChoice::Embedded => {
                std::path::absolute(&self.data).unwrap_or_else(|_| self.data.clone()).display().to_string()
            }
            StoreChoice::Postgres(addresses) => {
                let databases: Vec<String> = addresses.iter().map(display_address).collect();
                format!("PostgreSQL {}", databases.join(" and "))
            }
        }
    }
}

/// Describes a database without its password.
pub(crate) fn display_address(address: &Address) -> String {
    let config = &address.config;
    let host = |host: &Host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    };
    let hosts: Vec<String> = config.get_hosts().iter().map(host).collect();
    format!("{:?} at {}", config.get_dbname().unwrap_or_default(), hosts.join(", "))
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen: ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 7420))),
            data: PathBuf::from("towline-data"),
            store: StoreChoice::Embedded,
            store_migrate: true,
            durability: Durability::Sync,
            insecure: false,
            tls_cert: None,
            tls_key: None,
            require_tokens: false,
            hosts: Vec::new(),
            trusted_proxies: TrustedProxies::default(),
            auto_create_queues: false,
            audit_log: None,
            drain: Duration::from_secs(10),
            log: "info".to_owned(),
            log_format: LogFormat::Pretty,
            connections_max: 10_000,
            body_bytes_max: towline_api::BODY_BYTES_MAX,
            bodies_bytes_max: 512 << 20,
            buffers: BufferSettings::default(),
            adopt_buffers: false,
            offload: OffloadRule::default(),
            collection: CollectionRule::default(),
            traces: TraceSettings::default(),
            compute: ComputeSettings::default(),
            warnings: Vec::new(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{source_name}: unknown setting {name:?}; {remedy}")]
    Unknown { source_name: String, name: String, remedy: String },
    #[error("{source_name}: {name}{}: {why}", .value.as_ref().map(|value| format!(" = {value:?}")).unwrap_or_default())]
    Value { source_name: String, name: &'static str, value: Option<String>, why: String },
    #[error("cannot read {path}: {error}")]
    File { path: PathBuf, error: std::io::Error },
    #[error("{path}: {why}")]
    Toml { path: PathBuf, why: String },
    #[error("{given} is set but {missing} is not; set both")]
    HalfTls { given: &'static str, missing: &'static str },
    #[error(
        "other machines can reach {listen}, and TLS is not configured: give a certificate with --tls-cert and --tls-key (clients \
         then need tokens), or listen on 127.0.0.1, or use --insecure if the network is trusted"
    )]
    Exposed { listen: ListenAddress },
    #[error(
        "TLS is for connections over TCP: leave out tls_cert and tls_key, or listen on an address instead of {listen}"
    )]
    UnixTls { listen: ListenAddress },
    #[error("store: {database} is given twice; name each database once")]
    StoreTwice { database: String },
}

impl ConfigError {
    /// If the value may hold a secret, the message has neither the value nor what is wrong with it, but `help`.
    fn value(source_name: String, name: &'static str, value: &str, why: String, help: &str) -> ConfigError {
        let value = redact::shown(name, value);
        let hidden =
            || format!("the value is not valid; it is not shown, because it may contain a password. {help}");
        let why = if value.is_some() { why } else { hidden() };
        ConfigError::Value { source_name, name, value, why }
    }
}

impl Settings {
    /// Reads every source. `flags` are names of settings with their values.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &[(&str, String)],
    ) -> Result<Settings, ConfigError> {
        let environment: Vec<(String, String)> = environment.into_iter().collect();
        let (mut assignments, mut warnings) = (Vec::new(), Vec::new());
        match file {
            Some(path) => read_file(path, &mut assignments)?,
            None if Path::new(FILE_DEFAULT).exists() => {
                read_file(Path::new(FILE_DEFAULT), &mut assignments)?;
            }
            None => {}
        }
        for (variable, value) in &environment {
            let Some(name) = variable.strip_prefix(PREFIX) else { continue };
            let setting = name.to_ascii_lowercase();
            if Setting::find(&setting).is_some() {
                assignments.push(Assignment::new(variable, &setting, value)?);
            } else if !CLIENT_VARIABLES.contains(&variable.as_str()) && !is_service_link(name) {
                let remedy = Setting::suggestion(&setting);
                warnings.push(format!(
                    "the variable {variable} is ignored: there is no setting {setting:?}; {remedy}"
                ));
            }
        }
        for (name, value) in flags {
            assignments.push(Assignment::new(&format!("--{}", name.replace('_', "-")), name, value)?);
        }
        // In the order of the table, whatever the order in the environment: `store_password_file` needs `store`.
        assignments.sort_by_key(|assignment| assignment.position);
        let traces = TraceSettings::from_environment(&environment)?;
        let mut settings = Settings { traces, warnings, ..Settings::default() };
        for assignment in assignments {
            assignment.apply(&mut settings)?;
        }
        settings.check()?;
        Ok(settings)
    }

    fn set_store_password(&mut self, password: &str) -> Result<(), String> {
        let StoreChoice::Postgres(addresses) = &mut self.store else {
            return Err("it needs store = postgres://...".to_owned());
        };
        for address in addresses {
            address.config.password(password);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ConfigError> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(_), None) => return Err(ConfigError::HalfTls { given: "tls_cert", missing: "tls_key" }),
            (None, Some(_)) => return Err(ConfigError::HalfTls { given: "tls_key", missing: "tls_cert" }),
            _ => {}
        }
        if let StoreChoice::Postgres(addresses) = &self.store
            && let Some(twice) = (1..addresses.len()).find(|&at| addresses[..at].contains(&addresses[at]))
        {
            return Err(ConfigError::StoreTwice { database: display_address(&addresses[twice]) });
        }
        let listen = || self.listen.clone();
        match (&self.listen, self.tls_files()) {
            (ListenAddress::Unix(_), Some(_)) => Err(ConfigError::UnixTls { listen: listen() }),
            (address, None) if !address.is_loopback() && !self.insecure => {
                Err(ConfigError::Exposed { listen: listen() })
            }
            _ => Ok(()),
        }
    }
}

/// A value for a setting, and the source it came from.
struct Assignment {
    position: usize,
    setting: &'static Setting,
    source_name: String,
    value: String,
}

impl Assignment {
    fn new(source: &str, name: &str, value: &str) -> Result<Assignment, ConfigError> {
        let source_name = source.to_owned();
        let Some((position, setting)) = Setting::find(name) else {
            let remedy = Setting::suggestion(name);
            return Err(ConfigError::Unknown { source_name, name: name.to_owned(), remedy });
        };
        Ok(Assignment { position, setting, source_name, value: value.to_owned() })
    }

    fn apply(self, settings: &mut Settings) -> Result<(), ConfigError> {
        let Assignment { setting, source_name, value, .. } = self;
        (setting.set)(settings, &value)
            .map_err(|why| ConfigError::value(source_name, setting.name, &value, why, setting.help))
    }
}

fn read_file(path: &Path, assignments: &mut Vec<Assignment>) -> Result<(), ConfigError> {
    let text =
        std::fs::read_to_string(path).map_err(|error| ConfigError::File { path: path.to_owned(), error })?;
    let wrong = |why: String| ConfigError::Toml { path: path.to_owned(), why };
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // The whole error has the text of the line, which may hold a password.
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        wrong(format!("line {}: {}", before.lines().count().max(1), error.message()))
    })?;
    for (name, value) in table {
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(boolean) => boolean.to_string(),
            toml::Value::Array(values) => {
                let texts: Option<Vec<&str>> = values.iter().map(toml::Value::as_str).collect();
                texts.ok_or_else(|| wrong(format!("{name}: use strings in a list")))?.join(" ")
            }
            _ => return Err(wrong(format!("{name}: use a string, a number, true or false"))),
        };
        assignments.push(Assignment::new(&path.display().to_string(), &name, &value)?);
    }
    Ok(())
}

/// Kubernetes sets these variables in every pod for each service whose name begins with `towline`.
fn is_service_link(name: &str) -> bool {
    name.split('_').any(|part| part == "PORT" || part == "SERVICE")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(
        toml: &str,
        environment: &[(&str, &str)],
        flags: &[(&str, &str)],
    ) -> Result<Settings, ConfigError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("towline.toml");
        std::fs::write(&path, toml).unwrap();
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let flags: Vec<(&str, String)> =
            flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Settings::load(Some(&path), environment, &flags)
    }

    #[test]
    fn flags_override_the_environment_which_overrides_the_file() {
        let toml = "listen = \"127.0.0.1:1\"\ndata = \"here\"\ndrain = \"5s\"";
        let settings = load(
            toml,
            &[("TOWLINE_LISTEN", "127.0.0.1:2"), ("TOWLINE_DATA", "there")],
            &[("listen", "[::1]:3")],
        );
        let settings = settings.unwrap();
        assert_eq!(settings.listen, "[::1]:3".parse().unwrap());
        assert_eq!(settings.data, PathBuf::from("there"));
        assert_eq!(settings.drain, Duration::from_secs(5));
    }

    #[test]
    fn an_unknown_setting_is_rejected_with_a_suggestion() {
        for toml in ["durabilty = \"sync\"", "[durability]\na=1"] {
            let message = load(toml, &[], &[]).unwrap_err().to_string();
            assert!(message.contains("durability"), "{message}");
        }
        assert!(matches!(load("", &[], &[("durabilty", "sync")]), Err(ConfigError::Unknown { .. })));
    }

    #[test]
    fn an_unknown_variable_gives_a_warning_with_a_suggestion() {
        let settings = load("", &[("TOWLINE_DURABILTY", "sync"), ("TOWLINE_TEAM", "blue")], &[]).unwrap();
        let [durability, team] = &settings.warnings[..] else { panic!("{:?}", settings.warnings) };
        assert!(
            durability.contains("TOWLINE_DURABILTY") && durability.contains("did you mean \"durability\"")
        );
        assert!(team.contains("TOWLINE_TEAM"), "{team}");
        assert_eq!(settings, Settings { warnings: settings.warnings.clone(), ..Settings::default() });
    }

    #[test]
    fn a_port_alone_is_every_interface_and_localhost_is_loopback() {
        let listen =
            |value: &str| load("", &[], &[("listen", value), ("insecure", "true")]).map(|found| found.listen);
        for (value, address) in [
            (":7420", "0.0.0.0:7420"),
            ("localhost:1", "127.0.0.1:1"),
            ("[::1]:2", "[::1]:2"),
            ("1.2.3.4:5", "1.2.3.4:5"),
        ] {
            assert_eq!(listen(value).unwrap(), address.parse().unwrap());
        }
        for wrong in ["7420", ":", ":70000", "localhost", "localhost:x", "example.org:7420", "::1:7420", ""] {
            let message = listen(wrong).unwrap_err().to_string();
            assert!(message.contains("localhost:7420"), "{wrong}: {message}");
        }
        assert!(matches!(load("", &[], &[("listen", ":7420")]), Err(ConfigError::Exposed { .. })));
    }

    #[test]
    fn variables_of_clients_and_of_kubernetes_are_ignored() {
        let ignored = [
            ("TOWLINE_URL", "http://elsewhere"),
            ("TOWLINE_TOKEN", "secret"),
            ("TOWLINE_SERVICE_HOST", "10.0.0.1"),
            ("TOWLINE_PORT", "tcp://10.0.0.1:7420"),
            ("TOWLINE_PORT_7420_TCP_ADDR", "10.0.0.1"),
            ("TOWLINE_SERVICE_PORT_HTTP", "7420"),
            ("TOWLINE_WEB_SERVICE_HOST", "10.0.0.1"),
            ("TOWLINE_WEB_PORT", "tcp://10.0.0.1:80"),
            ("TOWLINE_WEB_PORT_80_TCP", "tcp://10.0.0.1:80"),
            ("HOME", "/root"),
        ];
        assert_eq!(load("", &ignored, &[]).unwrap(), Settings::default());
    }

    #[test]
    fn an_error_names_the_source_and_the_wrong_value() {
        for (name, value) in [
            ("listen", "somewhere"),
            ("listen", "unix:socket"),
            ("durability", "interval:0"),
            ("durability", "eventually"),
            ("drain", "10"),
            ("connections_max", "0"),
            ("insecure", "perhaps"),
            ("hosts", "https://queue.example"),
            ("hosts", "queue.example:7420"),
            ("trusted_proxies", "10.0.0.0/33"),
            ("trusted_proxies", "proxy.example"),
            ("log_format", "xml"),
            ("log", "??=!"),
            ("buffers", "s3://"),
            ("buffer_writer_timeout", "10ms"),
            ("offload_above", "much"),
            ("store", "mysql://here"),
            ("store_password_file", "/does/not/exist"),
            ("store_migrate", "perhaps"),
            ("offload_delayed_by", "10"),
            ("collection_interval", "1ms"),
            ("collection_grace", "0s"),
            ("s3_secret_access_key_file", "/does/not/exist"),
            ("s3_write_once", "never"),
            ("otlp_endpoint", "grpc://here"),
            ("otlp_headers_file", "/does/not/exist"),
            ("trace_sample", "2"),
        ] {
            let message = load("", &[], &[(name, value)]).unwrap_err().to_string();
            assert!(message.contains(&name.replace('_', "-")) && message.contains(value), "{message}");
        }
    }

    #[test]
    fn secrets_are_read_from_files_and_omitted_from_debug_output() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, "hush\n").unwrap();
        let settings = load("", &[], &[("s3_secret_access_key_file", path.to_str().unwrap())]).unwrap();
        assert_eq!(settings.buffers.secret_access_key, Some(towline_buffers::Secret::new("hush")));
        assert!(!format!("{settings:?}").contains("hush"));
    }

    #[test]
    fn the_collector_comes_from_otel_variables_or_from_settings() {
        let endpoint = |environment: &[(&str, &str)], flags: &[(&str, &str)]| {
            let settings = load("", environment, flags).unwrap();
            settings.traces.active_endpoint().map(str::to_owned)
        };
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/otlp/");
        assert_eq!(endpoint(&[], &[]), None);
        assert_eq!(endpoint(&[base], &[]).as_deref(), Some("http://collector:4318/otlp/v1/traces"));
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://there/spans");
        assert_eq!(endpoint(&[base, traces], &[]).as_deref(), Some("https://there/spans"));
        let own = ("otlp_endpoint", "http://[::1]:4318");
        assert_eq!(endpoint(&[base], &[own]).as_deref(), Some("http://[::1]:4318/v1/traces"));
        let own = ("otlp_endpoint", "http://here/spans");
        assert_eq!(endpoint(&[base], &[own]).as_deref(), Some("http://here/spans"));
        assert_eq!(endpoint(&[base, ("OTEL_SDK_DISABLED", "True")], &[own]), None);
        assert_eq!(endpoint(&[base, ("OTEL_TRACES_EXPORTER", "none")], &[]), None);
        assert_eq!(endpoint(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], &[]), None);
        for wrong in
            [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "there")]
        {
            let message = load("", &[base, wrong], &[]).unwrap_err().to_string();
            assert!(message.contains(wrong.0) && message.contains(wrong.1), "{message}");
        }
        assert_eq!(load("trace_sample = \"0.25\"", &[], &[]).unwrap().traces.sample_ppm, Some(250_000));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("headers");
        std::fs::write(&path, "authorization: Bearer hush\n\nx-team: a: b\n").unwrap();
        let settings = load("", &[], &[("otlp_headers_file", path.to_str().unwrap())]).unwrap();
        let header = |name: &str, value: &str| (name.to_owned(), towline_api::Secret(value.to_owned()));
        assert_eq!(
            settings.traces.headers,
            [header("authorization", "Bearer hush"), header("x-team", "a: b")]
        );
        assert!(!format!("{settings:?}").contains("hush"));
    }

    #[test]
    fn a_password_file_is_applied_after_the_store_of_any_source() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        std::fs::write(&path, "hush").unwrap();
        let password = ("TOWLINE_STORE_PASSWORD_FILE", path.to_str().unwrap());
        let store = "postgres://user@host/database";
        for settings in [
            load("", &[password, ("TOWLINE_STORE", store)], &[]).unwrap(),
            load("", &[password], &[("store", store)]).unwrap(),
        ] {
            let StoreChoice::Postgres(addresses) = settings.store else { panic!() };
            assert_eq!(addresses[0].config.get_password(), Some(&b"hush"[..]));
        }
    }

    #[test]
    fn a_certificate_without_a_key_is_rejected() {
        assert!(matches!(load("tls_cert = \"c\"", &[], &[]), Err(ConfigError::HalfTls { .. })));
        assert!(matches!(load("", &[("TOWLINE_TLS_KEY", "k")], &[]), Err(ConfigError::HalfTls { .. })));
        let both = load("tls_cert = \"c\"", &[], &[("tls_key", "k")]).unwrap();
        assert_eq!(both.tls_files(), Some(TlsFiles { cert: "c".into(), key: "k".into() }));
    }

    #[test]
    fn a_public_address_needs_tls_or_the_insecure_setting() {
        assert!(matches!(load("listen = \"0.0.0.0:7420\"", &[], &[]), Err(ConfigError::Exposed { .. })));
        let insecure = load("listen = \"0.0.0.0:7420\"\ninsecure = true", &[], &[]).unwrap();
        assert!(!insecure.requires_tokens());
        let files = "tls_cert = \"c\"\ntls_key = \"k\"\n";
        assert!(load(&format!("{files}listen = \"[::]:1\""), &[], &[]).unwrap().requires_tokens());
        let behind_a_proxy = [("insecure", "true"), ("require_tokens", "true")];
        assert!(load("listen = \"0.0.0.0:7420\"", &[], &behind_a_proxy).unwrap().requires_tokens());
        assert!(!load(files, &[], &[]).unwrap().requires_tokens());
        assert!(load("", &[("TOWLINE_REQUIRE_TOKENS", "true")], &[]).unwrap().requires_tokens());
    }
}
