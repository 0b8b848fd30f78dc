//! The report: a table for people, JSON for programs.

use super::cpu::DISTURBED_CORES;
use super::metrics::{
    CALL_MS, CPU_CLIENT, CPU_OTHERS, CPU_SERVER, DRAIN_RATE, ENQUEUE_RATE, Metrics, RATE, START_MS, SYNC_MS,
    median, ratio, spread_percent,
};
use super::plan::{Run, Work};
use super::workload::Workload;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::HumanCount;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Report {
    pub server: ServerShown,
    /// The wire format.
    pub wire: &'static str,
    pub runs: Vec<RunShown>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerShown {
    /// A new server for every run.
    Embedded {
        durability: String,
        directory: String,
    },
    Url(String),
}

#[derive(Debug, Serialize)]
pub struct RunShown {
    pub op: &'static str,
    pub size: usize,
    #[serde(skip)]
    pub name: String,
    #[serde(skip)]
    pub how: String,
    pub parameters: Parameters,
    pub workload: Workload,
    pub median: Metrics,
    /// Half of the range between minimum and maximum, in percent of the median.
    pub spread_percent: Metrics,
    pub repeats: Vec<Metrics>,
    /// The ratio to the baseline run, which was measured in turns with this one: the median of the ratios.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_plain: Option<Metrics>,
}

/// The parameters of a run.
#[derive(Debug, Default, Serialize)]
pub struct Parameters {
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workers: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    take: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<u64>,
}

impl From<Work> for Parameters {
    fn from(work: Work) -> Parameters {
        let some = Parameters::default();
        match work {
            Work::Enqueue { submit, measured, .. } => Parameters {
                connections: Some(submit.connections),
                batch: Some(submit.batch),
                seconds: Some(measured.as_secs_f64()),
                ..some
            },
            Work::Life { submit, items, drain } => Parameters {
                connections: Some(submit.connections),
                batch: Some(submit.batch),
                items: Some(items),
                workers: Some(drain.workers),
                take: Some(drain.take),
                ..some
            },
            Work::Latency { connections, samples } => {
                Parameters { connections: Some(connections), samples: Some(samples), ..some }
            }
        }
    }
}

/// The report of all runs.
pub fn shown(runs: &[Run], repeats: Vec<Vec<Metrics>>) -> Vec<RunShown> {
    let mut shown: Vec<RunShown> = Vec::with_capacity(runs.len());
    let mut before = None;
    for (run, repeats) in runs.iter().zip(repeats) {
        let plain = before.filter(|before: &&Run| before.is_plain).and(shown.last());
        let of_plain = plain.map(|plain| ratio(&repeats, &plain.repeats));
        before = Some(run);
        shown.push(RunShown {
            op: run.op.name(),
            size: run.size,
            name: run.name(),
            how: run.work.to_string(),
            parameters: run.work.into(),
            workload: run.workload.clone(),
            median: median(&repeats),
            spread_percent: spread_percent(&repeats),
            repeats,
            of_plain,
        });
    }
    shown
}

const HEADER: [&str; 10] =
    ["run", "payload", "how", "items/s", "±%", "p50 ms", "p99 ms", "p999 ms", "client cores", "server cores"];
/// Columns before this one are text, the rest are numbers.
const FIRST_NUMBER: usize = 3;

impl Report {
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(HEADER);
        for run in &self.runs {
            for row in rows(run) {
                table.add_row(row);
            }
        }
        for column in table.column_iter_mut().skip(FIRST_NUMBER) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = format!("{self}\n\n{}\n", table.trim_fmt());
        for (run, of_plain) in self.runs.iter().filter_map(|run| Some((run, run.of_plain.as_ref()?))) {
            let named = [
                ("enqueueing", ENQUEUE_RATE),
                ("draining", DRAIN_RATE),
                ("items/s", RATE),
                ("median time", START_MS[0]),
            ];
            let ratios = named.into_iter().filter_map(|(what, name)| Some((what, of_plain.get(name)?)));
            let words: Vec<String> = ratios.map(|(what, ratio)| format!("{what} {ratio:.2}")).collect();
            text += &format!(
                "\n{} of {} B with {}, of plain: {}.",
                run.op,
                run.size,
                run.workload,
                words.join(", ")
            );
        }
        for run in self.runs.iter().filter(|run| disturbed(run)) {
            let others = run.median.get(CPU_OTHERS).unwrap_or_default();
            text += &format!(
                "\nOther programs used {others:.2} cores during {} of {} B: measure again when the machine is quiet.",
                run.name, run.size
            );
        }
        text
    }
}

fn disturbed(run: &RunShown) -> bool {
    run.median.get(CPU_OTHERS).is_some_and(|cores| cores > DISTURBED_CORES)
}

/// One row for each rate, and one for each kind of time.
fn rows(run: &RunShown) -> Vec<[String; HEADER.len()]> {
    let size = format!("{} B", run.size);
    let figure = |name| run.median.get(name);
    let cores = |name| figure(name).map(|cores| format!("{cores:.2}")).unwrap_or_default();
    let row = |name: String, rate: Option<&'static str>, times: Option<[&'static str; 3]>| {
        let spread = rate.and_then(|rate| run.spread_percent.get(rate)).filter(|_| run.repeats.len() > 1);
        let [p50, p99, p999] = times.map_or([None; 3], |names| names.map(figure)).map(milliseconds);
        [
            name,
            size.clone(),
            run.how.clone(),
            rate.and_then(figure).map(|rate| HumanCount(rate.round() as u64).to_string()).unwrap_or_default(),
            spread.map(|spread| format!("{spread:.0}")).unwrap_or_default(),
            p50,
            p99,
            p999,
            cores(CPU_CLIENT),
            cores(CPU_SERVER),
        ]
    };
    if figure(DRAIN_RATE).is_some() {
        vec![
            row(format!("{} enqueue", run.name), Some(ENQUEUE_RATE), None),
            row(format!("{} drain", run.name), Some(DRAIN_RATE), None),
            row(run.name.clone(), Some(RATE), None),
        ]
    } else if figure(RATE).is_some() {
        vec![row(run.name.clone(), Some(RATE), Some(CALL_MS))]
    } else {
        vec![
            row(run.name.clone(), None, Some(START_MS)),
            row(format!("{} call", run.name), None, Some(CALL_MS)),
        ]
    }
}

fn milliseconds(time: Option<f64>) -> String {
    time.map(|time| format!("{time:.3}")).unwrap_or_default()
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.server {
            ServerShown::Url(url) => write!(f, "{url}, {}", self.wire)?,
            ServerShown::Embedded { durability, directory } => {
                write!(f, "own server in {directory}, durability {durability}, {}", self.wire)?;
            }
        }
        if let Some(workload) =
            self.runs.last().map(|run| &run.workload).filter(|workload| **workload != Workload::default())
        {
            write!(f, "; {workload}")?;
        }
        let mut times: Vec<f64> = self.runs.iter().filter_map(|run| run.median.get(SYNC_MS)).collect();
        times.sort_by(f64::total_cmp);
        if let Some(time) = times.get(times.len() / 2) {
            write!(f, "; fdatasync of 4 KiB {time:.3} ms")?;
        }
        let repeats = self.runs.iter().map(|run| run.repeats.len()).max().unwrap_or_default();
        if repeats > 1 {
            write!(f, "; medians of {repeats}")?;
        }
        Ok(())
    }
}
