//! The conformance suite of stores, on PostgreSQL.

use crate::harness::Schemas;

towline_conformance::conformance_tests!(Schemas::default());
