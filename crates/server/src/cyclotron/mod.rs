//! Reads the jobs of a Cyclotron database, for `towline import --from cyclotron`. Changes nothing there.

use std::collections::HashMap;
use towline_domain::Timestamp;
use towline_postgres::{Address, AddressError};
use towline_store::StoreError;
use uuid::Uuid;

/// The queue of Cyclotron's dead letters. They are `available` there.
const DEAD_LETTERS: &str = "_cyclotron_dead_letter";
/// Bytes of payload in one page of jobs. A job with more is a page of its own.
const PAGE_BYTES: i64 = 8 << 20;

#[derive(Debug, thiserror::Error)]
pub enum CyclotronError {
    #[error("not a database address: {0}; use postgres://user@host/database")]
    Address(#[from] AddressError),
    #[error("cannot read the password file {path}: {problem}")]
    Password { path: String, problem: String },
    #[error("cannot use the database of Cyclotron: {0}")]
    Connect(StoreError),
    #[error("cannot read the jobs of Cyclotron: {0}; the database needs the table cyclotron_jobs")]
    Read(String),
}

impl From<tokio_postgres::Error> for CyclotronError {
    fn from(error: tokio_postgres::Error) -> CyclotronError {
        let detail = error.as_db_error().map(ToString::to_string);
        CyclotronError::Read(detail.unwrap_or_else(|| error.to_string()))
    }
}

#[derive(Debug, Clone)]
pub struct CyclotronJob {
    pub id: Uuid,
    pub team_id: i32,
    pub function_id: Option<Uuid>,
    pub queue: String,
    pub is_paused: bool,
    pub priority: i16,
    pub scheduled: Timestamp,
    pub vm_state: Option<Vec<u8>>,
    pub parameters: Option<Vec<u8>>,
    pub blob: Option<Vec<u8>>,
    pub metadata: Option<Vec<u8>>,
    pub dead_letter: Option<DeadLetter>,
}

/// Why a job is a dead letter, if Cyclotron kept it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetter {
    pub original_queue: Option<String>,
    pub reason: Option<String>,
}

/// How many jobs are in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CyclotronCounts {
    pub available: u64,
    pub paused: u64,
    pub running: u64,
    pub completed: u64,
    pub failed: u64,
    /// In any state.
    pub dead_letters: u64,
}

/// The jobs that can be imported, in order of id.
#[derive(Debug)]
pub struct CyclotronJobs {
    client: tokio_postgres::Client,
    /// The last job that was read.
    after: Option<Uuid>,
    states: Vec<&'static str>,
    has_reasons: bool,
}

impl CyclotronJobs {
    /// Connects to a database, like `postgres://user@host/database`.
    pub async fn open(
        url: &str,
        password_file: Option<&str>,
        with_running: bool,
    ) -> Result<CyclotronJobs, CyclotronError> {
        let mut address: Address = url.parse()?;
        if let Some(path) = password_file {
            let password = crate::config::secret_file(path)
                .map_err(|problem| CyclotronError::Password { path: path.to_owned(), problem })?;
            address.config.password(password);
        }
        let client = towline_postgres::connect(&address).await.map_err(CyclotronError::Connect)?;
        let found =
            client.query_one("SELECT to_regclass('cyclotron_dead_letter_metadata') IS NOT NULL", &[]).await?;
        let mut states = vec!["available", "paused"];
        if with_running {
            states.push("running");
        }
        Ok(CyclotronJobs { client, after: None, states, has_reasons: found.try_get(0)? })
    }

    /// Counts all jobs. Reads the whole table.
    pub async fn count(&self) -> Result<CyclotronCounts, CyclotronError> {
        let mut counts = CyclotronCounts::default();
        for row in self.client.query(include_str!("count_jobs.sql"), &[]).await? {
            let (state, is_dead_letter, count): (String, bool, i64) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let slot = match state.as_str() {
                _ if is_dead_letter => &mut counts.dead_letters,
                "available" => &mut counts.available,
                "paused" => &mut counts.paused,
                "running" => &mut counts.running,
                "completed" => &mut counts.completed,
                "failed" => &mut counts.failed,
                other => return Err(CyclotronError::Read(format!("unknown state {other:?}"))),
            };
            *slot += count.unsigned_abs();
        }
        Ok(counts)
    }

    /// The next jobs. None: there are no more.
    pub async fn next(&mut self) -> Result<Vec<CyclotronJob>, CyclotronError> {
        let sql = include_str!("read_jobs.sql");
        let rows = self.client.query(sql, &[&self.after, &self.states, &PAGE_BYTES]).await?;
        let mut jobs = Vec::with_capacity(rows.len());
        for row in rows {
            let (queue, state, scheduled): (String, String, i64) =
                (row.try_get(3)?, row.try_get(4)?, row.try_get(6)?);
            jobs.push(CyclotronJob {
                id: row.try_get(0)?,
                team_id: row.try_get(1)?,
                function_id: row.try_get(2)?,
                is_paused: state == "paused",
                priority: row.try_get(5)?,
                scheduled: Timestamp(u64::try_from(scheduled).unwrap_or(0)),
                vm_state: row.try_get(7)?,
                parameters: row.try_get(8)?,
                blob: row.try_get(9)?,
                metadata: row.try_get(10)?,
                dead_letter: (queue == DEAD_LETTERS).then(DeadLetter::default),
                queue,
            });
        }
        self.add_reasons(&mut jobs).await?;
        self.after = jobs.last().map(|job| job.id).or(self.after);
        Ok(jobs)
    }

    async fn add_reasons(&self, jobs: &mut [CyclotronJob]) -> Result<(), CyclotronError> {
        let dead: Vec<Uuid> = jobs.iter().filter(|job| job.dead_letter.is_some()).map(|job| job.id).collect();
        if !self.has_reasons || dead.is_empty() {
            return Ok(());
        }
        let mut reasons = HashMap::new();
        for row in self.client.query(include_str!("read_dead_letters.sql"), &[&dead]).await? {
            let id: Uuid = row.try_get(0)?;
            reasons.insert(id, DeadLetter { original_queue: row.try_get(1)?, reason: row.try_get(2)? });
        }
        for job in jobs {
            if let Some(reason) = reasons.remove(&job.id) {
                job.dead_letter = Some(reason);
            }
        }
        Ok(())
    }
}
