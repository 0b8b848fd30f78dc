//! Calls about key-value records.

use super::transport::{Call, Repeat};
use super::{Client, ClientError, Result};
use crate::code::Code;
use crate::record::{
    IncrementRecord, RecordAction, RecordNumber, RecordPage, RecordResult, RecordSet, RecordShown,
    RecordVerb, RecordsAnswer, RecordsRequest, SetRecord,
};
use http::Method;

impl Client {
    /// Returns a record, or `None` if it does not exist.
    pub async fn record(&self, key: &str) -> Result<Option<RecordShown>> {
        match self.transport.call(Call::get(path(key, ""))).await {
            Ok(shown) => Ok(Some(shown)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets a record and returns whether it was set. A call with a condition is not repeated after a lost
    /// answer: the second call could not tell this client's record from another one.
    pub async fn set_record(&self, key: &str, body: &SetRecord) -> Result<bool> {
        let repeat = if body.if_absent || body.if_value.is_some() { Repeat::Unsafe } else { Repeat::Safe };
        let call = self.transport.body(Call::new(Method::PUT, path(key, ""), repeat), body)?;
        Ok(self.transport.call::<RecordSet>(call).await?.set)
    }

    /// Adds to a record and returns the new value.
    pub async fn increment_record(&self, key: &str, body: &IncrementRecord) -> Result<i64> {
        let repeat = if body.once.is_some() { Repeat::Safe } else { Repeat::Unsafe };
        let call = self.transport.body(Call::new(Method::POST, path(key, "/increment"), repeat), body)?;
        Ok(self.transport.call::<RecordNumber>(call).await?.value)
    }

    /// Deletes a record and returns whether it existed.
    pub async fn delete_record(&self, key: &str) -> Result<bool> {
        let call = Call::new(Method::DELETE, path(key, ""), Repeat::Safe);
        match self.transport.call_empty(call).await {
            Ok(()) => Ok(true),
            Err(error) if is_not_found(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes up to 10,000 calls about records. Each has its own result, in order.
    pub async fn act_on_records(&self, actions: Vec<RecordAction>) -> Result<Vec<RecordResult>> {
        let reads = actions.iter().all(|action| action.verb == RecordVerb::Get);
        let repeat = if reads { Repeat::Safe } else { Repeat::Unsafe };
        let call = Call::new(Method::POST, "/v1/kv".to_owned(), repeat);
        let call = self.transport.body(call, &RecordsRequest { actions })?;
        Ok(self.transport.call::<RecordsAnswer>(call).await?.results)
    }

    /// Returns a page of records whose keys begin with `prefix`, in order of key, after `cursor`.
    pub async fn records(&self, prefix: &str, cursor: Option<&str>) -> Result<RecordPage> {
        let prefix = (!prefix.is_empty()).then(|| ("prefix", prefix.to_owned()));
        let query = prefix.into_iter().chain(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.transport.call(Call::get("/v1/kv".to_owned()).query(query)).await
    }
}

fn is_not_found(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(problem) if Code::parse(&problem.code) == Some(Code::RecordNotFound))
}

/// A key is any text, so its special characters are escaped.
fn path(key: &str, rest: &str) -> String {
    path_of("/v1/kv/", key, rest)
}

/// A path with one escaped segment.
pub(super) fn path_of(before: &str, key: &str, rest: &str) -> String {
    use std::fmt::Write;
    let mut path = before.to_owned();
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => path.push(char::from(byte)),
            // Writing to a string does not fail.
            _ => drop(write!(path, "%{byte:02X}")),
        }
    }
    path + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_segment_whatever_is_in_it() {
        assert_eq!(path("work:a/b..é", "/increment"), "/v1/kv/work%3Aa%2Fb%2E%2E%C3%A9/increment");
    }
}
