//! Sessions: connections that write, with their settings, numbers and prepared statements.

use crate::connection::address::{Address, Target};
use crate::connection::tls::{self, Connector};
use crate::error::{damaged, describe, fault};
use crate::inbox::InboxBatch;
use crate::maintenance::migrate;
use crate::options::Options;
use crate::statements::{Statements, query};
use futures::future::BoxFuture;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Connection, Error, Row, Socket, Statement};
use towline_store::StoreError;

/// Shards of the counters. Two workers with the same shard wait for each other's commits.
pub(crate) const SHARDS: i32 = 64;

/// Turns the lock class of queues into the lock class of sessions.
const SESSION_LOCKS: i32 = 0x5a5a_5a5a;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) statements: Statements,
    /// Unique among all sessions, past and future.
    pub(crate) number: i32,
    pub(crate) shard: i32,
    /// The last batch that this session committed.
    pub(crate) batch: i64,
    /// The inbox entries that its next batch submits.
    pub(crate) inbox_batch: Option<InboxBatch>,
}

/// The settings of all connections of the store. The timeouts are short because its transactions are.
pub(crate) fn configure(address: &Address, options: &Options) -> Result<Target, StoreError> {
    let mut config = address.config.clone();
    let timeout = options.statement_timeout_ms;
    // Statistics of a queue's tables are always out of date. Plans that follow an index are good without them.
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

/// Connects. The caller must poll the connection.
pub(crate) async fn connection(target: &Target) -> Result<(Client, RawConnection), StoreError> {
    target.config.connect(target.connector.clone()).await.map_err(|error| tls::with_remedy(fault(&error)))
}

/// Connects to a database that has no store, with the settings of its address.
pub async fn connect_elsewhere(address: &Address) -> Result<Client, StoreError> {
    let mut config = address.config.clone();
    config.application_name("towline");
    connect(&address.target(config)?).await
}

type RawConnection = Connection<Socket, <Connector as MakeTlsConnect<Socket>>::Stream>;

/// Connects. The connection ends when its client is dropped.
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
        Ok(Session { client, statements, number, shard: number % SHARDS, batch: 0, inbox_batch: None })
    }

    /// The last batch that another session committed; `None` while that session has not ended.
    ///
    /// A session holds its lock until it has ended, together with its transaction.
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
            Some(None) => Err(damaged(format_args!("{number} of sessions"), "the row is missing")),
        }
    }

    pub(crate) async fn rollback(&self) -> Result<(), Error> {
        self.client.batch_execute("ROLLBACK").await
    }

    /// A statement of a pipeline.
    pub(crate) fn step<'a>(&'a self, statement: &'a Statement, parameters: Parameters<'a>) -> Step<'a> {
        Box::pin(async move { self.client.query(statement, &parameters).await })
    }

    pub(crate) fn command<'a>(&'a self, command: &'a str) -> Step<'a> {
        Box::pin(async move { self.client.batch_execute(command).await.map(|()| Vec::new()) })
    }
}

pub(crate) type Parameters<'a> = Vec<&'a (dyn ToSql + Sync)>;
pub(crate) type Step<'a> = BoxFuture<'a, Result<Vec<Row>, Error>>;

/// Sends all statements at once and waits for their answers. Returns the error of the first one that failed.
pub(crate) async fn pipeline(steps: Vec<Step<'_>>) -> Result<Vec<Vec<Row>>, Error> {
    // A statement is sent when its future is first polled, and `join_all` polls in order.
    futures::future::join_all(steps).await.into_iter().collect()
}
