//! The trace of an item: the headers of W3C Trace Context as an object.

use crate::text::Text;
use serde::{Deserialize, Serialize};
use towline_domain::{Refusal, Trace, TraceParent, TraceState};
use utoipa::ToSchema;

/// The trace that an item belongs to. The server stores it and returns it with the item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceBody {
    /// As in the header of that name: `00-<trace id>-<span id>-<flags>`.
    #[schema(value_type = String)]
    pub traceparent: Text<TraceParent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub tracestate: Option<Text<TraceState>>,
}

impl TryFrom<TraceBody> for Trace {
    type Error = Refusal;

    fn try_from(body: TraceBody) -> Result<Trace, Refusal> {
        Ok(Trace {
            parent: body.traceparent.into_domain("trace.traceparent")?,
            state: body.tracestate.map(|state| state.into_domain("trace.tracestate")).transpose()?,
        })
    }
}

impl TraceBody {
    /// Reads the headers of a call. Malformed headers are ignored.
    pub fn from_headers<'a>(
        mut parents: impl Iterator<Item = &'a str>,
        states: impl Iterator<Item = &'a str>,
    ) -> Option<Trace> {
        let parent = parents.next()?.parse().ok()?;
        // Two parents contradict each other.
        if parents.next().is_some() {
            return None;
        }
        let states: Vec<&str> = states.collect();
        Some(Trace { parent, state: states.join(",").parse().ok() })
    }
}

impl From<Trace> for TraceBody {
    fn from(trace: Trace) -> TraceBody {
        TraceBody { traceparent: trace.parent.into(), tracestate: trace.state.map(Text::from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn malformed_trace_headers_are_ignored() {
        let read = |parents: &[&'static str], states: &[&'static str]| {
            let trace = TraceBody::from_headers(parents.iter().copied(), states.iter().copied());
            trace.map(|trace| (trace.parent.to_string(), trace.state.map(|state| state.to_string())))
        };
        let known = |state: Option<&str>| Some((PARENT.to_owned(), state.map(str::to_owned)));
        assert_eq!(read(&[PARENT], &[]), known(None));
        assert_eq!(read(&[PARENT], &["a=1", "b=2"]), known(Some("a=1,b=2")));
        assert_eq!(read(&[PARENT], &["no state"]), known(None), "the parent is good without it");
        assert_eq!(read(&["00-nothing"], &["a=1"]), None);
        assert_eq!(read(&[], &["a=1"]), None);
        assert_eq!(read(&[PARENT, PARENT], &[]), None);
    }
}
