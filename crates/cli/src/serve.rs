//! `towline serve`: runs a server and prints its address.

use crate::output;
use anyhow::Context;
use clap::Args;
use std::fmt::Write;
use std::path::PathBuf;
use towline_server::{Server, Settings, logging};

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Configuration file [default: towline.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port to listen on [default: 127.0.0.1:7420]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Directory of the embedded store [default: towline-data]
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<String>,
    /// The store: `embedded`, or postgres://user@host/database. Repeat a database for each shard [default:
    /// embedded]
    #[arg(long, value_name = "PLACE")]
    store: Vec<String>,
    /// File with the password of the database
    #[arg(long, value_name = "PATH")]
    store_password_file: Option<String>,
    /// Do not migrate the schema of the database. Run `towline migrate` instead
    #[arg(long)]
    no_migrate: bool,
    /// When a write is acknowledged: `sync` (when it is on disk) or `interval:<ms>` (before; it is on disk
    /// within this many milliseconds) [default: sync]
    #[arg(long, value_name = "POLICY")]
    durability: Option<String>,
    /// Allow other machines to connect without encryption and, unless --require-tokens is given, without
    /// tokens
    #[arg(long)]
    insecure: bool,
    /// PEM file with the server's certificate chain. SIGHUP reloads it
    #[arg(long, value_name = "PATH")]
    tls_cert: Option<String>,
    /// PEM file with the key of the certificate
    #[arg(long, value_name = "PATH")]
    tls_key: Option<String>,
    /// Require tokens on loopback and behind a proxy, too
    #[arg(long)]
    require_tokens: bool,
    /// File for the audit log, one JSON object per line [default: the server's log]
    #[arg(long, value_name = "PATH")]
    audit_log: Option<String>,
    /// How long a stopping server waits for open connections [default: 10s]
    #[arg(long, value_name = "DURATION")]
    drain: Option<String>,
    /// Log level: error, warn, info, debug or trace, or a filter [default: info]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Log format: pretty or json [default: pretty]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Send traces to this OTLP/HTTP collector, for example http://host:4318 [default:
    /// OTEL_EXPORTER_OTLP_ENDPOINT; without it, tracing is disabled]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// File with headers for the collector, one per line, for example `authorization: Bearer ...` [default:
    /// OTEL_EXPORTER_OTLP_HEADERS]
    #[arg(long, value_name = "PATH")]
    otlp_headers_file: Option<String>,
    /// Share of traces to record, 0 to 1 [default: OTEL_TRACES_SAMPLER, else 1]
    #[arg(long, value_name = "SHARE")]
    trace_sample: Option<String>,
    /// Maximum number of connections [default: 10000]
    #[arg(long, value_name = "COUNT")]
    connections_max: Option<String>,
    /// Maximum size of a request body in bytes [default: 67108864]
    #[arg(long, value_name = "BYTES")]
    body_bytes_max: Option<String>,
    /// Maximum size of all request bodies in memory in bytes [default: 536870912]
    #[arg(long, value_name = "BYTES")]
    bodies_bytes_max: Option<String>,
    /// Storage of buffers: a directory, or s3://bucket/prefix [default: `buffers` in the data directory]
    #[arg(long, value_name = "PLACE")]
    buffers: Option<String>,
    /// Fail a buffer whose writer is silent for this long [default: 60s]
    #[arg(long, value_name = "DURATION")]
    buffer_writer_timeout: Option<String>,
    /// Offload payload fields larger than this many bytes to the storage of buffers [default: 65536]
    #[arg(long, value_name = "BYTES")]
    offload_above: Option<String>,
    /// Offload payload fields larger than 4096 bytes of items that are delayed by at least this [default: 1d]
    #[arg(long, value_name = "DURATION")]
    offload_delayed_by: Option<String>,
    /// How often to delete unused objects from the storage of buffers [default: 60s]
    #[arg(long, value_name = "DURATION")]
    collection_interval: Option<String>,
    /// Keep unused objects for this long, because a submit may still refer to them [default: 10m]
    #[arg(long, value_name = "DURATION")]
    collection_grace: Option<String>,
    /// Address of an S3-compatible service [default: AWS_ENDPOINT_URL, else AWS]
    #[arg(long, value_name = "URL")]
    s3_endpoint: Option<String>,
    /// Region of the S3 service [default: AWS_REGION]
    #[arg(long, value_name = "REGION")]
    s3_region: Option<String>,
    /// Access key id of the S3 service [default: AWS_ACCESS_KEY_ID]
    #[arg(long, value_name = "ID")]
    s3_access_key_id: Option<String>,
    /// File with the secret access key of the S3 service [default: AWS_SECRET_ACCESS_KEY]
    // No flag takes the secret itself: every user of the machine can read a command line.
    #[arg(long, value_name = "PATH")]
    s3_secret_access_key_file: Option<String>,
    /// File with a session token of the S3 service [default: AWS_SESSION_TOKEN]
    #[arg(long, value_name = "PATH")]
    s3_session_token_file: Option<String>,
    /// Put the bucket into the host name instead of the path
    #[arg(long)]
    s3_virtual_hosted: bool,
    /// Who prevents overwriting of an object: service or process [default: service]
    #[arg(long, value_name = "WHO")]
    s3_write_once: Option<String>,
}

impl ServeArgs {
    fn flags(&self) -> Vec<(&'static str, String)> {
        let given = [
            ("listen", &self.listen),
            ("data", &self.data),
            ("store", &several(&self.store)),
            ("store_password_file", &self.store_password_file),
            ("durability", &self.durability),
            ("tls_cert", &self.tls_cert),
            ("tls_key", &self.tls_key),
            ("audit_log", &self.audit_log),
            ("drain", &self.drain),
            ("log", &self.log),
            ("log_format", &self.log_format),
            ("otlp_endpoint", &self.otlp_endpoint),
            ("otlp_headers_file", &self.otlp_headers_file),
            ("trace_sample", &self.trace_sample),
            ("connections_max", &self.connections_max),
            ("body_bytes_max", &self.body_bytes_max),
            ("bodies_bytes_max", &self.bodies_bytes_max),
            ("buffers", &self.buffers),
            ("buffer_writer_timeout", &self.buffer_writer_timeout),
            ("offload_above", &self.offload_above),
            ("offload_delayed_by", &self.offload_delayed_by),
            ("collection_interval", &self.collection_interval),
            ("collection_grace", &self.collection_grace),
            ("s3_endpoint", &self.s3_endpoint),
            ("s3_region", &self.s3_region),
            ("s3_access_key_id", &self.s3_access_key_id),
            ("s3_secret_access_key_file", &self.s3_secret_access_key_file),
            ("s3_session_token_file", &self.s3_session_token_file),
            ("s3_write_once", &self.s3_write_once),
        ];
        let mut flags: Vec<_> =
            given.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
        for (name, given) in [
            ("insecure", self.insecure),
            ("require_tokens", self.require_tokens),
            ("s3_virtual_hosted", self.s3_virtual_hosted),
        ] {
            flags.extend(given.then(|| (name, "true".to_owned())));
        }
        flags.extend(self.no_migrate.then(|| ("store_migrate", "false".to_owned())));
        flags
    }
}

/// Joins the values of a repeatable flag.
pub fn several(given: &[String]) -> Option<String> {
    (!given.is_empty()).then(|| given.join(" "))
}

/// The environment. Ignores variables that are not text.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

pub fn run(args: ServeArgs) -> anyhow::Result<()> {
    let settings = Settings::load(args.config.as_deref(), environment(), &args.flags())?;
    logging::start(&settings);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        // In a task, because opening the store may block its thread.
        tokio::spawn(async move {
            let server = Server::open(settings).await?;
            greet(&server);
            server.run().await
        })
        .await
    })??;
    Ok(())
}

/// Prints the address (first line, for scripts), the data directory, and commands to try.
fn greet(server: &Server) {
    let data = server.settings().store_shown();
    let program = std::env::args().next().unwrap_or_else(|| "towline".to_owned());
    let url = server.url();
    let default = url == format!("http://{}", towline_api::ADDRESS_DEFAULT);
    let elsewhere = if default { String::new() } else { format!("TOWLINE_URL={url} ") };
    let mut words = format!("listening on {url}\ndata in {data}\n");
    words.push_str("try, in another terminal:\n");
    for command in ["queue create jobs", "queue submit jobs --payload hello", "queue receive jobs"] {
        let _ = writeln!(words, "  {elsewhere}{program} {command}");
    }
    // The server runs even if stdout is closed.
    let _ = output::text(&words);
}
