//! The contract of [`crate::Store`] as one suite.
