//! Tallies: how many items ended in an hour. A batch adds up and writes its own; readers get them by the hour.

use crate::connection::session::Parameters;
use crate::encoding::sql::queue_number;
use crate::error::{Failure, damaged};
use crate::read::Reader;
use crate::statements::query;
use std::collections::BTreeMap;
use tokio_postgres::Row;
use towline_domain::{Ending, Finish, Hour, QueueId, QueueName, Tally, limits};
use towline_store::{StoreError, TallyRange, TallyRow};

/// In front of every tag value. The empty value stands for all values that are not counted separately.
const VALUE: u8 = 1;

/// The tallies of a batch, in the order in which they are written.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    all: BTreeMap<(QueueId, Hour), Tally>,
    tags: BTreeMap<(QueueId, Hour, String, String), Tally>,
    /// How many values of a tag each queue tallies separately in an hour.
    values_max: BTreeMap<QueueId, u32>,
}

impl Tallies {
    pub(crate) fn add(&mut self, finish: &Finish<'_>, values_max: u32) {
        let Finish { queue, hour, ending, tags } = *finish;
        self.all.entry((queue, hour)).or_default().add(ending);
        if !tags.is_empty() {
            self.values_max.insert(queue, values_max);
        }
        for (name, value) in tags {
            let key = (queue, hour, name.clone(), value.clone());
            self.tags.entry(key).or_default().add(ending);
        }
    }
}

/// Tallies as columns.
#[derive(Debug, Default)]
pub(crate) struct TallyColumns {
    queue: Vec<i32>,
    hour: Vec<i64>,
    name: Vec<Vec<u8>>,
    value: Vec<Vec<u8>>,
    counts: [Vec<i64>; Ending::ALL.len()],
    values_max: Vec<i64>,
}

impl TallyColumns {
    pub(crate) fn of_all(tallies: &Tallies) -> TallyColumns {
        let mut columns = TallyColumns::default();
        for (&(queue, hour), tally) in &tallies.all {
            columns.push(queue, hour, tally);
        }
        columns
    }

    pub(crate) fn of_tags(tallies: &Tallies) -> TallyColumns {
        let mut columns = TallyColumns::default();
        for ((queue, hour, name, value), tally) in &tallies.tags {
            columns.push(*queue, *hour, tally);
            let values_max = tallies.values_max.get(queue).copied().unwrap_or(limits::TALLY_VALUES_DEFAULT);
            columns.values_max.push(values_max.into());
            columns.name.push(name.as_bytes().to_vec());
            columns.value.push([&[VALUE], value.as_bytes()].concat());
        }
        columns
    }

    fn push(&mut self, queue: QueueId, hour: Hour, tally: &Tally) {
        self.queue.push(queue_number(queue));
        self.hour.push(hour.0.cast_signed());
        for (column, count) in self.counts.iter_mut().zip(tally.counts()) {
            column.push(count.cast_signed());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn all_parameters<'a>(&'a self, shard: &'a i32) -> Parameters<'a> {
        let mut parameters: Parameters<'a> = vec![shard, &self.queue, &self.hour];
        self.counts.iter().for_each(|column| parameters.push(column));
        parameters
    }

    pub(crate) fn tag_parameters<'a>(&'a self, shard: &'a i32) -> Parameters<'a> {
        let mut parameters: Parameters<'a> = vec![shard, &self.queue, &self.hour, &self.name, &self.value];
        self.counts.iter().for_each(|column| parameters.push(column));
        parameters.push(&self.values_max);
        parameters
    }
}

impl Reader {
    pub(crate) async fn tally(
        &self,
        queue: QueueName,
        asked: TallyRange,
    ) -> Result<Option<Vec<TallyRow>>, Failure> {
        let client = self.client().await?;
        let now = self.now(&client).await?;
        let (find_queue, read_tallies) = tokio::try_join!(
            client.prepare_cached(query!("find_queue")),
            client.prepare_cached(query!("read_tallies"))
        )?;
        let Some(queue) = client.query_opt(&find_queue, &[&queue.as_str()]).await? else { return Ok(None) };
        let hours = asked.hours(now);
        let (queue, from, until): (i32, i64, i64) =
            (queue.get(0), hours.start.0.cast_signed(), hours.end.0.cast_signed());
        let name = asked.tag.as_deref().unwrap_or_default().as_bytes();
        let rows = client.query(&read_tallies, &[&queue, &from, &until, &name]).await?;
        let mut rows = rows.iter().map(row).collect::<Result<Vec<TallyRow>, StoreError>>()?;
        // The values that are not counted separately come last.
        rows.sort_by_key(|row| (row.hour, row.value.is_none()));
        Ok(Some(rows))
    }
}

fn row(row: &Row) -> Result<TallyRow, StoreError> {
    let value = match row.get::<_, &[u8]>(1) {
        [] => None,
        [_, value @ ..] => {
            let text = std::str::from_utf8(value).map_err(|error| damaged("of tallies", error))?;
            Some(text.to_owned())
        }
    };
    let mut counts = [0; Ending::ALL.len()];
    for (at, count) in counts.iter_mut().enumerate() {
        *count = u64::try_from(row.get::<_, i64>(2 + at)).map_err(|error| damaged("of tallies", error))?;
    }
    Ok(TallyRow { hour: Hour(row.get::<_, i64>(0).cast_unsigned()), value, tally: Tally::of_counts(counts) })
}
