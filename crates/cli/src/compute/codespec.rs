//! `towline codespec`.

use super::choose_name;
use super::file::read_codespec;
use crate::connect::Session;
use crate::exit::Failure;
use crate::output;
use crate::value::{Pair, map, pair};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use towline_api::compute::{CodespecBody, CodespecKind, CodespecShown, Size};

#[derive(Debug, Subcommand)]
pub enum CodespecCommand {
    Create(Box<CreateArgs>),
    /// List the newest versions of codespecs.
    List,
    /// Show a codespec: the newest version, or NAME@VERSION.
    Show(CodespecArg),
    /// Delete all versions of a codespec. Runs keep what they took from it.
    Delete(CodespecArg),
}

#[derive(Debug, Args)]
pub struct CodespecArg {
    /// The codespec's name.
    #[arg(value_name = "CODESPEC")]
    name: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Runs once: reads input buffers and writes output buffers.
    Job,
    /// Runs until it is stopped, and works on queues.
    Service,
}

/// Create a codespec, or a new version of it, and print NAME@VERSION.
///
/// A codespec says what to run. It never changes: an identical one returns the same version. `$(VAR)` in the command, the arguments and
/// the environment is replaced by a variable; `$$(VAR)` is the text itself. Example: towline codespec create sort --input in --output
/// out --command -- sh -c 'sort $IN_PIPE > $OUT_PIPE'
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The codespec's name [default: the one in the file].
    #[arg(value_name = "CODESPEC")]
    name: Option<String>,
    /// YAML file that describes the codespec, alone or within a service; - for standard input. Flags replace what it says.
    #[arg(short, long, value_name = "SPEC.YAML")]
    file: Option<PathBuf>,
    /// What it is [default: service if it has queues, otherwise job].
    #[arg(long, value_name = "KIND")]
    kind: Option<Kind>,
    /// The container image, for nodes that run containers.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// A buffer that the job reads, from the pipe in <NAME>_PIPE. Repeatable.
    #[arg(long, value_name = "BUFFER")]
    input: Vec<String>,
    /// A buffer that the job writes, to the pipe in <NAME>_PIPE. Repeatable.
    #[arg(long, value_name = "BUFFER")]
    output: Vec<String>,
    /// A key to which services bind a queue; its name is in <KEY>_QUEUE_NAME. Repeatable.
    #[arg(long, value_name = "KEY")]
    queue: Vec<String>,
    /// An environment variable. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<Pair<String>>,
    /// The pool of nodes that it needs.
    #[arg(long, visible_alias = "node-pool", value_name = "POOL")]
    pool: Option<String>,
    /// Limit its memory, for example 512MiB.
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Limit its processor time to this many cores, in containers.
    #[arg(long, value_name = "CORES")]
    cpu: Option<f64>,
    /// The words after -- are the command, not arguments of the image's own command.
    #[arg(long)]
    command: bool,
    /// The arguments, or with --command the program and its arguments.
    #[arg(last = true, value_name = "WORD")]
    words: Vec<String>,
}

pub async fn run(session: &Session, command: CodespecCommand) -> Result<(), Failure> {
    let Session { client, output } = session;
    match command {
        CodespecCommand::Create(args) => create(session, *args).await,
        CodespecCommand::List => list(session).await,
        CodespecCommand::Show(args) => output.object(&client.codespec(&args.name).await?),
        CodespecCommand::Delete(args) => Ok(client.delete_codespec(&args.name).await?),
    }
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let mut in_file = None;
    let mut body = CodespecBody::default();
    if let Some(path) = &args.file {
        let (described, others) = read_codespec(path)?;
        if !others.is_empty() {
            output::say(format!(
                "{}: {} belong to a service or a run, not to its codespec; create that from the same file",
                path.display(),
                others.join(", ")
            ));
        }
        (in_file, body) = (described.name, described.value);
    }
    let name = choose_name("codespec", args.name, in_file)?;
    body.kind = match args.kind {
        Some(Kind::Job) => Some(CodespecKind::Job),
        Some(Kind::Service) => Some(CodespecKind::Service),
        None => body.kind,
    };
    body.image = args.image.or(body.image);
    body.pool = args.pool.or(body.pool);
    body.resources.memory = args.memory.or(body.resources.memory);
    body.resources.cpu = args.cpu.or(body.resources.cpu);
    body.env.extend(map("--env", args.env)?);
    for (flags, names) in [
        (args.input, &mut body.buffers.inputs),
        (args.output, &mut body.buffers.outputs),
        (args.queue, &mut body.queues),
    ] {
        if !flags.is_empty() {
            *names = flags;
        }
    }
    match (args.command, args.words.is_empty()) {
        (true, true) => {
            return Err(Failure::Usage("--command: give the program and its arguments after --".to_owned()));
        }
        (true, false) => (body.command, body.args) = (args.words, Vec::new()),
        (false, false) => body.args = args.words,
        (false, true) => {}
    }
    let applied = session.client.put_codespec(&name, body).await?;
    session.output.name_or_json(applied.codespec.reference(), &applied)
}

async fn list(session: &Session) -> Result<(), Failure> {
    let mut listing = session.output.listing(&["NAME", "VERSION", "KIND", "IMAGE", "COMMAND", "CREATED"]);
    let mut cursor = None;
    loop {
        let page = session.client.codespecs(cursor.as_deref()).await?;
        for codespec in &page.codespecs {
            listing.push(codespec, row)?;
        }
        cursor = page.next;
        if cursor.is_none() {
            return listing.finish();
        }
    }
}

fn row(shown: &CodespecShown) -> Vec<String> {
    let body = &shown.codespec;
    vec![
        shown.name.clone(),
        shown.version.to_string(),
        body.kind().name().to_owned(),
        body.image.clone().unwrap_or_default(),
        body.command.iter().chain(&body.args).cloned().collect::<Vec<_>>().join(" "),
        shown.created_at.to_string(),
    ]
}
