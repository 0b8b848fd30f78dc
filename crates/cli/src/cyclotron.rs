//! `towline import --from cyclotron`: submits the jobs of a Cyclotron database to a server.
//!
//! Each job is submitted with its id as idempotency key, so an interrupted import can be run again.

use crate::connect::Session;
use crate::exit::Failure;
use crate::output::{self, Output};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use towline_api::{Client, ClientError, Code, ItemId, NewItem, PutQueue, Submitted};
use towline_server::cyclotron::{CyclotronCounts, CyclotronJob, CyclotronJobs, DeadLetter};

/// How long to wait for a server that restarts. Every call is safe to repeat.
const PATIENCE: Duration = Duration::from_secs(60);
/// `reason` of a dead letter becomes a tag. Tags are short.
const REASON_BYTES_MAX: usize = 200;

/// What to import from where.
#[derive(Debug, Clone)]
pub struct CyclotronImport {
    pub url: String,
    pub password_file: Option<String>,
    /// Also jobs in state `running`.
    pub with_running: bool,
    /// The queue for dead letters. `None`: they are not imported.
    pub dead_letters: Option<String>,
    /// Names of queues, by their names in Cyclotron.
    pub queues: BTreeMap<String, String>,
}

#[derive(Debug, Default, Serialize)]
struct Imported {
    /// Items that were created.
    created: u64,
    /// Jobs that an earlier run had imported.
    repeated: u64,
    paused: u64,
    refused: u64,
    not_imported: NotImported,
}

#[derive(Debug, Default, Serialize)]
struct NotImported {
    running: u64,
    completed: u64,
    failed: u64,
    dead_letters: u64,
}

pub async fn run(session: &Session, import: CyclotronImport) -> Result<(), Failure> {
    let opened = CyclotronJobs::open(&import.url, import.password_file.as_deref(), import.with_running);
    let mut jobs = opened.await.map_err(Failure::refused)?;
    let counts = jobs.count().await.map_err(Failure::refused)?;
    let client = session.client.clone().retry_for(PATIENCE);
    let bar = bar(&counts);
    let mut known = BTreeSet::new();
    let mut imported = Imported { not_imported: not_imported(&import, &counts), ..Imported::default() };
    loop {
        let page = jobs.next().await.map_err(Failure::refused)?;
        if page.is_empty() {
            break;
        }
        let read = page.len() as u64;
        let mut by_queue: BTreeMap<String, Vec<CyclotronJob>> = BTreeMap::new();
        for job in page {
            let queue = match &job.dead_letter {
                Some(_) => import.dead_letters.as_ref(),
                None => Some(import.queues.get(&job.queue).unwrap_or(&job.queue)),
            };
            if let Some(queue) = queue {
                by_queue.entry(queue.clone()).or_default().push(job);
            }
        }
        for (queue, jobs) in by_queue {
            if known.insert(queue.clone()) {
                create_queue(&client, &queue).await?;
            }
            submit(&client, &queue, jobs, &mut imported).await?;
        }
        bar.inc(read);
    }
    bar.finish_and_clear();
    imported.report(session.output)
}

/// Creates a queue unless it exists, with whatever policy.
async fn create_queue(client: &Client, queue: &str) -> Result<(), Failure> {
    match client.queue(queue).await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some(Code::QueueNotFound) => {
            client.put_queue(queue, &PutQueue::default()).await?;
            output::say(format!("created the queue {queue}"));
            Ok(())
        }
        Err(error @ ClientError::Refused(_)) => {
            let remedy = "give it another name with --queue OLD=NEW";
            Err(Failure::Refused(format!("the queue {queue:?} cannot be used: {error}; {remedy}")))
        }
        Err(error) => Err(error.into()),
    }
}

async fn submit(
    client: &Client,
    queue: &str,
    jobs: Vec<CyclotronJob>,
    imported: &mut Imported,
) -> Result<(), Failure> {
    let paused: Vec<bool> = jobs.iter().map(|job| job.is_paused).collect();
    let ids: Vec<String> = jobs.iter().map(|job| job.id.to_string()).collect();
    let results = client.submit(queue, jobs.into_iter().map(item).collect()).await?;
    for ((result, is_paused), job) in results.into_iter().zip(paused).zip(ids) {
        let Submitted { id, created, error, .. } = result;
        if let Some(error) = error {
            output::say(format!("job {job}: {}", error.message));
            imported.refused += 1;
            continue;
        }
        if created == Some(true) {
            imported.created += 1;
        } else {
            imported.repeated += 1;
        }
        if is_paused && let Some(id) = id.and_then(|id| id.into_domain("id").ok()) {
            pause(client, id).await?;
            imported.paused += 1;
        }
    }
    Ok(())
}

async fn pause(client: &Client, id: ItemId) -> Result<(), Failure> {
    match client.pause_item(id).await {
        Ok(_) => Ok(()),
        // A worker was faster, or an earlier run has paused it.
        Err(error) if error.code() == Some(Code::WrongState) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn item(job: CyclotronJob) -> NewItem {
    let mut tags = BTreeMap::from([("team_id".to_owned(), job.team_id.to_string())]);
    tags.extend(job.function_id.map(|id| ("function_id".to_owned(), id.to_string())));
    if let Some(DeadLetter { original_queue, reason }) = job.dead_letter {
        tags.extend(original_queue.map(|queue| ("original_queue".to_owned(), queue)));
        let short = |reason: String| reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].to_owned();
        tags.extend(reason.map(|reason| ("reason".to_owned(), short(reason))));
    }
    NewItem {
        id: Some(ItemId(job.id).into()),
        idempotency_key: Some(job.id.to_string()),
        priority: Some(job.priority.into()),
        ready_at: Some(job.scheduled.into()),
        tags,
        source: Some("cyclotron".to_owned()),
        state_blob: job.vm_state.map(Into::into),
        payload: job.blob.map(Into::into),
        metadata: job.metadata.map(Into::into),
        parameters: job.parameters.map(Into::into),
        ..NewItem::default()
    }
}

fn not_imported(import: &CyclotronImport, counts: &CyclotronCounts) -> NotImported {
    NotImported {
        running: if import.with_running { 0 } else { counts.running },
        completed: counts.completed,
        failed: counts.failed,
        dead_letters: if import.dead_letters.is_some() { 0 } else { counts.dead_letters },
    }
}

impl Imported {
    fn report(self, output: Output) -> Result<(), Failure> {
        let Imported { created, repeated, paused, refused, not_imported } = &self;
        let NotImported { running, completed, failed, dead_letters } = not_imported;
        output::say(format!(
            "imported {created} jobs, of them and of earlier ones {paused} paused; {repeated} were imported before"
        ));
        output::say(format!(
            "not imported: {running} running (stop their workers, or use --with-running), {completed} completed, {failed} failed, \
             {dead_letters} dead letters (use --dead-letters QUEUE)"
        ));
        output.json_only(&self)?;
        if *refused > 0 {
            output::say(format!("{refused} jobs were refused"));
            return Err(Failure::AlreadyReported);
        }
        Ok(())
    }
}

/// On stderr, and only on a terminal.
fn bar(counts: &CyclotronCounts) -> ProgressBar {
    let template = "{bar:30} {human_pos}/{human_len} jobs  {per_sec}  {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(counts.available + counts.paused + counts.dead_letters).with_style(style)
}
