//! The contract of a store, kept on PostgreSQL.

use crate::harness::Schemas;

towline_conformance::conformance_tests!(Schemas::default());
