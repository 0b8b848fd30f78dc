//! A worker's connection: its settings, its number, its prepared statements.

use crate::connection::address::{Address, Target};
use crate::connection::tls::{self, Connector};
use crate::error::{damaged, describe, fault};
use crate::inbox::Taken;
use crate::maintenance::migrate;
use crate::options::Options;
use crate::statements::{Statements, query};
use futures::future::BoxFuture;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Connection, Error, Row, Socket, Statement};
use towline_store::StoreError;

/// Shards of the counters. Two workers that share one wait for each other, for the time of a commit.
pub(crate) const SHARDS: i32 = 64;

/// Tells the locks of sessions from those of queues.
const SESSION_LOCKS: i32 = 0x5a5a_5a5a;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) statements: Statements,
    /// No session before or after has the same.
    pub(crate) number: i32,
    pub(crate) shard: i32,
    /// The last batch that this session committed.
    pub(crate) batch: i64,
    /// What leaves the inbox with its next batch.
    pub(crate) taken: Option<Taken>,
}

/// What is said to every connection of the store: transactions are short, or something is wrong.
pub(crate) fn configure(address: &Address, options: &Options) -> Result<Target, StoreError> {
    let mut config = address.config.clone();
    let timeout = options.statement_timeout_ms;
    // Statistics of a queue are always out of date: only plans that follow an index are good ones.
    let settings = format!(
        "-c search_path={schema} -c statement_timeout={timeout} -c lock_timeout={timeout} \
         -c idle_in_transaction_session_timeout={timeout} -c enable_seqscan=off -c enable_bitmapscan=off \
         -c plan_cache_mode=force_generic_plan -c jit=off",
        schema = options.schema,
    );
    let settings = match config.get_options() {
        Some(given) => format!("{given} {settings}"),
        None => settings,
    };
    config.options(settings).application_name("towline");
    address.target(config)
}

/// A connection, to be driven by the caller.
pub(crate) async fn connection(target: &Target) -> Result<(Client, Driven), StoreError> {
    target.config.connect(target.connector.clone()).await.map_err(|error| tls::explained(fault(&error)))
}

type Driven = Connection<Socket, <Connector as MakeTlsConnect<Socket>>::Stream>;

/// The connection ends with its client.
pub(crate) async fn connect(target: &Target) -> Result<Client, StoreError> {
    let (client, connection) = connection(target).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = describe(&error), "a connection to PostgreSQL ended");
        }
    });
    Ok(client)
}

impl Session {
    pub(crate) async fn open(target: &Target, schema: &str, locks: i32) -> Result<Session, StoreError> {
        let client = connect(target).await?;
        migrate::check_schema(&client, schema).await?;
        let open = async {
            let class = locks ^ SESSION_LOCKS;
            client.execute(query!("delete_old_sessions"), &[&class]).await?;
            let number: i32 = client.query_one(query!("open_session"), &[&class]).await?.get(0);
            Ok::<_, Error>((number, Statements::prepare(&client).await?))
        };
        let (number, statements) = open.await.map_err(|error| fault(&error))?;
        Ok(Session { client, statements, number, shard: number % SHARDS, batch: 0, taken: None })
    }

    /// Which batch another session committed last; `None`: it is not over yet.
    ///
    /// Its lock is free only when it is over, and with it whatever it had under way.
    pub(crate) async fn last_batch_of(&self, number: i32, locks: i32) -> Result<Option<i64>, StoreError> {
        let class = locks ^ SESSION_LOCKS;
        let ask = async {
            if !self
                .client
                .query_one(query!("has_session_ended"), &[&class, &number])
                .await?
                .get::<_, bool>(0)
            {
                return Ok(None);
            }
            Ok(Some(self.client.query_opt(query!("read_last_batch"), &[&number]).await?))
        };
        match ask.await.map_err(|error: Error| fault(&error))? {
            None => Ok(None),
            Some(Some(row)) => Ok(Some(row.get(0))),
            Some(None) => Err(damaged(format_args!("{number} of sessions"), "it is not there")),
        }
    }

    pub(crate) async fn rollback(&self) -> Result<(), Error> {
        self.client.batch_execute("ROLLBACK").await
    }

    /// One statement of a pipeline.
    pub(crate) fn step<'a>(&'a self, statement: &'a Statement, parameters: Parameters<'a>) -> Step<'a> {
        Box::pin(async move { self.client.query(statement, &parameters).await })
    }

    pub(crate) fn command<'a>(&'a self, command: &'a str) -> Step<'a> {
        Box::pin(async move { self.client.batch_execute(command).await.map(|()| Vec::new()) })
    }
}

pub(crate) type Parameters<'a> = Vec<&'a (dyn ToSql + Sync)>;
pub(crate) type Step<'a> = BoxFuture<'a, Result<Vec<Row>, Error>>;

/// Sends all the steps at once, and waits for their answers; the first that failed is the one to know of.
pub(crate) async fn pipeline(steps: Vec<Step<'_>>) -> Result<Vec<Vec<Row>>, Error> {
    // Each is sent when it is first polled, and `join_all` polls in order.
    futures::future::join_all(steps).await.into_iter().collect()
}
