//! What can be configured.

use super::{LogFormat, Settings, StoreChoice, shown, traces};
use std::str::FromStr;
use std::time::Duration;
use towline_buffers::{BufferError, Secret, WriteOnce};
use towline_domain::Millis;
use towline_embedded::Durability;
use towline_postgres::{Address, AddressError};
use tracing_subscriber::EnvFilter;

#[derive(Debug)]
pub struct Key {
    /// In a file as it is, in the environment in capitals after `TOWLINE_`, as a flag with `-` for `_`.
    pub name: &'static str,
    pub help: &'static str,
    pub(super) set: fn(&mut Settings, &str) -> Result<(), String>,
}

pub const KEYS: &[Key] = &[
    Key {
        name: "listen",
        help: "address and port to listen on (127.0.0.1:7420)",
        set: |settings, value| {
            let address = value.parse().map_err(|_| "use an address and a port, like 127.0.0.1:7420")?;
            settings.listen = address;
            Ok(())
        },
    },
    Key {
        name: "data",
        help: "directory of the store (towline-data)",
        set: |settings, value| {
            if value.is_empty() {
                return Err("name a directory".to_owned());
            }
            settings.data = value.into();
            Ok(())
        },
    },
    Key {
        name: "store",
        help: "where queues and items are: embedded, or postgres://user@host/database, several with spaces between them (embedded)",
        set: |settings, value| {
            if value == "embedded" {
                settings.store = StoreChoice::Embedded;
                return Ok(());
            }
            let mut addresses: Vec<Address> = Vec::new();
            for url in value.split_whitespace() {
                if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
                    return Err("use embedded, or postgres://user@host/database".to_owned());
                }
                let address =
                    url.parse().map_err(|error: AddressError| format!("not an address: {error}"))?;
                if addresses.contains(&address) {
                    return Err(format!("{} is there twice", shown(&address)));
                }
                addresses.push(address);
            }
            if addresses.is_empty() {
                return Err("use embedded, or postgres://user@host/database".to_owned());
            }
            settings.store = StoreChoice::Postgres(addresses);
            Ok(())
        },
    },
    Key {
        name: "store_password_file",
        help: "a file with the password of the database, instead of one in its address; after `store`",
        set: |settings, value| {
            let StoreChoice::Postgres(addresses) = &mut settings.store else {
                return Err("it goes with store = postgres://...".to_owned());
            };
            let password = read_secret(value)?;
            for address in addresses {
                address.config.password(&password);
            }
            Ok(())
        },
    },
    Key {
        name: "store_migrate",
        help: "bring the schema of the database up to date at the start; false leaves that to `towline migrate` (true)",
        set: |settings, value| {
            settings.store_migrate = value.parse().map_err(|_| "use true or false")?;
            Ok(())
        },
    },
    Key {
        name: "durability",
        help: "when work is acknowledged: sync (on disk), or interval:<ms> (in the operating system, on disk within so many ms)",
        set: |settings, value| {
            settings.durability = durability(value)?;
            Ok(())
        },
    },
    Key {
        name: "insecure",
        help: "allow an address that other machines can reach, without encryption and, unless they are required, tokens (false)",
        set: |settings, value| {
            settings.insecure = value.parse().map_err(|_| "use true or false")?;
            Ok(())
        },
    },
    Key {
        name: "tls_cert",
        help: "a file with the certificate, and those that lead to its authority, in PEM; read anew on SIGHUP",
        set: |settings, value| {
            settings.tls_cert = Some(value.into());
            Ok(())
        },
    },
    Key {
        name: "tls_key",
        help: "a file with its key, in PEM",
        set: |settings, value| {
            settings.tls_key = Some(value.into());
            Ok(())
        },
    },
    Key {
        name: "require_tokens",
        help: "ask callers for tokens on loopback, or behind a proxy, too; elsewhere they are always asked (false)",
        set: |settings, value| {
            settings.require_tokens = value.parse().map_err(|_| "use true or false")?;
            Ok(())
        },
    },
    Key {
        name: "audit_log",
        help: "a file that tells of administrative acts, a line of JSON each; opened anew on SIGHUP (the log)",
        set: |settings, value| {
            settings.audit_log = Some(value.into());
            Ok(())
        },
    },
    Key {
        name: "drain",
        help: "how long stopping may take before connections are cut (10s)",
        set: |settings, value| {
            let span = Millis::parse(value).map_err(|error| error.to_string())?;
            settings.drain = Duration::from_millis(span.0);
            Ok(())
        },
    },
    Key {
        name: "log",
        help: "what is logged: error, warn, info, debug, trace, or a filter like info,towline_server=debug (info)",
        set: |settings, value| {
            EnvFilter::from_str(value).map_err(|error| error.to_string())?;
            settings.log = value.to_owned();
            Ok(())
        },
    },
    Key {
        name: "log_format",
        help: "pretty or json (pretty)",
        set: |settings, value| {
            settings.log_format = match value {
                "pretty" => LogFormat::Pretty,
                "json" => LogFormat::Json,
                _ => return Err("use pretty or json".to_owned()),
            };
            Ok(())
        },
    },
    Key {
        name: "otlp_endpoint",
        help: "a collector that takes spans by OTLP over HTTP, like http://host:4318 (OTEL_EXPORTER_OTLP_ENDPOINT, else none are made)",
        set: |settings, value| {
            settings.traces.endpoint = Some(traces::endpoint(value)?);
            Ok(())
        },
    },
    Key {
        name: "otlp_headers_file",
        help: "a file with headers for it, a line each, like authorization: Bearer ... (OTEL_EXPORTER_OTLP_HEADERS)",
        set: |settings, value| {
            settings.traces.headers = traces::headers(&read_secret(value)?)?;
            Ok(())
        },
    },
    Key {
        name: "trace_sample",
        help: "which share of the traces that begin here is recorded, 0 to 1 (OTEL_TRACES_SAMPLER, else 1)",
        set: |settings, value| {
            settings.traces.sample_ppm = Some(traces::sample(value)?);
            Ok(())
        },
    },
    Key {
        name: "connections_max",
        help: "connections at one time; more wait to be accepted (10000)",
        set: |settings, value| {
            settings.connections_max = number(value, 1, 1_000_000)?;
            Ok(())
        },
    },
    Key {
        name: "body_bytes_max",
        help: "bytes of the body of one request (67108864)",
        set: |settings, value| {
            settings.body_bytes_max = number(value, 1024, 1 << 30)?;
            Ok(())
        },
    },
    Key {
        name: "bodies_bytes_max",
        help: "bytes of all request bodies held at one time; more are told to come back (536870912)",
        set: |settings, value| {
            settings.bodies_bytes_max = number(value, 1 << 20, 1 << 40)?;
            Ok(())
        },
    },
    Key {
        name: "buffers",
        help: "where buffers are: a directory, or s3://bucket/prefix (buffers in the directory of the store)",
        set: |settings, value| {
            settings.buffers.location = Some(value.parse().map_err(|error: BufferError| error.to_string())?);
            Ok(())
        },
    },
    Key {
        name: "buffer_writer_timeout",
        help: "a writer of a buffer that is silent for so long has vanished, and its buffer failed (60s)",
        set: |settings, value| {
            settings.buffers.writer_timeout = span(value, Millis::seconds(1), Millis::days(7))?;
            Ok(())
        },
    },
    Key {
        name: "offload_above",
        help: "payload fields of more bytes than this are kept where buffers are (65536)",
        set: |settings, value| {
            settings.offload.above = number(value, 0, 1 << 30)?;
            Ok(())
        },
    },
    Key {
        name: "offload_delayed_by",
        help: "payload fields of more than 4096 bytes are, too, if the item is delayed by so long (1d)",
        set: |settings, value| {
            settings.offload.delayed_by = span(value, Millis::ZERO, Millis::MAX)?;
            Ok(())
        },
    },
    Key {
        name: "collection_interval",
        help: "how often what no item names is looked for where buffers are (60s)",
        set: |settings, value| {
            let span = span(value, Millis(100), Millis::days(30))?;
            settings.collection.every = Duration::from_millis(span.0);
            Ok(())
        },
    },
    Key {
        name: "collection_grace",
        help: "how long it is left alone, because an item may be about to name it (10m)",
        set: |settings, value| {
            settings.collection.grace = span(value, Millis::seconds(1), Millis::days(30))?;
            Ok(())
        },
    },
    Key {
        name: "s3_endpoint",
        help: "address of an S3-compatible service, like https://host:9000 (AWS_ENDPOINT_URL, else AWS itself)",
        set: |settings, value| {
            settings.buffers.endpoint = Some(value.to_owned());
            Ok(())
        },
    },
    Key {
        name: "s3_region",
        help: "its region (AWS_REGION)",
        set: |settings, value| {
            settings.buffers.region = Some(value.to_owned());
            Ok(())
        },
    },
    Key {
        name: "s3_access_key_id",
        help: "who asks (AWS_ACCESS_KEY_ID)",
        set: |settings, value| {
            settings.buffers.access_key_id = Some(value.to_owned());
            Ok(())
        },
    },
    Key {
        name: "s3_secret_access_key_file",
        help: "a file with the secret that belongs to it (AWS_SECRET_ACCESS_KEY)",
        set: |settings, value| {
            settings.buffers.secret_access_key = Some(secret(value)?);
            Ok(())
        },
    },
    Key {
        name: "s3_session_token_file",
        help: "a file with the token of a session, if there is one (AWS_SESSION_TOKEN)",
        set: |settings, value| {
            settings.buffers.session_token = Some(secret(value)?);
            Ok(())
        },
    },
    Key {
        name: "s3_virtual_hosted",
        help: "the bucket as a part of the host name instead of the path (false)",
        set: |settings, value| {
            settings.buffers.virtual_hosted = value.parse().map_err(|_| "use true or false")?;
            Ok(())
        },
    },
    Key {
        name: "s3_write_once",
        help: "who refuses to write an object twice: service, or process for services that cannot and one server (service)",
        set: |settings, value| {
            settings.buffers.write_once = match value {
                "service" => WriteOnce::ByService,
                "process" => WriteOnce::ByProcess,
                _ => return Err("use service or process".to_owned()),
            };
            Ok(())
        },
    },
];

/// From a file: a secret on a command line or in a file of settings is seen by too many.
fn read_secret(path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read it: {error}"))?;
    match text.trim() {
        "" => Err("it is empty".to_owned()),
        secret => Ok(secret.to_owned()),
    }
}

fn secret(path: &str) -> Result<Secret, String> {
    Ok(Secret::new(read_secret(path)?))
}

fn span(value: &str, min: Millis, max: Millis) -> Result<Millis, String> {
    let span = Millis::parse(value).map_err(|error| error.to_string())?;
    if (min..=max).contains(&span) { Ok(span) } else { Err(format!("use {min} to {max}")) }
}

fn number(value: &str, min: usize, max: usize) -> Result<usize, String> {
    match value.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("use a number from {min} to {max}")),
    }
}

fn durability(value: &str) -> Result<Durability, String> {
    let remedy = "use sync, or interval:<milliseconds> with 1 to 60000";
    match value.split_once(':') {
        None if value == "sync" => Ok(Durability::Sync),
        Some(("interval", ms)) => match ms.parse() {
            Ok(ms @ 1..=60_000) => Ok(Durability::Interval(Duration::from_millis(ms))),
            _ => Err(remedy.to_owned()),
        },
        _ => Err(remedy.to_owned()),
    }
}

/// What somebody who wrote `name` may have meant.
pub(super) fn nearest(name: &str) -> String {
    let distance = |key: &&Key| strsim::damerau_levenshtein(key.name, name);
    match KEYS.iter().min_by_key(distance).filter(|key| distance(key) <= 1 + name.len() / 3) {
        Some(key) => format!("did you mean {:?}?", key.name),
        None => {
            let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
            format!("there are: {}", names.join(", "))
        }
    }
}
