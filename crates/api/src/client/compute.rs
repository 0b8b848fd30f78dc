//! Calls about codespecs, runs, services, triggers and nodes.

use super::records::path_of;
use super::transport::{Call, Repeat};
use super::{Client, Result, item_path};
use crate::compute::{
    CodespecApplied, CodespecBody, CodespecPage, CodespecShown, LogRequest, NewCodespec, NewRun, NewService,
    NewTrigger, NodeBeat, NodePage, Replicas, RunLog, RunPage, RunShown, ScaleService, ScaleTrigger,
    ServicePage, ServiceShown, StopRequests, TriggerPage, TriggerShown,
};
use crate::settle::CancelRequest;
use http::Method;
use std::time::Duration;
use towline_domain::{ItemId, LeaseToken};

/// Which runs to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunsQuery {
    pub state: Option<String>,
    pub codespec: Option<String>,
    pub pool: Option<String>,
    pub trigger: Option<String>,
    pub tags: Vec<String>,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
}

impl RunsQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let ones = [
            ("state", &self.state),
            ("codespec", &self.codespec),
            ("pool", &self.pool),
            ("trigger", &self.trigger),
            ("cursor", &self.cursor),
        ];
        let mut pairs: Vec<_> =
            ones.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
        pairs.extend(self.limit.map(|limit| ("limit", limit.to_string())));
        pairs.extend(self.tags.iter().map(|tag| ("tag", tag.clone())));
        pairs
    }
}

fn run_path(id: ItemId, rest: &str) -> String {
    item_path(id, rest).replacen("/v1/items/", "/v1/runs/", 1)
}

fn page(path: &str, cursor: Option<&str>) -> Call {
    Call::get(path.to_owned()).query(cursor.map(|cursor| ("cursor", cursor.to_owned())))
}

impl Client {
    /// Creates a version of a codespec, unless the newest one is the same.
    pub async fn put_codespec(&self, name: &str, codespec: CodespecBody) -> Result<CodespecApplied> {
        let call = Call::new(Method::PUT, path_of("/v1/codespecs/", name, ""), Repeat::Safe);
        self.transport.call(self.transport.body(call, &NewCodespec { codespec })?).await
    }

    /// Returns `NAME` or `NAME@VERSION`.
    pub async fn codespec(&self, name: &str) -> Result<CodespecShown> {
        self.transport.call(Call::get(path_of("/v1/codespecs/", name, ""))).await
    }

    pub async fn codespecs(&self, cursor: Option<&str>) -> Result<CodespecPage> {
        self.transport.call(page("/v1/codespecs", cursor)).await
    }

    pub async fn delete_codespec(&self, name: &str) -> Result<()> {
        let call = Call::new(Method::DELETE, path_of("/v1/codespecs/", name, ""), Repeat::Unsafe);
        self.transport.call_empty(call).await
    }

    pub async fn create_run(&self, run: &NewRun) -> Result<RunShown> {
        let repeat = if run.idempotency_key.is_some() { Repeat::Safe } else { Repeat::Unsafe };
        let call = Call::new(Method::POST, "/v1/runs".to_owned(), repeat);
        self.transport.call(self.transport.body(call, run)?).await
    }

    pub async fn run(&self, id: ItemId) -> Result<RunShown> {
        self.transport.call(Call::get(run_path(id, ""))).await
    }

    pub async fn runs(&self, query: &RunsQuery) -> Result<RunPage> {
        self.transport.call(Call::get("/v1/runs".to_owned()).query(query.pairs())).await
    }

    /// Waits up to `timeout` (at most 5 minutes) for the run to end, and returns it as it is then.
    pub async fn wait_for_run(&self, id: ItemId, timeout: Duration) -> Result<RunShown> {
        let call = Call::get(run_path(id, "/wait")).waiting(timeout);
        self.transport.call(call.query(Some(("timeout", format!("{}ms", timeout.as_millis()))))).await
    }

    pub async fn cancel_run(&self, id: ItemId, reason: Option<String>) -> Result<RunShown> {
        let call = Call::new(Method::POST, run_path(id, "/cancel"), Repeat::Unsafe);
        let body = CancelRequest { reason, ..CancelRequest::default() };
        self.transport.call(self.transport.body(call, &body)?).await
    }

    /// Creates the buffer for the log of what has this lease, and returns its id.
    pub async fn create_run_log(&self, id: ItemId, lease: LeaseToken) -> Result<String> {
        let call = Call::new(Method::POST, run_path(id, "/log"), Repeat::Safe);
        let body = LogRequest { lease: Some(lease.into()) };
        let log: RunLog = self.transport.call(self.transport.body(call, &body)?).await?;
        Ok(log.buffer)
    }

    pub async fn put_service(&self, name: &str, service: &NewService) -> Result<ServiceShown> {
        let call = Call::new(Method::PUT, path_of("/v1/services/", name, ""), Repeat::Safe);
        self.transport.call(self.transport.body(call, service)?).await
    }

    pub async fn service(&self, name: &str) -> Result<ServiceShown> {
        self.transport.call(Call::get(path_of("/v1/services/", name, ""))).await
    }

    pub async fn services(&self, state: Option<&str>, cursor: Option<&str>) -> Result<ServicePage> {
        let state = state.map(|state| ("state", state.to_owned()));
        self.transport.call(page("/v1/services", cursor).query(state)).await
    }

    pub async fn scale_service(&self, name: &str, replicas: Replicas) -> Result<ServiceShown> {
        let call = Call::new(Method::POST, path_of("/v1/services/", name, "/scale"), Repeat::Safe);
        self.transport.call(self.transport.body(call, &ScaleService { replicas })?).await
    }

    pub async fn restart_service(&self, name: &str) -> Result<ServiceShown> {
        self.transport
            .call(Call::new(Method::POST, path_of("/v1/services/", name, "/restart"), Repeat::Unsafe))
            .await
    }

    pub async fn delete_service(&self, name: &str) -> Result<()> {
        let call = Call::new(Method::DELETE, path_of("/v1/services/", name, ""), Repeat::Unsafe);
        self.transport.call_empty(call).await
    }

    pub async fn put_trigger(&self, name: &str, trigger: &NewTrigger) -> Result<TriggerShown> {
        let call = Call::new(Method::PUT, path_of("/v1/triggers/", name, ""), Repeat::Safe);
        self.transport.call(self.transport.body(call, trigger)?).await
    }

    pub async fn trigger(&self, name: &str) -> Result<TriggerShown> {
        self.transport.call(Call::get(path_of("/v1/triggers/", name, ""))).await
    }

    pub async fn triggers(&self, cursor: Option<&str>) -> Result<TriggerPage> {
        self.transport.call(page("/v1/triggers", cursor)).await
    }

    pub async fn scale_trigger(&self, name: &str, concurrency: u32) -> Result<TriggerShown> {
        let call = Call::new(Method::POST, path_of("/v1/triggers/", name, "/scale"), Repeat::Safe);
        self.transport.call(self.transport.body(call, &ScaleTrigger { concurrency })?).await
    }

    pub async fn delete_trigger(&self, name: &str) -> Result<()> {
        let call = Call::new(Method::DELETE, path_of("/v1/triggers/", name, ""), Repeat::Unsafe);
        self.transport.call_empty(call).await
    }

    pub async fn nodes(&self, cursor: Option<&str>) -> Result<NodePage> {
        self.transport.call(page("/v1/nodes", cursor)).await
    }

    /// Says that a node works, and returns what it should stop: as soon as there is something, or after `wait`.
    pub async fn beat(&self, node: &str, beat: &NodeBeat, wait: Duration) -> Result<StopRequests> {
        let beat = NodeBeat { wait: Some(wait.into()), ..beat.clone() };
        let call = Call::new(Method::POST, path_of("/v1/nodes/", node, "/beat"), Repeat::Safe).waiting(wait);
        self.transport.call(self.transport.body(call, &beat)?).await
    }

    /// Takes a node off the list.
    pub async fn remove_node(&self, node: &str, instance: &str) -> Result<()> {
        let path = path_of("/v1/nodes/", node, &format!("/{instance}"));
        self.transport.call_empty(Call::new(Method::DELETE, path, Repeat::Safe)).await
    }
}
