//! What can be chosen about the store.

use towline_domain::Millis;
use towline_store::StoreError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The schema that holds Towline's tables.
    pub schema: String,
    /// Connections that write. More of them overlap more commits, and make smaller batches.
    pub workers: usize,
    /// Connections that read, opened as they are needed.
    pub readers: usize,
    /// Bring the schema up to date when opening. Without it, an old schema is refused.
    pub migrate: bool,
    /// Tell other servers what becomes ready, and hear from them; without it, they find out by asking.
    pub notify: bool,
    /// Calls that may wait; more are refused as busy.
    pub waiting_max: usize,
    /// What is kept of what happened; `None`: nothing is told.
    pub events: Option<Kept>,
    /// A statement, or a wait for a lock, that takes longer fails.
    pub statement_timeout_ms: u32,
}

/// Events are kept for about this long, unless they are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    pub bytes: u64,
    pub time: Millis,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept { bytes: 256 << 20, time: Millis::days(1) }
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
            events: Some(Kept::default()),
            statement_timeout_ms: 30_000,
        }
    }
}

impl Options {
    /// A schema's name goes into statements as it is, so it must need no quotes.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let name = self.schema.as_bytes();
        let good = name.first().is_some_and(|byte| byte.is_ascii_lowercase())
            && name.len() <= 63
            && name.iter().all(|&byte| plain(byte))
            && !self.schema.starts_with("pg_");
        if !good {
            let cause = format!(
                "schema {:?} is not a plain name; use a-z, 0-9 and _, beginning with a letter",
                self.schema
            );
            return Err(StoreError::Unavailable { cause });
        }
        if self.workers == 0 || self.readers == 0 {
            let cause = "it needs at least one worker and one reader".to_owned();
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
