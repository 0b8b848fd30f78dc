//! Configuration: defaults, then `towline.toml`, then `TOWLINE_*` in the environment, then flags.
//!
//! [`KEYS`] is the one table of what can be configured; every source goes through it.

mod buffers;
mod keys;
mod traces;

pub use buffers::BufferSettings;
pub use keys::{KEYS, Key};
pub use traces::TraceSettings;

use crate::tls::TlsFiles;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_postgres::config::Host;
use towline_broker::{CollectionRule, OffloadRule};
use towline_embedded::Durability;
use towline_postgres::Address;

/// Read from the working directory if it is there and no other file is named.
pub const FILE_DEFAULT: &str = "towline.toml";
/// What the names of environment variables begin with.
const PREFIX: &str = "TOWLINE_";
/// Variables of Towline that are not for the server.
const CLIENT_VARIABLES: [&str; 4] = ["TOWLINE_URL", "TOWLINE_TOKEN", "TOWLINE_TOKEN_FILE", "TOWLINE_CA_FILE"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub listen: SocketAddr,
    pub data: PathBuf,
    pub store: StoreChoice,
    /// Bring the schema of the database up to date at the start.
    pub store_migrate: bool,
    pub durability: Durability,
    /// Allow other addresses than loopback although nothing is encrypted and nobody is asked for a token.
    pub insecure: bool,
    /// Both or neither.
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    /// Ask for tokens on loopback, too.
    pub require_tokens: bool,
    /// Where administrative acts are told; without, in the log.
    pub audit_log: Option<PathBuf>,
    /// How long stopping may take before connections are cut.
    pub drain: Duration,
    pub log: String,
    pub log_format: LogFormat,
    pub connections_max: usize,
    pub body_bytes_max: usize,
    /// Bytes of request bodies held at one time.
    pub bodies_bytes_max: usize,
    pub buffers: BufferSettings,
    pub offload: OffloadRule,
    pub collection: CollectionRule,
    pub traces: TraceSettings,
}

/// Where queues and items are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreChoice {
    /// In the directory [`Settings::data`].
    Embedded,
    /// One database or several, which are its shards. Their `Debug` leaves passwords out.
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

    /// Whether callers are asked for tokens: always if other machines can reach the server, unless it is said to be
    /// insecure.
    #[must_use]
    pub fn asks_for_tokens(&self) -> bool {
        self.require_tokens || !self.listen.ip().is_loopback() && !self.insecure
    }

    /// Where queues and items are, for people; no secrets.
    #[must_use]
    pub fn store_shown(&self) -> String {
        match &self.store {
            StoreChoice::Embedded => {
                std::path::absolute(&self.data).unwrap_or_else(|_| self.data.clone()).display().to_string()
            }
            StoreChoice::Postgres(addresses) => {
                let shown: Vec<String> = addresses.iter().map(shown).collect();
                format!("PostgreSQL {}", shown.join(" and "))
            }
        }
    }
}

/// A database, for people; no secrets.
pub(crate) fn shown(address: &Address) -> String {
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
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
            data: PathBuf::from("towline-data"),
            store: StoreChoice::Embedded,
            store_migrate: true,
            durability: Durability::Sync,
            insecure: false,
            tls_cert: None,
            tls_key: None,
            require_tokens: false,
            audit_log: None,
            drain: Duration::from_secs(10),
            log: "info".to_owned(),
            log_format: LogFormat::Pretty,
            connections_max: 10_000,
            body_bytes_max: towline_api::BODY_BYTES_MAX,
            bodies_bytes_max: 512 << 20,
            buffers: BufferSettings::default(),
            offload: OffloadRule::default(),
            collection: CollectionRule::default(),
            traces: TraceSettings::default(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{source_name}: there is no setting {name:?}; {remedy}")]
    Unknown { source_name: String, name: String, remedy: String },
    #[error("{source_name}: {name} = {value:?}: {why}")]
    Value { source_name: String, name: &'static str, value: String, why: String },
    #[error("cannot read {path}: {error}")]
    File { path: PathBuf, error: std::io::Error },
    #[error("{path}: {why}")]
    Toml { path: PathBuf, why: String },
    #[error("{given} goes with {missing}; name both files")]
    HalfTls { given: &'static str, missing: &'static str },
    #[error(
        "{listen} can be reached from other machines, and nothing is encrypted: name a certificate with --tls-cert and \
         --tls-key (callers are asked for tokens then), or listen on 127.0.0.1, or say --insecure if the network around it is trusted"
    )]
    Exposed { listen: SocketAddr },
}

impl Settings {
    /// Reads every source. `flags` are names of settings with their values.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &[(&str, String)],
    ) -> Result<Settings, ConfigError> {
        let environment: Vec<(String, String)> = environment.into_iter().collect();
        let traces = TraceSettings::of(&environment).map_err(|(name, why)| {
            let value = environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
            let (source_name, value) = ("the environment".to_owned(), value.unwrap_or_default());
            ConfigError::Value { source_name, name, value, why }
        })?;
        let mut settings = Settings { traces, ..Settings::default() };
        match file {
            Some(path) => settings.read_file(path)?,
            None if Path::new(FILE_DEFAULT).exists() => settings.read_file(Path::new(FILE_DEFAULT))?,
            None => {}
        }
        for (name, value) in environment {
            let Some(key) = name.strip_prefix(PREFIX) else { continue };
            if CLIENT_VARIABLES.contains(&name.as_str()) || is_service_link(key) {
                continue;
            }
            settings.set(&name, &key.to_ascii_lowercase(), &value)?;
        }
        for (name, value) in flags {
            settings.set(&format!("--{}", name.replace('_', "-")), name, value)?;
        }
        settings.check()?;
        Ok(settings)
    }

    fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::File { path: path.to_owned(), error })?;
        let wrong = |why: String| ConfigError::Toml { path: path.to_owned(), why };
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| wrong(error.to_string()))?;
        for (name, value) in table {
            let value = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Boolean(yes) => yes.to_string(),
                toml::Value::Array(several) => {
                    let texts: Option<Vec<&str>> = several.iter().map(toml::Value::as_str).collect();
                    texts.ok_or_else(|| wrong(format!("{name}: use strings in a list")))?.join(" ")
                }
                _ => return Err(wrong(format!("{name}: use a string, a number, true or false"))),
            };
            self.set(&path.display().to_string(), &name, &value)?;
        }
        Ok(())
    }

    fn set(&mut self, source: &str, name: &str, value: &str) -> Result<(), ConfigError> {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let remedy = keys::nearest(name);
            return Err(ConfigError::Unknown {
                source_name: source.to_owned(),
                name: name.to_owned(),
                remedy,
            });
        };
        (key.set)(self, value).map_err(|why| ConfigError::Value {
            source_name: source.to_owned(),
            name: key.name,
            value: value.chars().take(100).collect(),
            why,
        })
    }

    fn check(&self) -> Result<(), ConfigError> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(_), None) => return Err(ConfigError::HalfTls { given: "tls_cert", missing: "tls_key" }),
            (None, Some(_)) => return Err(ConfigError::HalfTls { given: "tls_key", missing: "tls_cert" }),
            _ => {}
        }
        if !self.listen.ip().is_loopback() && !self.insecure && self.tls_files().is_none() {
            return Err(ConfigError::Exposed { listen: self.listen });
        }
        Ok(())
    }
}

/// Kubernetes sets such variables for a service that is named `towline`.
fn is_service_link(key: &str) -> bool {
    key == "PORT" || key.starts_with("PORT_") || key.starts_with("SERVICE_")
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
    fn a_flag_beats_the_environment_which_beats_the_file() {
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
    fn an_unknown_name_is_refused_and_the_nearest_is_named() {
        for (toml, environment) in [
            ("durabilty = \"sync\"", &[][..]),
            ("", &[("TOWLINE_DURABILTY", "sync")]),
            ("[durability]\na=1", &[]),
        ] {
            let message = load(toml, environment, &[]).unwrap_err().to_string();
            assert!(message.contains("durability"), "{message}");
        }
    }

    #[test]
    fn variables_that_are_not_the_servers_are_left_alone() {
        let others = [
            ("TOWLINE_URL", "http://elsewhere"),
            ("TOWLINE_TOKEN", "secret"),
            ("TOWLINE_SERVICE_HOST", "10.0.0.1"),
            ("TOWLINE_PORT", "tcp://10.0.0.1:7420"),
            ("TOWLINE_PORT_7420_TCP_ADDR", "10.0.0.1"),
            ("HOME", "/root"),
        ];
        assert_eq!(load("", &others, &[]).unwrap(), Settings::default());
    }

    #[test]
    fn a_wrong_value_is_named_with_its_source() {
        for (name, value) in [
            ("listen", "somewhere"),
            ("durability", "interval:0"),
            ("durability", "eventually"),
            ("drain", "10"),
            ("connections_max", "0"),
            ("insecure", "perhaps"),
            ("log_format", "xml"),
            ("log", "??=!"),
            ("buffers", "s3://"),
            ("buffer_writer_timeout", "10ms"),
            ("offload_above", "much"),
            ("store", "mysql://here"),
            ("store", "postgres://?nonsense=1"),
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
    fn secrets_come_from_files_and_are_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, "hush\n").unwrap();
        let settings = load("", &[], &[("s3_secret_access_key_file", path.to_str().unwrap())]).unwrap();
        assert_eq!(settings.buffers.secret_access_key, Some(towline_buffers::Secret::new("hush")));
        assert!(!format!("{settings:?}").contains("hush"));
    }

    #[test]
    fn where_spans_go_is_said_in_the_usual_words_or_in_our_own() {
        let endpoint = |environment: &[(&str, &str)], flags: &[(&str, &str)]| {
            let settings = load("", environment, flags).unwrap();
            settings.traces.wanted().map(str::to_owned)
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
        let known = |name: &str, value: &str| (name.to_owned(), towline_api::Secret(value.to_owned()));
        assert_eq!(settings.traces.headers, [known("authorization", "Bearer hush"), known("x-team", "a: b")]);
        assert!(!format!("{settings:?}").contains("hush"));
    }

    #[test]
    fn a_certificate_needs_its_key() {
        assert!(matches!(load("tls_cert = \"c\"", &[], &[]), Err(ConfigError::HalfTls { .. })));
        assert!(matches!(load("", &[("TOWLINE_TLS_KEY", "k")], &[]), Err(ConfigError::HalfTls { .. })));
        let both = load("tls_cert = \"c\"", &[], &[("tls_key", "k")]).unwrap();
        assert_eq!(both.tls_files(), Some(TlsFiles { cert: "c".into(), key: "k".into() }));
    }

    #[test]
    fn an_address_others_can_reach_needs_a_word() {
        assert!(matches!(load("listen = \"0.0.0.0:7420\"", &[], &[]), Err(ConfigError::Exposed { .. })));
        let insecure = load("listen = \"0.0.0.0:7420\"\ninsecure = true", &[], &[]).unwrap();
        assert!(!insecure.asks_for_tokens());
        let files = "tls_cert = \"c\"\ntls_key = \"k\"\n";
        assert!(load(&format!("{files}listen = \"[::]:1\""), &[], &[]).unwrap().asks_for_tokens());
        let behind_a_proxy = [("insecure", "true"), ("require_tokens", "true")];
        assert!(load("listen = \"0.0.0.0:7420\"", &[], &behind_a_proxy).unwrap().asks_for_tokens());
        assert!(!load(files, &[], &[]).unwrap().asks_for_tokens());
        assert!(load("", &[("TOWLINE_REQUIRE_TOKENS", "true")], &[]).unwrap().asks_for_tokens());
    }
}
