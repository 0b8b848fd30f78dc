//! `towline serve`: the server, from flags to the words it begins with.

use crate::output;
use anyhow::Context;
use clap::Args;
use std::fmt::Write;
use std::path::PathBuf;
use towline_server::{Server, Settings, logging};

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// A configuration file; towline.toml is read if it is there
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port to listen on [default: 127.0.0.1:7420]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Directory of the store [default: towline-data]
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<String>,
    /// Where queues and items are: `embedded`, or postgres://user@host/database; several of these are shards [default:
    /// embedded]
    #[arg(long, value_name = "PLACE")]
    store: Vec<String>,
    /// A file with the password of the database
    #[arg(long, value_name = "PATH")]
    store_password_file: Option<String>,
    /// Leave the schema of the database as it is: `towline migrate` brings it up to date
    #[arg(long)]
    no_migrate: bool,
    /// When work is acknowledged: `sync` (on disk) or `interval:<ms>` (in the operating system, on disk within so many
    /// milliseconds) [default: sync]
    #[arg(long, value_name = "POLICY")]
    durability: Option<String>,
    /// Allow an address that other machines can reach, without encryption and, unless they are required, tokens
    #[arg(long)]
    insecure: bool,
    /// A file with the server's certificate, and those that lead to its authority, in PEM; SIGHUP has it read anew
    #[arg(long, value_name = "PATH")]
    tls_cert: Option<String>,
    /// A file with its key, in PEM
    #[arg(long, value_name = "PATH")]
    tls_key: Option<String>,
    /// Ask callers for tokens on loopback, or behind a proxy, too
    #[arg(long)]
    require_tokens: bool,
    /// A file that tells of administrative acts, a line of JSON each [default: the log]
    #[arg(long, value_name = "PATH")]
    audit_log: Option<String>,
    /// How long stopping may take before connections are cut [default: 10s]
    #[arg(long, value_name = "DURATION")]
    drain: Option<String>,
    /// What is logged: error, warn, info, debug, trace, or a filter [default: info]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// pretty or json [default: pretty]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// A collector that takes spans by OTLP over HTTP, like http://host:4318 [default: OTEL_EXPORTER_OTLP_ENDPOINT, else
    /// none are made]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// A file with headers for it, a line each, like `authorization: Bearer ...` [default: OTEL_EXPORTER_OTLP_HEADERS]
    #[arg(long, value_name = "PATH")]
    otlp_headers_file: Option<String>,
    /// Which share of the traces that begin here is recorded, 0 to 1 [default: OTEL_TRACES_SAMPLER, else 1]
    #[arg(long, value_name = "SHARE")]
    trace_sample: Option<String>,
    /// Connections at one time [default: 10000]
    #[arg(long, value_name = "COUNT")]
    connections_max: Option<String>,
    /// Bytes of the body of one request [default: 67108864]
    #[arg(long, value_name = "BYTES")]
    body_bytes_max: Option<String>,
    /// Bytes of all request bodies held at one time [default: 536870912]
    #[arg(long, value_name = "BYTES")]
    bodies_bytes_max: Option<String>,
    /// Where buffers are: a directory, or s3://bucket/prefix [default: buffers in the directory of the store]
    #[arg(long, value_name = "PLACE")]
    buffers: Option<String>,
    /// A writer of a buffer that is silent for so long has vanished [default: 60s]
    #[arg(long, value_name = "DURATION")]
    buffer_writer_timeout: Option<String>,
    /// Payload fields of more bytes than this are kept where buffers are [default: 65536]
    #[arg(long, value_name = "BYTES")]
    offload_above: Option<String>,
    /// Payload fields of more than 4096 bytes are, too, if the item is delayed by so long [default: 1d]
    #[arg(long, value_name = "DURATION")]
    offload_delayed_by: Option<String>,
    /// How often what no item names is looked for where buffers are [default: 60s]
    #[arg(long, value_name = "DURATION")]
    collection_interval: Option<String>,
    /// How long it is left alone, because an item may be about to name it [default: 10m]
    #[arg(long, value_name = "DURATION")]
    collection_grace: Option<String>,
    /// Address of an S3-compatible service [default: AWS_ENDPOINT_URL, else AWS itself]
    #[arg(long, value_name = "URL")]
    s3_endpoint: Option<String>,
    /// Its region [default: AWS_REGION]
    #[arg(long, value_name = "REGION")]
    s3_region: Option<String>,
    /// Who asks [default: AWS_ACCESS_KEY_ID]
    #[arg(long, value_name = "ID")]
    s3_access_key_id: Option<String>,
    /// A file with the secret that belongs to it [default: AWS_SECRET_ACCESS_KEY]
    // There is no flag for the secret itself: everybody on the machine can read a command line.
    #[arg(long, value_name = "PATH")]
    s3_secret_access_key_file: Option<String>,
    /// A file with the token of a session [default: AWS_SESSION_TOKEN]
    #[arg(long, value_name = "PATH")]
    s3_session_token_file: Option<String>,
    /// The bucket as a part of the host name instead of the path
    #[arg(long)]
    s3_virtual_hosted: bool,
    /// Who refuses to write an object twice: service or process [default: service]
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

/// What was given once, or more often.
pub fn several(given: &[String]) -> Option<String> {
    (!given.is_empty()).then(|| given.join(" "))
}

/// A variable that is not text is none of ours.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

pub fn run(args: ServeArgs) -> anyhow::Result<()> {
    let settings = Settings::load(args.config.as_deref(), environment(), &args.flags())?;
    logging::start(&settings);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        // In a task, so that it may block the thread it is on.
        tokio::spawn(async move {
            let server = Server::open(settings).await?;
            greet(&server);
            server.run().await
        })
        .await
    })??;
    Ok(())
}

/// Where it listens (the first line, for scripts), where the data is, and what to try.
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
    // Served all the same if nobody reads it.
    let _ = output::text(&words);
}
