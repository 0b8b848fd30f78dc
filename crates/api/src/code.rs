//! The one table of codes: what clients match on, and the status each is answered with.

use towline_domain::Refusal;

macro_rules! codes {
    ($($variant:ident $name:literal $status:literal $title:literal,)*) => {
        /// A stable name for why a call was not carried out.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($variant,)*
        }

        /// Every code, in the order of `docs/errors.md`.
        pub const CODES: &[Code] = &[$(Code::$variant,)*];

        impl Code {
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }

            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Code::$variant => $status,)* }
            }

            /// The code in words.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Code::$variant => $title,)* }
            }

            #[must_use]
            pub fn parse(name: &str) -> Option<Code> {
                Some(match name { $($name => Code::$variant,)* _ => return None })
            }
        }
    };
}

codes! {
    MalformedBody "malformed_body" 400 "the body cannot be read",
    Invalid "invalid" 400 "a value is not allowed",
    Unauthenticated "unauthenticated" 401 "a token that is good is needed",
    Forbidden "forbidden" 403 "the token does not allow this",
    CrossOrigin "cross_origin" 403 "a page of another site may not call this server",
    RouteNotFound "route_not_found" 404 "there is nothing at this path",
    QueueNotFound "queue_not_found" 404 "there is no such queue",
    ScheduleNotFound "schedule_not_found" 404 "there is no such schedule",
    ItemNotFound "item_not_found" 404 "there is no such item",
    BufferNotFound "buffer_not_found" 404 "there is no such buffer",
    TokenNotFound "token_not_found" 404 "there is no such token",
    RecordNotFound "record_not_found" 404 "there is no such record",
    MethodNotAllowed "method_not_allowed" 405 "this path does not take this method",
    RequestTimeout "request_timeout" 408 "the request took too long to arrive",
    QueueExists "queue_exists" 409 "the queue exists and is different",
    QueueClosed "queue_closed" 409 "the queue takes no new items",
    QueueBusy "queue_busy" 409 "the queue has unfinished items",
    QueueCompleted "queue_completed" 409 "the queue is completed",
    IdTaken "id_taken" 409 "an item with this id exists",
    KeyConflict "key_conflict" 409 "the idempotency key belongs to an item with another content",
    LeaseLost "lease_lost" 409 "the lease is not, or no longer, valid",
    AlreadySettled "already_settled" 409 "the lease was settled by another call",
    WrongState "wrong_state" 409 "the item is not in a state that allows this",
    RenewalsExhausted "renewals_exhausted" 409 "the lease cannot be renewed again",
    NotDue "not_due" 409 "it is not time yet",
    RecordChanged "record_changed" 409 "the record was changed meanwhile",
    BufferNotReady "buffer_not_ready" 409 "the buffer is not whole",
    BufferExists "buffer_exists" 409 "a buffer with this id exists",
    BufferWritten "buffer_written" 409 "the buffer has another writer, or was written already",
    BufferFailed "buffer_failed" 409 "the buffer failed",
    ChunkRefused "chunk_refused" 409 "the chunk does not go together with the others",
    EventsGone "events_gone" 410 "the events that were asked for are not kept any more",
    TooLarge "too_large" 413 "something is larger than allowed",
    UnsupportedMediaType "unsupported_media_type" 415 "the body is in a format this server does not read",
    RangeNotSatisfiable "range_not_satisfiable" 416 "nothing is in this range",
    SchemaMismatch "schema_mismatch" 422 "the queue's schema asks for something else",
    NotSupported "not_supported" 422 "this server cannot do that",
    HashMismatch "hash_mismatch" 422 "the bytes are not those that were announced",
    QueueFull "queue_full" 429 "the queue holds as many items as it may",
    TooSlow "too_slow" 429 "the reader does not keep up with what happens",
    RateLimited "rate_limited" 429 "the caller calls too often",
    Internal "internal" 500 "the server made a mistake",
    Damaged "damaged" 500 "stored data is damaged",
    Busy "busy" 503 "the server has too much to do",
    Stopping "stopping" 503 "the server is stopping",
    Unavailable "unavailable" 503 "the store cannot be used",
    StorageUnavailable "storage_unavailable" 503 "the storage of buffers cannot be used",
    StoreFull "store_full" 507 "the store holds as much as it may",
    DiskFull "disk_full" 507 "the disk is full",
}

impl Code {
    #[must_use]
    pub fn of(refusal: &Refusal) -> Code {
        // The domain names its own codes; `every_refusal_has_a_code` shows that none is missing here.
        Code::parse(refusal.code()).unwrap_or(Code::Internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_are_unique() {
        for (at, code) in CODES.iter().enumerate() {
            assert_eq!(Code::parse(code.name()), Some(*code));
            assert!(CODES[..at].iter().all(|other| other.name() != code.name()));
        }
    }

    #[test]
    fn every_refusal_has_a_code() {
        let source = include_str!("../../domain/src/refusal.rs");
        let names = source.split("=> \"").skip(1).filter_map(|rest| rest.split('"').next());
        let codes: Vec<&str> =
            names.filter(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')).collect();
        assert!(codes.len() >= 19, "{codes:?}");
        for code in codes {
            assert!(Code::parse(code).is_some(), "{code} is in no line of the table");
        }
    }
}
