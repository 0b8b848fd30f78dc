//! Tests of the checker itself: it accepts every valid history and names the invariant that an invalid one violates.

mod valid_histories;
mod violations;
