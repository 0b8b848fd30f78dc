//! `towline token` and `towline whoami`.

use crate::connect::{Connection, Session};
use crate::exit::Failure;
use crate::output::{Format, Output};
use crate::store_args::{StoreArgs, runtime};
use crate::value::duration;
use clap::{Args, Subcommand};
use towline_api::{Millis, NewToken, RateLimit, TokenShown};
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
            let tokens = Tokens::open(&settings).await?;
            let done = in_store(&tokens, command).await;
            tokio::task::block_in_place(|| tokens.close());
            done
        });
        let done = done.await.map_err(Failure::refused)?;
        done.map_err(|error: TokenError| Failure::refused(error))?.print(output)
    })
}

/// The result of a command.
enum TokenOutput {
    Created(towline_api::TokenCreated),
    Listed(Vec<TokenShown>),
    Revoked(TokenShown),
}

impl TokenOutput {
    fn print(self, output: Output) -> Result<(), Failure> {
        match self {
            TokenOutput::Created(created) => output.name_or_json(&created.token.0, &created),
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

fn new_token(args: CreateArgs) -> NewToken {
    NewToken {
        name: args.name,
        scopes: args.scope,
        expires_in: args.expires_in.map(Into::into),
        rate_limit: args.rate.map(|per_second| RateLimit { per_second, burst: args.burst }),
    }
}

async fn in_store(tokens: &Tokens, command: TokenCommand) -> Result<TokenOutput, TokenError> {
    Ok(match command {
        TokenCommand::Create(args) => TokenOutput::Created(tokens.create(new_token(args)).await?),
        TokenCommand::List(_) => TokenOutput::Listed(tokens.list().await?),
        TokenCommand::Revoke(args) => TokenOutput::Revoked(tokens.revoke(&args.id).await?),
    })
}

async fn via_server(session: &Session, command: TokenCommand) -> Result<(), Failure> {
    let client = &session.client;
    let done = match command {
        TokenCommand::Create(args) => TokenOutput::Created(client.create_token(&new_token(args)).await?),
        TokenCommand::Revoke(args) => TokenOutput::Revoked(client.revoke_token(&args.id).await?),
        TokenCommand::List(_) => {
            let (mut all, mut cursor) = (Vec::new(), None);
            loop {
                let page = client.tokens(cursor.as_deref()).await?;
                all.extend(page.tokens);
                cursor = page.next;
                if cursor.is_none() {
                    break TokenOutput::Listed(all);
                }
            }
        }
    };
    done.print(session.output)
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
