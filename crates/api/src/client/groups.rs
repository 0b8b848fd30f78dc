//! Calls about groups.

use super::records::path_of;
use super::transport::{Call, Repeat};
use super::{Client, ItemQuery, Result};
use crate::group::GroupShown;
use crate::item::BulkResult;
use http::Method;
use std::time::Duration;

impl Client {
    /// Returns the progress of a group. A group without submits has no members.
    pub async fn group(&self, name: &str) -> Result<GroupShown> {
        self.transport.call(Call::get(path_of("/v1/groups/", name, ""))).await
    }

    /// Waits up to `timeout` (at most 5 minutes) until the group has `expect` members, at least one, and all
    /// have ended.
    pub async fn wait_group(&self, name: &str, expect: u64, timeout: Duration) -> Result<GroupShown> {
        let call = Call::get(path_of("/v1/groups/", name, "/wait")).waiting(timeout);
        let timeout = ("timeout", format!("{}ms", timeout.as_millis()));
        let expect = (expect > 0).then(|| ("expect", expect.to_string()));
        self.transport.call(call.query([timeout].into_iter().chain(expect))).await
    }

    /// Cancels unfinished members for a few seconds. Repeat with `next` until it is `None`. Uses only the
    /// reason, the cursor and `dry_run` of the query.
    pub async fn cancel_group(&self, name: &str, query: &ItemQuery) -> Result<BulkResult> {
        let path = path_of("/v1/groups/", name, "/cancel");
        let call = Call::new(Method::POST, path, Repeat::Unsafe).query(query.pairs());
        self.transport.call(self.transport.body(call, &query.reason())?).await
    }
}
