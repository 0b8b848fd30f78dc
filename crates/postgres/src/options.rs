//! Options of the store.

use towline_domain::Millis;
use towline_store::StoreError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The schema that holds Towline's tables.
    pub schema: String,
    /// How many connections write. More connections overlap more commits, but make the batches smaller.
    pub workers: usize,
    /// How many connections read. They are opened as needed.
    pub readers: usize,
    /// Bring the schema up to date when opening. If false, an old schema is refused.
    pub migrate: bool,
    /// Notify other servers of ready items, and listen to their notifications. If false, servers find out by polling.
    pub notify: bool,
    /// How many calls may wait. Further calls are refused as busy.
    pub waiting_max: usize,
    /// How long events are kept; `None`: no events are written.
    pub events: Option<EventRetention>,
    /// A statement that takes longer, or waits longer for a lock, fails.
    pub statement_timeout_ms: u32,
}

/// Events are kept for about this time, or less if they take more than this many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRetention {
    pub bytes: u64,
    pub time: Millis,
}

impl Default for EventRetention {
    fn default() -> EventRetention {
        EventRetention { bytes: 256 << 20, time: Millis::days(1) }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            schema: "towline".to_owned(),
            workers: 2,
            readers: 4,
            migrate: true,
            notify: true,
            waiting_max: 16_384,
            events: Some(EventRetention::default()),
            statement_timeout_ms: 30_000,
        }
    }
}

impl Options {
    /// The name of a schema goes into statements unquoted, so it must need no quotes.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let name = self.schema.as_bytes();
        let good = name.first().is_some_and(|byte| byte.is_ascii_lowercase())
            && name.len() <= 63
            && name.iter().all(|&byte| plain(byte))
            && !self.schema.starts_with("pg_");
        if !good {
            let cause = format!(
                "schema name {:?} would need quotes; use a-z, 0-9 and _, beginning with a letter",
                self.schema
            );
            return Err(StoreError::Unavailable { cause });
        }
        if self.workers == 0 || self.readers == 0 {
            let cause = "the store needs at least one worker and one reader".to_owned();
            return Err(StoreError::Unavailable { cause });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_needs_quotes_is_refused() {
        for good in ["towline", "t", "case_17"] {
            Options { schema: good.to_owned(), ..Options::default() }.check().unwrap();
        }
        for bad in ["", "Towline", "to-wline", "1st", "a b", "a\"b", "pg_catalog", "é", &"x".repeat(64)] {
            assert!(Options { schema: bad.to_owned(), ..Options::default() }.check().is_err(), "{bad:?}");
        }
    }
}
