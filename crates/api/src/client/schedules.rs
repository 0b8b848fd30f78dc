//! Calls about schedules.

use super::transport::{Call, Repeat};
use super::{Client, ClientError, Result};
use crate::schedule::{NextTimes, PutSchedule, ScheduleAnswer, SchedulePage, ScheduleRun, ScheduleShown};
use http::Method;
use towline_domain::ScheduleName;
use towline_domain::name::NameError;

impl Client {
    /// Creates the schedule, or changes it. A dry run changes nothing and answers what would change.
    pub async fn apply_schedule(
        &self,
        name: &str,
        body: &PutSchedule,
        dry_run: bool,
    ) -> Result<ScheduleAnswer> {
        let query = dry_run.then(|| ("dry_run", "true".to_owned()));
        let call = Call::new(Method::POST, path(name, "/apply")?, Repeat::Safe).query(query);
        self.transport.call(self.transport.body(call, body)?).await
    }

    /// Creates a schedule. Succeeds if the same schedule exists.
    pub async fn put_schedule(&self, name: &str, body: &PutSchedule) -> Result<ScheduleAnswer> {
        let call = Call::new(Method::PUT, path(name, "")?, Repeat::Safe);
        self.transport.call(self.transport.body(call, body)?).await
    }

    pub async fn schedule(&self, name: &str) -> Result<ScheduleShown> {
        self.transport.call(Call::get(path(name, "")?)).await
    }

    /// Returns a page of schedules in order of name, after `cursor`.
    pub async fn schedules(&self, cursor: Option<&str>) -> Result<SchedulePage> {
        let query = cursor.map(|cursor| ("cursor", cursor.to_owned()));
        self.transport.call(Call::get("/v1/schedules".to_owned()).query(query)).await
    }

    /// Deletes a schedule. The items that it submitted stay.
    pub async fn delete_schedule(&self, name: &str) -> Result<()> {
        self.transport.call_empty(Call::new(Method::DELETE, path(name, "")?, Repeat::Unsafe)).await
    }

    pub async fn pause_schedule(&self, name: &str) -> Result<ScheduleShown> {
        self.transport.call(Call::new(Method::POST, path(name, "/pause")?, Repeat::Safe)).await
    }

    pub async fn resume_schedule(&self, name: &str) -> Result<ScheduleShown> {
        self.transport.call(Call::new(Method::POST, path(name, "/resume")?, Repeat::Safe)).await
    }

    /// Submits an item now. The next occurrences stay as they are.
    pub async fn run_schedule(&self, name: &str) -> Result<ScheduleRun> {
        self.transport.call(Call::new(Method::POST, path(name, "/run")?, Repeat::Unsafe)).await
    }

    /// Returns the next occurrences.
    pub async fn next_times(&self, name: &str, count: Option<usize>) -> Result<NextTimes> {
        let query = count.map(|count| ("count", count.to_string()));
        self.transport.call(Call::get(path(name, "/next")?).query(query)).await
    }
}

fn path(name: &str, rest: &str) -> Result<String> {
    let name: ScheduleName =
        name.parse().map_err(|error: NameError| ClientError::invalid(error.to_string()))?;
    Ok(format!("/v1/schedules/{name}{rest}"))
}
