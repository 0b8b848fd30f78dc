//! `towline token` and `towline whoami`.

use crate::clock;
use crate::connect::{Connection, Session};
use crate::exit::Failure;
use crate::output::{self, Format, Output};
use crate::store_args::{StoreArgs, runtime};
use crate::value::duration;
use clap::{Args, Subcommand};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use towline_api::{Client, ClientError, Millis, NewToken, RateLimit, TokenCreated, TokenShown};
use towline_server::{TokenError, Tokens};

/// Create, list and revoke tokens on a server, or directly in a store with --data or --store.
///
/// Create the first token directly in the store. Stop the server first if the store is embedded; a database
/// may be in use.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print it. It is shown only once.
    Create(CreateArgs),
    /// List tokens. Expired and revoked tokens stay listed for 30 days.
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Revoke a token and end its open requests.
    Revoke(RevokeArgs),
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// A name for people. Lists and the audit log show it
    #[arg(value_name = "NAME")]
    name: String,
    /// What the token allows: admin, queue:PATTERN:submit|receive|read|admin, group:PATTERN:read|admin,
    /// topic:PATTERN:publish|subscribe|*, kv:PREFIX:read|write|*, buffer:read|write|delete|*,
    /// metrics:read. In a pattern, * stands for any text. Repeatable
    #[arg(long, value_name = "SCOPE", required = true)]
    scope: Vec<String>,
    /// How long the token is valid [default: until it is revoked]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    expires_in: Option<Millis>,
    /// Maximum requests per second on each server [default: no limit]
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
    /// Maximum requests at once [default: the value of --rate]
    #[arg(long, value_name = "N", requires = "rate")]
    burst: Option<u32>,
    /// Write the token to this new file, which only its owner can read, and print the token's id instead
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Do nothing if a valid token exists. For scripts that set up a server
    #[arg(long)]
    if_none: bool,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// The token's id, as in tow_ID_...
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    store: StoreArgs,
}

pub fn run(connection: &Connection, format: Option<Format>, command: TokenCommand) -> Result<(), Failure> {
    let store = match &command {
        TokenCommand::Create(CreateArgs { store, .. })
        | TokenCommand::List(ListArgs { store })
        | TokenCommand::Revoke(RevokeArgs { store, .. }) => store,
    };
    let settings = store.is_named().then(|| store.settings()).transpose()?;
    let output = Output::new(format);
    runtime()?.block_on(async {
        let Some(settings) = settings else { return via_server(&connection.open(format)?, command).await };
        // In a task, because opening the store may block its thread.
        let done = tokio::spawn(async move {
            let tokens = Tokens::open(&settings).await.map_err(Failure::refused)?;
            let done = in_store(&tokens, command).await;
            tokio::task::block_in_place(|| tokens.close());
            done
        });
        let done = done.await.map_err(Failure::refused)?;
        done?.print(output)
    })
}

/// The result of a command.
enum TokenOutput {
    Created(Box<TokenCreated>, Option<TokenFile>),
    /// A valid token exists.
    NotCreated,
    Listed(Vec<TokenShown>),
    Revoked(TokenShown),
}

impl TokenOutput {
    fn print(self, output: Output) -> Result<(), Failure> {
        match self {
            TokenOutput::Created(created, None) => output.name_or_json(&created.token.0, &created),
            TokenOutput::Created(created, Some(file)) => {
                file.write(&created)?;
                output.name_or_json(&created.shown.id, &created.shown)
            }
            TokenOutput::NotCreated => {
                output::say("a valid token exists; no token was created");
                Ok(())
            }
            TokenOutput::Listed(tokens) => {
                let mut listing = output.listing(&HEADERS);
                for token in &tokens {
                    listing.push(token, row)?;
                }
                listing.finish()
            }
            TokenOutput::Revoked(token) => output.json_only(&token),
        }
    }
}

/// A file for a token, created before the token: a token that cannot be written would be lost.
struct TokenFile {
    path: PathBuf,
    file: File,
}

impl TokenFile {
    fn create(path: PathBuf) -> Result<TokenFile, Failure> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
        match file {
            Ok(file) => Ok(TokenFile { path, file }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Failure::Refused(format!(
                "{} exists; choose another file for --out, or remove this one",
                path.display()
            ))),
            Err(error) => Err(Failure::Refused(format!("cannot create {}: {error}", path.display()))),
        }
    }

    fn write(mut self, created: &TokenCreated) -> Result<(), Failure> {
        let written = self.file.write_all(format!("{}\n", created.token.0).as_bytes());
        written.and_then(|()| self.file.sync_all()).map_err(|error| {
            let (path, id) = (self.path.display(), &created.shown.id);
            Failure::Refused(format!("cannot write {path}: {error}; revoke token {id}, which is lost"))
        })
    }

    /// Removes the file after the token was not created.
    fn remove(self) {
        let _ = std::fs::remove_file(self.path);
    }
}

/// Creates a token with `create`, and the file for it. `exists` says whether there is a valid token.
async fn create(
    mut args: CreateArgs,
    exists: impl AsyncFnOnce() -> Result<bool, Failure>,
    create: impl AsyncFnOnce(NewToken) -> Result<TokenCreated, Failure>,
) -> Result<TokenOutput, Failure> {
    if args.if_none && exists().await? {
        return Ok(TokenOutput::NotCreated);
    }
    let file = args.out.take().map(TokenFile::create).transpose()?;
    match create(new_token(args)).await {
        Ok(created) => Ok(TokenOutput::Created(Box::new(created), file)),
        Err(error) => {
            if let Some(file) = file {
                file.remove();
            }
            Err(error)
        }
    }
}

fn is_valid(token: &TokenShown) -> bool {
    let now = clock::wall();
    let ends = token.expires_at.as_ref().map(|at| at.clone().into_domain("expires_at"));
    token.revoked_at.is_none() && ends.is_none_or(|at| at.is_ok_and(|at| at > now))
}

fn new_token(args: CreateArgs) -> NewToken {
    NewToken {
        name: args.name,
        scopes: args.scope,
        expires_in: args.expires_in.map(Into::into),
        rate_limit: args.rate.map(|per_second| RateLimit { per_second, burst: args.burst }),
    }
}

async fn in_store(tokens: &Tokens, command: TokenCommand) -> Result<TokenOutput, Failure> {
    let refused = |error: TokenError| Failure::refused(error);
    Ok(match command {
        TokenCommand::Create(args) => {
            let exists = async || Ok(tokens.list().await.map_err(refused)?.iter().any(is_valid));
            create(args, exists, async |new| tokens.create(new).await.map_err(refused)).await?
        }
        TokenCommand::List(_) => TokenOutput::Listed(tokens.list().await.map_err(refused)?),
        TokenCommand::Revoke(args) => TokenOutput::Revoked(tokens.revoke(&args.id).await.map_err(refused)?),
    })
}

async fn via_server(session: &Session, command: TokenCommand) -> Result<(), Failure> {
    let client = &session.client;
    let done = match command {
        TokenCommand::Create(args) => {
            let exists = async || Ok(list(client).await?.iter().any(is_valid));
            create(args, exists, async |new| Ok(client.create_token(&new).await?)).await?
        }
        TokenCommand::Revoke(args) => TokenOutput::Revoked(client.revoke_token(&args.id).await?),
        TokenCommand::List(_) => TokenOutput::Listed(list(client).await?),
    };
    done.print(session.output)
}

async fn list(client: &Client) -> Result<Vec<TokenShown>, ClientError> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = client.tokens(cursor.as_deref()).await?;
        all.extend(page.tokens);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

const HEADERS: [&str; 7] = ["ID", "NAME", "SCOPES", "CREATED", "EXPIRES", "REVOKED", "LAST USED"];

fn row(token: &TokenShown) -> Vec<String> {
    let time = |time: &Option<towline_api::Time>| time.as_ref().map(ToString::to_string).unwrap_or_default();
    vec![
        token.id.clone(),
        token.name.clone(),
        token.scopes.join(" "),
        token.created_at.to_string(),
        time(&token.expires_at),
        time(&token.revoked_at),
        time(&token.last_used_at),
    ]
}

pub async fn whoami(session: &Session) -> Result<(), Failure> {
    session.output.object(&session.client.whoami().await?)
}
