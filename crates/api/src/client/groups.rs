//! Calls about groups.

use super::records::path_of;
use super::transport::{Call, Repeat};
use super::{Client, ItemQuery, Result};
use crate::group::GroupShown;
use crate::item::BulkResult;
use http::Method;
use std::time::Duration;

impl Client {
    /// How a group stands. One that nobody has submitted to has no members.
    pub async fn group(&self, name: &str) -> Result<GroupShown> {
        self.transport.call(Call::get(path_of("/v1/groups/", name, ""))).await
    }

    /// Waits up to `timeout` (at most 5 minutes) until the group has had `expect` members, at least one, and all have ended.
    pub async fn wait_group(&self, name: &str, expect: u64, timeout: Duration) -> Result<GroupShown> {
        let call = Call::get(path_of("/v1/groups/", name, "/wait")).waiting(timeout);
        let timeout = ("timeout", format!("{}ms", timeout.as_millis()));
        let expect = (expect > 0).then(|| ("expect", expect.to_string()));
        self.transport.call(call.query([timeout].into_iter().chain(expect))).await
    }

    /// Cancels unfinished members, as many as fit into a few seconds; go on with `next` until it is `None`. Of the query, the
    /// reason, the cursor and whether it is a dry run count.
    pub async fn cancel_group(&self, name: &str, query: &ItemQuery) -> Result<BulkResult> {
        let path = path_of("/v1/groups/", name, "/cancel");
        self.transport.call(Call::new(Method::POST, path, Repeat::Unsafe).query(query.pairs())).await
    }
}
