//! The item filter. Lists, counts, bulk actions and CLI flags use the same names.

use utoipa::IntoParams;

/// A filter. An item matches if it meets every given condition.
#[derive(Debug, Clone, PartialEq, Eq, Default, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ItemFilter {
    /// The item's state: pending (includes scheduled), ready, scheduled, processing, paused, completed,
    /// failed or unfinished. The kinds of failure (expired, cancelled, poison) and the state names of other
    /// queue systems work too. `status` is an alias.
    pub state: Option<String>,
    /// How the item failed: explicit, retries_exhausted, expired, cancelled or poison.
    pub failure: Option<String>,
    /// A tag, as key=value. Repeatable; all must match.
    #[param(required = false)]
    pub tag: Vec<String>,
    /// A tag whose value is this path or lies below it, as key=path. Compares whole segments: /ab does not
    /// match /abc. Repeatable; all must match.
    #[param(required = false)]
    pub tag_prefix: Vec<String>,
    /// Short for `tag=type=...`.
    #[param(rename = "type")]
    pub kind: Option<String>,
    pub group: Option<String>,
    pub idempotency_key: Option<String>,
    /// Exactly this priority.
    pub priority: Option<String>,
    /// This priority or a higher number.
    pub priority_min: Option<String>,
    /// This priority or a lower number.
    pub priority_max: Option<String>,
    /// The current attempt; the first is 1.
    pub attempt: Option<String>,
    pub attempt_min: Option<String>,
    pub attempt_max: Option<String>,
    /// Submitted at this time or later: RFC 3339, or milliseconds since 1970.
    pub created_from: Option<String>,
    /// Submitted before this time.
    pub created_before: Option<String>,
    /// Finished at this time or later.
    pub finished_from: Option<String>,
    /// Finished before this time.
    pub finished_before: Option<String>,
    /// Text in one of the item's error messages, ignoring case.
    pub error: Option<String>,
    /// Ready at this time or later. The time can be in the past: it orders the ready items.
    pub ready_from: Option<String>,
    /// Ready before this time.
    pub ready_before: Option<String>,
    /// Delivered exactly this often.
    pub deliveries: Option<String>,
    pub deliveries_min: Option<String>,
    pub deliveries_max: Option<String>,
    /// Not in this state. Repeatable, like every condition that begins with `not_`; none may match.
    #[param(required = false)]
    pub not_state: Vec<String>,
    /// Not failed this way. Items that have not failed match.
    #[param(required = false)]
    pub not_failure: Vec<String>,
    /// Without this tag, as key=value.
    #[param(required = false)]
    pub not_tag: Vec<String>,
    /// Without a tag at or below this path, as key=path.
    #[param(required = false)]
    pub not_tag_prefix: Vec<String>,
    /// Short for `not_tag=type=...`.
    #[param(required = false)]
    pub not_type: Vec<String>,
    /// Not in this group.
    #[param(required = false)]
    pub not_group: Vec<String>,
    /// Without a tag of this name, whatever its value. Repeatable.
    #[param(required = false)]
    pub no_tag: Vec<String>,
}

impl ItemFilter {
    /// The filter as query parameters.
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
            ("ready_from", &self.ready_from),
            ("ready_before", &self.ready_before),
            ("deliveries", &self.deliveries),
            ("deliveries_min", &self.deliveries_min),
            ("deliveries_max", &self.deliveries_max),
        ];
        let ones = ones.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
        let many = [
            ("tag", &self.tag),
            ("tag_prefix", &self.tag_prefix),
            ("not_state", &self.not_state),
            ("not_failure", &self.not_failure),
            ("not_tag", &self.not_tag),
            ("not_tag_prefix", &self.not_tag_prefix),
            ("not_type", &self.not_type),
            ("not_group", &self.not_group),
            ("no_tag", &self.no_tag),
        ];
        let many =
            many.into_iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value.clone())));
        ones.chain(many).collect()
    }
}
