//! Everything in a store as lines of JSON, and back into another store: `towline export | towline import`.
//!
//! **Invariant:** an import that ends well has put in all that was exported. The last line says how much that is, so
//! half an export is told apart from a whole one.

use crate::backend::Backend;
use crate::config::{Settings, StoreChoice};
use crate::server::ServerError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, Read, Write};
use std::sync::Arc;
use towline_broker::SteadyClock;
use towline_domain::{
    AttemptError, Body, Field, FieldSet, Fields, Head, Item, Outcome, Queue, QueueId, QueueName, QueueState,
    limits,
};
use towline_store::{Cursor, Filter, Operation, Restore, Store, StoreError};

/// What this version writes, and the latest that it reads.
const VERSION: u32 = 1;
/// Items are read and put in so many at a time, or fewer if they are large.
const ITEMS_AT_ONCE: usize = 500;
const BYTES_AT_ONCE: usize = 8 << 20;
/// The largest item in base64, and all else that one can have.
const LINE_BYTES_MAX: u64 = (limits::ITEM_BYTES_MAX as u64 / 3 + 1) * 4 + (8 << 20);

/// How much was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Moved {
    pub queues: u64,
    pub items: u64,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moved { queues, items } = self;
        write!(f, "{queues} queue{}, {items} item{}", plural(*queues), plural(*items))
    }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error(transparent)]
    Open(#[from] ServerError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot write the export: {0}")]
    Output(std::io::Error),
    #[error("cannot read the export: {0}")]
    Input(std::io::Error),
    #[error("there is no store in {0}; name its directory with --data")]
    NoStore(String),
    #[error("the store has queues already; import into an empty one")]
    NotEmpty,
    #[error("line {line} of the export: {problem}")]
    Line { line: u64, problem: String },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Towline { export: u32 },
    Queue(Box<Queue>),
    Item(Box<Entry>),
    End(Moved),
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    queue: QueueName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claimed_in: Option<QueueName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    came_from: Option<QueueName>,
    head: Head,
    body: Body,
    /// In base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    fields: BTreeMap<Field, String>,
    #[serde(default)]
    outcome: Outcome,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    errors: Vec<AttemptError>,
}

impl Entry {
    fn of(restore: Restore) -> Entry {
        let Restore { queue, item, claimed_in, came_from } = restore;
        let Item { head, body, fields, outcome, errors } = item;
        let given = Field::ALL.into_iter().filter_map(|field| Some((field, fields.get(field)?)));
        let fields = given.map(|(field, value)| (field, STANDARD.encode(value))).collect();
        Entry {
            queue,
            claimed_in,
            came_from,
            head,
            body,
            fields,
            outcome,
            errors: errors.into_iter().collect(),
        }
    }

    fn restore(self) -> Result<Restore, base64::DecodeError> {
        let Entry { queue, claimed_in, came_from, head, body, fields: encoded, outcome, errors } = self;
        let mut fields = Fields::default();
        for (field, value) in encoded {
            fields.set(field, Some(Bytes::from(STANDARD.decode(value)?)));
        }
        let item = Item { head, body, fields, outcome, errors: errors.into_iter().collect() };
        Ok(Restore { queue, item, claimed_in, came_from })
    }
}

async fn open(settings: &Settings) -> Result<Backend, ServerError> {
    Backend::open(settings, Arc::new(SteadyClock::new())).await
}

/// Writes everything that the store of these settings has. No server may use it meanwhile.
pub async fn export(settings: &Settings, mut out: impl Write) -> Result<Moved, MoveError> {
    // Opening would make an empty one.
    if matches!(settings.store, StoreChoice::Embedded) && !settings.data.is_dir() {
        return Err(MoveError::NoStore(settings.data.display().to_string()));
    }
    let backend = open(settings).await?;
    let store = backend.store();
    let mut moved = Moved::default();
    write_line(&mut out, &Line::Towline { export: VERSION })?;
    let mut names: BTreeMap<QueueId, QueueName> = BTreeMap::new();
    let mut after = None;
    loop {
        let page = store.queues(after, limits::PAGE_MAX).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.queue.name.clone());
        for view in page {
            names.insert(view.queue.id, view.queue.name.clone());
            write_line(&mut out, &Line::Queue(Box::new(view.queue)))?;
            moved.queues += 1;
        }
    }
    let mut after: Option<Cursor> = None;
    loop {
        let page = store.list(Filter::default(), after, ITEMS_AT_ONCE, FieldSet::ALL).await?;
        for stored in page.items {
            write_line(&mut out, &Line::Item(Box::new(Entry::of(Restore::of(stored, &names)))))?;
            moved.items += 1;
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    write_line(&mut out, &Line::End(moved))?;
    out.flush().map_err(MoveError::Output)?;
    Ok(moved)
}

fn write_line(out: &mut impl Write, line: &Line) -> Result<(), MoveError> {
    serde_json::to_writer(&mut *out, line).map_err(|error| MoveError::Output(error.into()))?;
    out.write_all(b"\n").map_err(MoveError::Output)
}

/// Puts an export into the store of these settings, which must be empty.
pub async fn import(settings: &Settings, input: impl BufRead) -> Result<Moved, MoveError> {
    let backend = open(settings).await?;
    let store = backend.store();
    if !store.queues(None, 1).await?.is_empty() {
        return Err(MoveError::NotEmpty);
    }
    let mut import =
        Import { store, moved: Moved::default(), queues: Vec::new(), batch: Vec::new(), bytes: 0 };
    let mut lines = Lines { input, line: 0 };
    let first = lines.next()?;
    match first {
        Some(Line::Towline { export }) if export <= VERSION => {}
        Some(Line::Towline { export }) => {
            let problem = format!("version {export} is later than {VERSION}; use a newer towline");
            return Err(lines.wrong(problem));
        }
        _ => return Err(lines.wrong("this is no export of towline".to_owned())),
    }
    loop {
        match lines.next()? {
            Some(Line::Queue(queue)) => import.queue(*queue, lines.line).await?,
            Some(Line::Item(entry)) => import.item(*entry, lines.line).await?,
            Some(Line::End(said)) => {
                import.put().await?;
                if import.moved != said {
                    let problem = format!("{said} were exported, {} came", import.moved);
                    return Err(lines.wrong(problem));
                }
                return import.end(lines.line).await;
            }
            Some(Line::Towline { .. }) => return Err(lines.wrong("another export begins here".to_owned())),
            None => {
                return Err(lines.wrong("the export breaks off; begin again with an empty store".to_owned()));
            }
        }
    }
}

struct Lines<R> {
    input: R,
    line: u64,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<Option<Line>, MoveError> {
        let mut text = Vec::new();
        let mut bounded = (&mut self.input).take(LINE_BYTES_MAX);
        bounded.read_until(b'\n', &mut text).map_err(MoveError::Input)?;
        if text.is_empty() {
            return Ok(None);
        }
        self.line += 1;
        if text.len() as u64 == LINE_BYTES_MAX {
            return Err(self.wrong(format!("it is longer than {LINE_BYTES_MAX} bytes")));
        }
        serde_json::from_slice(&text).map(Some).map_err(|error| self.wrong(error.to_string()))
    }

    fn wrong(&self, problem: String) -> MoveError {
        MoveError::Line { line: self.line, problem }
    }
}

struct Import {
    store: Arc<dyn Store>,
    moved: Moved,
    queues: Vec<Queue>,
    /// With the line each came from.
    batch: Vec<(u64, Operation)>,
    bytes: usize,
}

impl Import {
    async fn queue(&mut self, queue: Queue, line: u64) -> Result<(), MoveError> {
        let operation = Operation::CreateQueue {
            queue: queue.name.clone(),
            schema: Box::new(queue.schema.clone()),
            policy: Box::new(queue.policy.clone()),
        };
        self.run(vec![(line, operation)]).await?;
        self.queues.push(queue);
        self.moved.queues += 1;
        Ok(())
    }

    async fn item(&mut self, entry: Entry, line: u64) -> Result<(), MoveError> {
        let restore = entry.restore().map_err(|error| {
            let problem = format!("a field is not in base64: {error}");
            MoveError::Line { line, problem }
        })?;
        self.bytes += restore.item.fields.bytes();
        self.batch.push((line, Operation::Restore(Box::new(restore))));
        self.moved.items += 1;
        if self.batch.len() >= ITEMS_AT_ONCE || self.bytes >= BYTES_AT_ONCE {
            self.put().await?;
        }
        Ok(())
    }

    async fn put(&mut self) -> Result<(), MoveError> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.run(batch).await
    }

    /// Queues take items while they are open, so they are closed last.
    async fn end(self, line: u64) -> Result<Moved, MoveError> {
        for Queue { name: queue, paused, state, .. } in &self.queues {
            if *paused {
                self.run(vec![(line, Operation::PauseQueue { queue: queue.clone() })]).await?;
            }
            if *state != QueueState::Open {
                self.run(vec![(line, Operation::CloseQueue { queue: queue.clone() })]).await?;
            }
        }
        Ok(self.moved)
    }

    async fn run(&self, batch: Vec<(u64, Operation)>) -> Result<(), MoveError> {
        let (lines, operations): (Vec<u64>, Vec<Operation>) = batch.into_iter().unzip();
        let answers = self.store.update(operations).await?.answers;
        for (line, answered) in lines.into_iter().zip(answers) {
            answered.map_err(|refusal| MoveError::Line { line, problem: refusal.to_string() })?;
        }
        Ok(())
    }
}
