//! The metrics of a run, by name, and their medians over several repetitions.

use super::cpu::Usage;
use super::enqueue::EnqueueResult;
use super::latency::{LatencyResult, Times};
use super::life_cycle::LifeCycleResult;
use std::collections::BTreeMap;
use std::time::Duration;

pub const RATE: &str = "items_per_second";
pub const ENQUEUE_RATE: &str = "enqueued_per_second";
pub const DRAIN_RATE: &str = "drained_per_second";
/// Duration of an enqueueing call.
pub const CALL_MS: [&str; 3] = ["call_p50_ms", "call_p99_ms", "call_p999_ms"];
/// From before an enqueue until a worker had the item.
pub const START_MS: [&str; 3] = ["start_p50_ms", "start_p99_ms", "start_p999_ms"];
pub const CPU_CLIENT: &str = "cpu_client_cores";
pub const CPU_SERVER: &str = "cpu_server_cores";
pub const CPU_OTHERS: &str = "cpu_others_cores";
pub const SYNC_MS: &str = "fdatasync_ms";

const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

#[derive(Debug, Clone, PartialEq, Default, serde::Serialize)]
#[serde(transparent)]
pub struct Metrics(BTreeMap<&'static str, f64>);

impl Metrics {
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    fn set(mut self, name: &'static str, value: impl Into<Option<f64>>) -> Metrics {
        if let Some(value) = value.into() {
            self.0.insert(name, value);
        }
        self
    }

    fn divided(&self, by: &Metrics) -> Metrics {
        let whole = |name: &str| by.get(name).filter(|value| *value > 0.0);
        Metrics(self.0.iter().filter_map(|(&name, &value)| Some((name, value / whole(name)?))).collect())
    }

    fn times(self, names: [&'static str; 3], times: &Times) -> Metrics {
        names.into_iter().zip(QUANTILES).fold(self, |metrics, (name, quantile)| {
            metrics.set(name, times.value_at_quantile(quantile) as f64 / 1e6)
        })
    }

    fn cpu(self, usage: Usage) -> Metrics {
        self.set(CPU_CLIENT, usage.client).set(CPU_SERVER, usage.server).set(CPU_OTHERS, usage.others)
    }

    /// The time of fdatasync just before the run.
    pub fn sync_time(self, time: Option<Duration>) -> Metrics {
        self.set(SYNC_MS, time.map(|time| time.as_secs_f64() * 1e3))
    }
}

impl From<EnqueueResult> for Metrics {
    fn from(load: EnqueueResult) -> Metrics {
        Metrics::default().set(RATE, load.items_per_second).times(CALL_MS, &load.calls).cpu(load.cpu)
    }
}

impl From<LifeCycleResult> for Metrics {
    fn from(life: LifeCycleResult) -> Metrics {
        Metrics::default()
            .set(RATE, life.items_per_second)
            .set(ENQUEUE_RATE, life.enqueued_per_second)
            .set(DRAIN_RATE, life.drained_per_second)
            .cpu(life.cpu)
    }
}

impl From<LatencyResult> for Metrics {
    fn from(latency: LatencyResult) -> Metrics {
        Metrics::default().times(START_MS, &latency.starts).times(CALL_MS, &latency.calls).cpu(latency.cpu)
    }
}

/// The median of each metric.
pub fn median(repeats: &[Metrics]) -> Metrics {
    each(repeats, |values| values[values.len() / 2])
}

/// The median of the ratios to the runs that were measured in turns with these.
pub fn ratio(repeats: &[Metrics], of: &[Metrics]) -> Metrics {
    let ratios: Vec<Metrics> = repeats.iter().zip(of).map(|(one, of)| one.divided(of)).collect();
    median(&ratios)
}

/// Half of the range between minimum and maximum, in percent of the median.
pub fn spread_percent(repeats: &[Metrics]) -> Metrics {
    each(repeats, |values| {
        let (low, middle, high) = (values[0], values[values.len() / 2], values[values.len() - 1]);
        if middle == 0.0 { 0.0 } else { (high - low) / 2.0 / middle * 100.0 }
    })
}

fn each(repeats: &[Metrics], of: impl Fn(&[f64]) -> f64) -> Metrics {
    let mut columns: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    for (&name, &value) in repeats.iter().flat_map(|metrics| &metrics.0) {
        columns.entry(name).or_default().push(value);
    }
    Metrics(
        columns
            .into_iter()
            .map(|(name, mut values)| {
                values.sort_by(f64::total_cmp);
                (name, of(&values))
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_half_the_spread() {
        let repeats: Vec<Metrics> =
            [110.0, 90.0, 100.0].into_iter().map(|rate| Metrics::default().set(RATE, rate)).collect();
        assert_eq!(median(&repeats).get(RATE), Some(100.0));
        assert_eq!(spread_percent(&repeats).get(RATE), Some(10.0));
        assert_eq!(median(&repeats).get(CPU_SERVER), None);
    }

    #[test]
    fn a_ratio_compares_runs_of_the_same_round() {
        let rates = |rates: [f64; 3]| rates.map(|rate| Metrics::default().set(RATE, rate));
        // The machine was twice as fast in the third round, which must not matter.
        let ratio = ratio(&rates([90.0, 110.0, 180.0]), &rates([100.0, 100.0, 200.0]));
        assert_eq!(ratio.get(RATE), Some(0.9));
        assert_eq!(ratio.get(CPU_SERVER), None);
    }

    #[test]
    fn times_are_milliseconds() {
        let mut times = super::super::latency::new_times().unwrap();
        for time in 1..=1000 {
            super::super::latency::record(&mut times, Duration::from_micros(time));
        }
        let metrics = Metrics::default().times(START_MS, &times);
        for (name, expected) in START_MS.into_iter().zip([0.5, 0.99, 0.999]) {
            let seen = metrics.get(name).unwrap();
            assert!((seen - expected).abs() < 0.002, "{name} is {seen}");
        }
    }
}
