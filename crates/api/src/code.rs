//! The one table of error codes: the name that clients match on, and the HTTP status of each.

use towline_domain::Refusal;

macro_rules! codes {
    ($($variant:ident $name:literal $status:literal $title:literal,)*) => {
        /// Why a call failed. The name of a code never changes.
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

            /// A short description for people.
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
    MalformedBody "malformed_body" 400 "malformed body",
    Invalid "invalid" 400 "a value is not allowed",
    TlsRequired "tls_required" 400 "the server accepts only TLS",
    Unauthenticated "unauthenticated" 401 "a valid token is required",
    Forbidden "forbidden" 403 "the token does not allow this",
    CrossOrigin "cross_origin" 403 "requests from other sites are not allowed",
    RouteNotFound "route_not_found" 404 "no such path",
    QueueNotFound "queue_not_found" 404 "no such queue",
    ScheduleNotFound "schedule_not_found" 404 "no such schedule",
    ItemNotFound "item_not_found" 404 "no such item",
    BufferNotFound "buffer_not_found" 404 "no such buffer",
    TokenNotFound "token_not_found" 404 "no such token",
    RecordNotFound "record_not_found" 404 "no such record",
    CodespecNotFound "codespec_not_found" 404 "no such codespec",
    RunNotFound "run_not_found" 404 "no such run",
    ServiceNotFound "service_not_found" 404 "no such service",
    TriggerNotFound "trigger_not_found" 404 "no such trigger",
    MethodNotAllowed "method_not_allowed" 405 "method not allowed for this path",
    RequestTimeout "request_timeout" 408 "the request took too long to arrive",
    QueueExists "queue_exists" 409 "the queue exists and is different",
    CodespecInUse "codespec_in_use" 409 "a service or a trigger uses the codespec",
    ServiceExists "service_exists" 409 "the service exists",
    TriggerExists "trigger_exists" 409 "the trigger exists, or the queue has one",
    ScheduleExists "schedule_exists" 409 "the schedule exists and is different",
    QueueClosed "queue_closed" 409 "the queue is closed",
    QueueBusy "queue_busy" 409 "the queue has unfinished items",
    QueueCompleted "queue_completed" 409 "the queue is completed",
    StoreNotEmpty "store_not_empty" 409 "the store is not empty",
    IdTaken "id_taken" 409 "an item with this id exists",
    KeyConflict "key_conflict" 409 "the idempotency key belongs to an item with other content",
    LeaseLost "lease_lost" 409 "the lease is not, or no longer, valid",
    AlreadySettled "already_settled" 409 "another call settled the lease",
    WrongState "wrong_state" 409 "the item is not in a state that allows this",
    RenewalsExhausted "renewals_exhausted" 409 "the lease cannot be renewed again",
    BufferNotReady "buffer_not_ready" 409 "the buffer is not complete",
    BufferWritten "buffer_written" 409 "the buffer has another writer, or was written already",
    BufferFailed "buffer_failed" 409 "the buffer failed",
    ChunkRefused "chunk_refused" 409 "the chunk does not fit the other chunks",
    EventsGone "events_gone" 410 "the requested events are no longer kept",
    TooLarge "too_large" 413 "too large",
    UnsupportedMediaType "unsupported_media_type" 415 "unsupported content type",
    RangeNotSatisfiable "range_not_satisfiable" 416 "the range is outside of the buffer",
    SchemaMismatch "schema_mismatch" 422 "the item does not match the queue's schema",
    NotSupported "not_supported" 422 "this server does not support that",
    HashMismatch "hash_mismatch" 422 "the data does not match its hash",
    QueueFull "queue_full" 429 "the queue is full",
    TooSlow "too_slow" 429 "the reader is too slow",
    RateLimited "rate_limited" 429 "too many requests",
    Internal "internal" 500 "internal error",
    Damaged "damaged" 500 "stored data is damaged",
    Busy "busy" 503 "the server is overloaded",
    Stopping "stopping" 503 "the server is stopping",
    Unavailable "unavailable" 503 "the store is unavailable",
    StorageUnavailable "storage_unavailable" 503 "object storage is unavailable",
    StoreFull "store_full" 507 "the store is full",
    DiskFull "disk_full" 507 "the disk is full",
}

impl Code {
    #[must_use]
    pub fn of(refusal: &Refusal) -> Code {
        // The domain names its own codes. The test `every_refusal_of_a_client_has_a_code` shows that this table
        // has all that a client can get.
        Code::parse(refusal.code()).unwrap_or(Code::Internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_names_parse_and_are_unique() {
        for (at, code) in CODES.iter().enumerate() {
            assert_eq!(Code::parse(code.name()), Some(*code));
            assert!(CODES[..at].iter().all(|other| other.name() != code.name()));
        }
    }

    /// The codes of refusals that the broker handles itself: schedules guard their submits with a record.
    const HANDLED_BY_BROKER: [&str; 2] = ["not_due", "record_changed"];

    #[test]
    fn every_refusal_of_a_client_has_a_code() {
        let source = include_str!("../../domain/src/refusal.rs");
        let names = source.split("=> \"").skip(1).filter_map(|rest| rest.split('"').next());
        let codes: Vec<&str> =
            names.filter(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')).collect();
        assert!(codes.len() >= 19, "{codes:?}");
        for code in codes {
            let for_clients = !HANDLED_BY_BROKER.contains(&code);
            assert_eq!(Code::parse(code).is_some(), for_clients, "{code}");
        }
    }
}
