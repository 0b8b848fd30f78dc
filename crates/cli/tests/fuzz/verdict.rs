//! Whether the server may give an answer.

use crate::calls::Call;
use crate::connection::{Answer, Ended};
use std::collections::BTreeMap;
use std::fmt;
use towline_api::{Code, PROBLEM_JSON, Problem};

const FAULTS_TOLD: usize = 10;

pub enum Verdict {
    /// The name under which the answer is counted.
    Good(String),
    Fault(String),
}

impl Verdict {
    pub fn of(call: &Call, ended: &Ended) -> Verdict {
        match ended {
            Ended::Waited => Verdict::Good("waited".to_owned()),
            Ended::Silent => Verdict::Fault("no answer".to_owned()),
            Ended::Closed => Verdict::Fault("the connection was closed without an answer".to_owned()),
            Ended::Answered(answer) if (200..300).contains(&answer.status) => {
                Verdict::Good(answer.status.to_string())
            }
            Ended::Answered(answer) => refused(call, answer).unwrap_or_else(Verdict::Fault),
        }
    }
}

fn refused(call: &Call, answer: &Answer) -> Result<Verdict, String> {
    let words = String::from_utf8_lossy(&answer.body);
    let status = answer.status;
    // The HTTP library refuses what is not a request, without a problem body.
    if matches!(status, 400 | 414) && answer.body.is_empty() && !is_uri(&call.path) {
        return Ok(Verdict::Good("not a request".to_owned()));
    }
    if status >= 500 && !matches!(status, 503 | 507) {
        return Err(format!("status {status}: {words}"));
    }
    if answer.content_type != PROBLEM_JSON {
        return Err(format!("status {status} as {:?}: {words}", answer.content_type));
    }
    let problem: Problem =
        serde_json::from_slice(&answer.body).map_err(|error| format!("status {status}, {error}: {words}"))?;
    let code = Code::parse(&problem.code).ok_or_else(|| format!("an unknown code: {words}"))?;
    if code.status() != status || problem.status != status {
        return Err(format!("status {status} is not that of its code: {words}"));
    }
    if problem.detail.is_empty() || problem.detail.len() > 8000 {
        return Err(format!("{} bytes of detail: {words}", problem.detail.len()));
    }
    Ok(Verdict::Good(code.name().to_owned()))
}

fn is_uri(path: &str) -> bool {
    path.is_ascii() && !path.bytes().any(|byte| byte <= b' ' || b"\"<>\\^`{|}".contains(&byte))
}

/// How often each answer came.
#[derive(Default)]
pub struct Tally {
    counts: BTreeMap<String, u64>,
    faults: Vec<String>,
}

impl Tally {
    pub fn note(&mut self, call: &Call, before: &str, verdict: Verdict) {
        match verdict {
            Verdict::Good(what) => *self.counts.entry(what).or_default() += 1,
            Verdict::Fault(what) => {
                *self.counts.entry("FAULT".to_owned()).or_default() += 1;
                if self.faults.len() < FAULTS_TOLD {
                    self.faults.push(format!("{what}\n  {}\nafter {before:.1000}\n", call.reproduction()));
                }
            }
        }
    }

    pub fn add(&mut self, other: Tally) {
        for (what, count) in other.counts {
            *self.counts.entry(what).or_default() += count;
        }
        self.faults.extend(other.faults);
    }

    pub fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    pub fn faults(&self) -> String {
        self.faults.iter().take(FAULTS_TOLD).cloned().collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts.iter().try_for_each(|(what, count)| writeln!(f, "  {count:>9}  {what}"))
    }
}
