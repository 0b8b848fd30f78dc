//! The contract of a store, kept on PostgreSQL.

use crate::harness::Schemas;

towline_store::conformance_tests!(Schemas::default());
