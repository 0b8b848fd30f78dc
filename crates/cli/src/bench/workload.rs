//! What a run uses beside its payload: the queue's policy and the keys of the items.

use crate::policy::PolicyArgs;
use anyhow::ensure;
use clap::Args;
use serde::Serialize;
use std::time::Duration;
use towline_api::{NewItem, PolicyBody, Span};

#[derive(Debug, Args)]
pub struct WorkloadArgs {
    /// Number of fairness keys, assigned to items in turn.
    #[arg(long, value_name = "N")]
    keys: Option<u64>,
    /// Number of replace keys, assigned to items in turn. Only for enqueueing runs.
    #[arg(long, value_name = "N")]
    replace_keys: Option<u64>,
    /// Also measure each run without the policy and the replace keys, in turns, and report the ratio.
    #[arg(long)]
    compare: bool,
    #[command(flatten)]
    policy: PolicyArgs,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Workload {
    pub policy: PolicyBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replace_keys: Option<u64>,
}

impl WorkloadArgs {
    /// The workloads to measure in turns: with --compare the baseline first, then what was requested.
    pub fn get(&self) -> anyhow::Result<Vec<Workload>> {
        for (name, keys) in [("--keys", self.keys), ("--replace-keys", self.replace_keys)] {
            ensure!(keys != Some(0), "{name} is 0; use 1 or more");
        }
        let policy = self.policy.clone().body(None);
        ensure!(
            policy.completed_ttl.is_none() && policy.item_ttl.is_none(),
            "--completed-ttl and --item-ttl do not apply: the benchmark deletes completed items at once"
        );
        let plain = Workload { keys: self.keys, ..Workload::default() };
        let asked = Workload { policy, replace_keys: self.replace_keys, ..plain.clone() };
        ensure!(
            !self.compare || asked != plain,
            "nothing to compare; give a policy, for example --concurrency 1000, or --replace-keys"
        );
        Ok(if self.compare { vec![plain, asked] } else { vec![asked] })
    }
}

impl Workload {
    /// The queue's policy. Completed items are deleted at once, as in the peers' runs.
    pub fn queue(&self) -> PolicyBody {
        PolicyBody { completed_ttl: Some(Some(Span::from(Duration::ZERO))), ..self.policy.clone() }
    }

    /// Adds the keys of the item that is submitted as the `number`th.
    pub fn apply(&self, item: NewItem, number: u64) -> NewItem {
        let name = |keys: Option<u64>| keys.map(|keys| format!("key-{}", number % keys));
        NewItem { fairness_key: name(self.keys), replace_key: name(self.replace_keys), ..item }
    }

    pub fn replaces(&self) -> bool {
        self.replace_keys.is_some()
    }

    /// How many items are pending after this many submits.
    pub fn left(&self, submitted: u64) -> u64 {
        self.replace_keys.map_or(submitted, |keys| keys.min(submitted))
    }
}

/// As in flags: `concurrency=1000 keys=10`.
impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let policy = serde_json::to_value(&self.policy).unwrap_or_default();
        let keys = [("keys", self.keys), ("replace-keys", self.replace_keys)];
        let named = keys.into_iter().filter_map(|(name, keys)| Some((name.to_owned(), keys?.to_string())));
        let policy = policy.as_object().cloned().unwrap_or_default().into_iter();
        let all = policy.map(|(name, value)| (name, value.to_string())).chain(named);
        let words: Vec<String> = all.map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        workload: WorkloadArgs,
    }

    fn workload(flags: &[&str]) -> anyhow::Result<Vec<Workload>> {
        Line::try_parse_from(std::iter::once(&"bench").chain(flags))?.workload.get()
    }

    #[test]
    fn compared_workloads_differ_only_in_the_named_policy() {
        let both = workload(&["--keys", "3", "--fairness", "on", "--compare"]).unwrap();
        let [plain, asked] = both.as_slice() else { panic!("{both:?}") };
        for workload in &both {
            let keys =
                [0, 1, 2, 3].map(|number| workload.apply(NewItem::default(), number).fairness_key.unwrap());
            assert_eq!(keys, ["key-0", "key-1", "key-2", "key-0"]);
        }
        assert_eq!((plain.queue().fairness, asked.queue().fairness.is_some()), (None, true));
        assert_eq!(asked.to_string(), "fairness={\"weights\":{}} keys=3");
    }

    #[test]
    fn bad_workload_flags_are_refused_with_the_cause() {
        for (flags, words) in [
            (&["--keys", "0"][..], "--keys is 0"),
            (&["--replace-keys", "0"], "--replace-keys is 0"),
            (&["--compare"], "nothing to compare"),
            (&["--compare", "--keys", "5"], "nothing to compare"),
            (&["--completed-ttl", "1h"], "--completed-ttl"),
        ] {
            let error = workload(flags).unwrap_err().to_string();
            assert!(error.contains(words), "{flags:?}: {error}");
        }
    }

    #[test]
    fn replaced_items_are_not_pending() {
        let replacing = workload(&["--replace-keys", "10"]).unwrap().remove(0);
        assert_eq!((replacing.left(4), replacing.left(1000)), (4, 10));
        assert_eq!(Workload::default().left(1000), 1000);
    }
}
