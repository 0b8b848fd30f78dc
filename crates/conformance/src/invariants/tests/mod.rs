//! The checker itself: histories that keep the promises give no violation, one that breaks a promise is named.

mod broken;
mod kept;
