//! Which items are meant: the same names in lists, in counts, in acts on all that match, and as flags.

use utoipa::IntoParams;

/// Everything that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ItemFilter {
    /// pending (also scheduled ones), ready, scheduled, processing, paused, completed, failed or unfinished; the names of
    /// other systems are understood, and those of kinds of failure: expired, cancelled, poison. `status` is the same.
    pub state: Option<String>,
    /// Of failed items: explicit, retries_exhausted, expired, cancelled or poison.
    pub failure: Option<String>,
    /// key=value; may be given several times, and then all must match.
    #[param(required = false)]
    pub tag: Vec<String>,
    /// key=path: that, or what lies under it by whole segments: /ab never means /abc. May be given several times.
    #[param(required = false)]
    pub tag_prefix: Vec<String>,
    /// Short for `tag=type=...`: items have no other type.
    #[param(rename = "type")]
    pub kind: Option<String>,
    pub group: Option<String>,
    pub idempotency_key: Option<String>,
    /// This priority.
    pub priority: Option<String>,
    /// This priority or a later one.
    pub priority_min: Option<String>,
    /// This priority or an earlier one.
    pub priority_max: Option<String>,
    /// At this attempt; the first is 1.
    pub attempt: Option<String>,
    pub attempt_min: Option<String>,
    pub attempt_max: Option<String>,
    /// Submitted then or later: RFC 3339, or milliseconds since 1970.
    pub created_from: Option<String>,
    /// Submitted before then.
    pub created_before: Option<String>,
    /// Finished then or later.
    pub finished_from: Option<String>,
    /// Finished before then.
    pub finished_before: Option<String>,
    /// Text in the message of one of its errors, in any case.
    pub error: Option<String>,
}

impl ItemFilter {
    /// As they stand in an address.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let ones = [
            ("state", &self.state),
            ("failure", &self.failure),
            ("type", &self.kind),
            ("group", &self.group),
            ("idempotency_key", &self.idempotency_key),
            ("priority", &self.priority),
            ("priority_min", &self.priority_min),
            ("priority_max", &self.priority_max),
            ("attempt", &self.attempt),
            ("attempt_min", &self.attempt_min),
            ("attempt_max", &self.attempt_max),
            ("created_from", &self.created_from),
            ("created_before", &self.created_before),
            ("finished_from", &self.finished_from),
            ("finished_before", &self.finished_before),
            ("error", &self.error),
        ];
        let ones = ones.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
        let many = [("tag", &self.tag), ("tag_prefix", &self.tag_prefix)];
        let many =
            many.into_iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value.clone())));
        ones.chain(many).collect()
    }
}
