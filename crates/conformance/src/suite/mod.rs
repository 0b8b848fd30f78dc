//! The contract of [`towline_store::Store`] as one suite that every backend runs.
//!
//! A backend implements [`Harness`] and writes `towline_conformance::conformance_tests!(ItsHarness);` in a test file: each
//! case becomes a test of its own. [`exercise`] runs them all in one go.
//!
//! **Invariant:** cases see a store only through its trait, so what they hold is true of every backend. Time stands
//! still unless a case moves it, and what is due is carried out by the next update.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a case fails by panicking, where it found the breach"
)]

mod acts;
mod closing;
mod events;
mod fairness;
mod flow;
mod key_limits;
mod keys;
mod kv;
mod lease;
mod metrics;
mod model;
mod once;
mod operate;
mod order;
mod queues;
mod races;
mod reads;
mod receive;
mod reopen;
mod replacing;
mod restoring;
mod retries;
mod rig;
mod settle;
mod submit;
mod tallies;
mod timers;
mod waiting;
mod words;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use towline_store::{ManualClock, Store};

/// How to open the store under test.
pub trait Harness: Sync {
    /// A fresh, empty store that takes its time from `clock`.
    fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store>;

    /// Closes the store and opens the same data again; `None`: it keeps nothing, so there is nothing to check.
    fn reopen(&self, store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Option<Arc<dyn Store>>;
}

/// A case takes what opens its store, and panics where the contract is broken.
pub type Case = fn(&dyn Harness);

/// Runs every case.
///
/// # Panics
/// After the last case, naming those in which the store broke the contract.
pub fn exercise(harness: &dyn Harness) {
    let broken: Vec<&str> = CASES
        .iter()
        .filter(|(_, case)| catch_unwind(AssertUnwindSafe(|| case(harness))).is_err())
        .map(|(name, _)| *name)
        .collect();
    assert!(broken.is_empty(), "the contract is broken in: {}", broken.join(", "));
}

/// Runs the case of that name.
///
/// # Panics
/// Where the store breaks the contract, or if there is no such case.
pub fn run(name: &str, harness: &dyn Harness) {
    let found = CASES.iter().find(|(case, _)| *case == name);
    let (_, case) = found.unwrap_or_else(|| panic!("no case is named {name}"));
    case(harness);
}

/// One `#[test]` for each case, in a module for each subject, against the harness the expression makes.
#[macro_export]
macro_rules! conformance_tests {
    ($harness:expr) => {
        $crate::with_conformance_cases! { [$crate::conformance_test_functions] [$harness] }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_test_functions {
    ([$harness:expr] $($subject:ident { $($case:ident)* })*) => {
        $(mod $subject {
            #[allow(unused_imports, reason = "the harness may be named by its whole path")]
            use super::*;
            $(#[test]
            fn $case() {
                $crate::suite::run(concat!(stringify!($subject), "::", stringify!($case)), &$harness);
            })*
        })*
    };
}

macro_rules! table {
    ([] $($subject:ident { $($case:ident)* })*) => {
        /// Every case, by its subject and name.
        pub const CASES: &[(&str, Case)] =
            &[$($((concat!(stringify!($subject), "::", stringify!($case)), $subject::$case)),*),*];
    };
}

/// Hands the list of all cases to another macro: the table here, the tests of a backend there.
#[doc(hidden)]
#[macro_export]
macro_rules! with_conformance_cases {
    ([$($then:tt)*] [$($arguments:tt)*]) => {
        $($then)* ! { [$($arguments)*]
            queues {
                a_new_queue_is_open_and_empty
                creating_the_same_again_is_the_same_queue
                creating_another_under_the_name_is_refused
                a_policy_beyond_its_limits_is_refused
                a_changed_policy_holds_from_then_on
                queues_are_paged_in_byte_order_of_name
                what_names_no_queue_is_refused
                a_paused_queue_takes_items_and_gives_none
                deleting_a_queue_takes_its_items_along
                a_queue_of_finished_items_is_deleted_without_force
                a_queue_made_again_is_another_queue
                what_left_a_queue_outlives_it
                since_when_an_item_is_ready_is_told
            }
            closing {
                closing_an_empty_queue_completes_it
                a_closed_queue_accepts_nothing_and_gives_what_is_left
                commit_and_fail_complete_a_closed_queue
                cancel_and_delete_complete_a_closed_queue
                time_completes_a_closed_queue
                a_move_completes_a_closed_queue
                giving_back_does_not_complete_a_closed_queue
                batches_complete_a_closed_queue_once
                a_paused_queue_still_closes_and_completes
            }
            submit {
                a_plain_item_has_the_defaults
                payloads_come_back_byte_for_byte
                every_part_of_a_submit_is_kept
                the_largest_item_fits_and_no_larger
                what_is_beyond_the_limits_is_refused_and_leaves_nothing
                a_time_in_the_past_means_now
                the_depth_limit_holds_inside_a_batch
                a_schema_is_held_to_and_a_refusal_leaves_nothing
                one_bad_element_never_fails_its_neighbours
                operations_of_a_batch_see_what_came_before
                a_batch_has_a_largest_size
                a_trace_stays_with_its_item
            }
            once {
                an_item_and_its_record_come_together_or_not_at_all
                of_many_with_the_same_record_one_submits
                a_refused_submit_leaves_its_record
                it_is_not_made_before_its_time
                both_are_there_after_a_reopening
            }
            keys {
                the_same_key_and_content_is_the_same_item
                the_same_key_with_another_content_is_a_conflict
                the_same_in_another_trace_is_the_same_item
                a_key_holds_within_its_batch_and_its_queue
                a_key_claims_what_was_submitted_not_what_became_of_it
                a_key_stays_with_its_queue_when_the_item_moves
                a_key_is_free_when_its_item_is_gone
                a_known_key_is_answered_by_a_closed_or_full_queue
                a_chosen_id_is_used_once
                an_id_is_free_when_its_item_is_gone
            }
            replacing {
                the_one_that_waits_becomes_what_was_submitted_last
                what_something_happened_to_is_left_alone
                each_submit_pushes_it_back_up_to_a_bound
                one_that_is_ready_keeps_its_place
                no_new_place_is_taken
                keys_are_apart
                a_batch_sees_its_own_replacing
                what_does_not_go_together_is_refused
                replacing_is_told
                what_replaced_survives
                a_replace_key_goes_along
                one_waits_however_many_submit_at_once
            }
            receive {
                nothing_is_given_before_its_time
                a_resumed_item_still_waits_for_its_time
                a_receive_gives_at_most_what_was_asked_for
                no_item_is_given_twice_at_a_time
                tokens_are_the_seeds_in_order
                a_receive_brings_the_fields_asked_for
                what_is_received_is_what_is_stored
                deliveries_and_attempts_are_counted
                a_receiver_may_have_buffers_made
                a_receiver_may_choose_its_visibility
                completed_is_never_said_together_with_an_item
                what_expires_at_once_is_never_given
            }
            order {
                fifo_is_by_ready_time_then_submission
                priority_is_lower_first_then_ready_time_then_submission
                score_is_highest_first_and_older_items_gain
                a_scheduled_item_of_a_scored_queue_waits_for_its_time
                equal_ready_times_are_by_submission_however_they_came_about
                a_chosen_id_does_not_change_the_order
                what_became_ready_unnoticed_is_not_late
                what_is_given_back_takes_its_place_by_time
                what_is_given_back_for_later_takes_its_place_then
                a_resumed_item_keeps_its_place
                a_lapsed_item_comes_back_behind_what_waited
                a_changed_priority_counts_at_once
                an_item_from_another_queue_takes_its_place_by_time
                many_items_keep_their_order_through_batches_of_any_size
            }
            lease {
                a_heartbeat_extends_the_lease
                a_lease_is_valid_until_its_deadline_and_not_at_it
                a_lapse_is_noticed_by_the_call_that_comes_too_late
                a_foreign_token_settles_nothing
                a_stale_token_settles_nothing
                a_settle_comes_too_late_after_cancel_delete_or_expiry
                an_assigned_lease_must_be_acknowledged
                renewals_follow_the_queues_rule
                a_settle_of_an_unknown_item_is_refused
            }
            settle {
                a_repeated_settle_gets_the_same_answer
                a_repeated_settle_may_bring_another_jitter_seed
                another_settle_of_the_same_lease_is_refused
                only_one_of_a_batch_of_settles_counts
                every_verb_can_set_and_unset_every_field
                edits_add_up_and_reach_the_next_holder
                every_verb_can_change_the_priority
                an_item_can_be_given_back_to_another_queue
                a_queue_that_cannot_take_an_item_leaves_the_lease
                a_commit_keeps_its_outcome
                a_commit_must_satisfy_the_schema
                a_removed_item_answers_no_repetition
                a_commit_answers_what_it_left
            }
            retries {
                attempts_are_one_more_than_retries
                all_ways_of_losing_an_attempt_count_together
                a_defer_is_never_counted
                an_item_may_have_retries_of_its_own
                backoff_grows_up_to_its_cap
                an_item_may_have_a_backoff_of_its_own
                jitter_follows_the_seed_of_the_call
                the_first_and_the_latest_errors_are_kept
                a_long_reason_is_cut_and_an_absurd_one_refused
                holders_that_vanish_in_a_row_make_poison
                an_unfinished_item_expires
                giving_up_counts_from_the_first_delivery
                what_fails_goes_to_the_dead_letters
                dead_letters_leave_room_in_their_origin
                what_is_cancelled_is_not_a_dead_letter
                without_open_dead_letters_a_failed_item_stays
            }
            operate {
                each_operation_is_allowed_where_it_makes_sense
                a_cancelled_item_is_failed_with_the_reason
                a_paused_item_is_not_given_until_resumed
                a_deleted_item_is_gone
                a_delete_can_be_limited_to_a_state
                what_was_replaced_is_not_meant
                a_redriven_item_starts_anew
                every_kind_of_failure_can_be_redriven
                a_dead_letter_is_redriven_home
                redrive_enters_a_closed_queue_but_not_a_completed_one
                a_dead_letter_of_a_completed_queue_stays_dead
                a_purge_deletes_what_matches_in_chunks
            }
            acts {
                a_tag_prefix_goes_by_whole_segments
                numbers_times_and_failures_select
                counts_equal_lists
                an_act_reaches_what_matches_and_nothing_else
                what_changed_before_its_turn_is_left_alone
                a_deleted_item_never_comes_back
                a_changed_priority_keeps_the_time
                a_moved_item_takes_its_place_by_time
            }
            timers {
                a_finished_item_is_removed_when_its_ttl_ends
                without_a_ttl_a_finished_item_is_kept
                a_ttl_of_nothing_removes_at_once
                a_ttl_touches_nothing_unfinished
                becoming_ready_needs_no_update
                a_sweep_says_how_much_time_changed
                any_update_carries_out_what_is_due
                many_things_due_at_once_are_all_carried_out
                the_next_wake_is_exact
                time_never_goes_back
            }
            reads {
                items_are_found_in_the_order_asked_for
                lists_are_in_order_of_submission
                a_list_shows_whole_items
                heads_alone_are_those_of_whole_items
                filters_select
                states_select
                what_stays_is_seen_once_while_others_come_and_go
                a_cursor_outlives_the_item_it_points_at
                a_page_has_at_least_one_item_and_a_largest_size
            }
            kv {
                a_value_comes_back_byte_for_byte
                keys_are_any_text_within_the_limits
                a_record_ends_with_its_ttl
                set_if_absent_has_one_winner
                increments_add_up
                a_thing_is_counted_once
                a_record_of_another_store_is_taken_over_once
                delete_says_whether_there_was_anything
                replace_wins_against_what_was_seen
                records_are_listed_by_prefix
            }
            tallies {
                every_ending_is_counted_once
                a_batch_is_counted_whole
                a_tally_outlives_its_items
                hours_are_told_apart
                a_dead_letter_counts_where_it_failed
                tags_that_the_policy_names_are_counted
                too_many_values_are_counted_together
                old_hours_go
                a_queue_takes_its_tallies_along
                they_survive
                what_was_restored_was_counted_elsewhere
            }
            metrics {
                every_ending_and_every_retry_is_counted
                how_long_items_wait_and_run_is_measured
                a_batch_is_measured_whole
                what_was_restored_was_counted_elsewhere
                a_lease_says_when_it_began_after_a_reopening
            }
            flow {
                no_more_are_processed_than_the_limit
                a_slot_is_free_however_a_lease_ends
                a_batch_sees_its_own_ends
                leases_that_lapse_at_once_make_room_at_once
                a_limit_that_changes_counts_at_once
                a_paused_queue_at_its_limit_gives_out_nothing
                the_limit_holds_against_many
                a_rate_lets_a_burst_pass_and_then_so_many
                who_receives_hears_how_many_more_would_pass
                what_is_not_there_uses_nothing_up
                a_rate_that_changes_counts_at_once
                a_rate_and_a_limit_hold_together
                numbers_out_of_range_are_refused
                limits_survive
            }
            fairness {
                a_few_do_not_wait_for_many
                weights_are_kept
                who_was_away_has_no_credit
                each_key_has_the_queues_order
                items_without_a_key_are_one_key
                it_is_turned_on_and_off_while_items_wait
                whatever_happens_to_an_item_it_keeps_its_key
                a_paused_queue_keeps_its_turns
                what_leaves_the_queue_leaves_its_turn
                the_turn_of_what_expires_goes_to_the_next
                it_goes_on_after_a_reopening
                a_queue_made_again_begins_anew
                many_who_receive_at_once_share_the_turns
                weights_out_of_range_are_refused
            }
            key_limits {
                no_more_of_a_key_are_processed_than_its_limit
                a_place_of_a_key_is_free_however_a_lease_ends
                a_lapse_makes_room_in_the_same_call
                a_batch_sees_its_own_ends_of_each_key
                what_comes_of_a_key_at_its_limit_waits
                a_limit_by_key_that_changes_counts_at_once
                limits_by_key_and_of_the_queue_hold_together
                the_limit_by_key_holds_against_many
                limits_by_key_survive
                keys_at_their_limit_keep_no_other_waiting
                keys_at_their_limit_are_named
                of_many_keys_at_their_limit_some_are_named
                what_expires_takes_no_place_of_its_key
                what_was_processed_before_the_limit_came_counts
                limits_by_key_out_of_range_are_refused
            }
            events {
                each_step_of_a_life_is_told_once
                what_time_does_is_told
                queues_are_told_of
                what_is_refused_or_repeated_tells_nothing
                a_reader_goes_on_where_it_was
                from_now_on_tells_what_comes
                an_empty_store_has_nothing_to_tell
                a_chosen_id_is_told
                a_dead_letter_says_where_it_failed
                a_restored_item_is_told_of_once
                they_survive
                a_cursor_of_another_store_is_not_taken
            }
            waiting {
                it_is_not_given_out_before_its_time
                it_ends_when_its_time_cannot_come
                what_was_seen_of_items_is_kept
                one_that_waits_can_be_ended
                what_cannot_be_waited_for_is_refused
                each_step_of_a_member_tells_its_group
                a_member_is_known_after_a_reopening
                one_that_waits_goes_along_to_another_store
            }
            races {
                every_item_is_committed_exactly_once
                a_lease_is_settled_by_one_of_many
                an_item_is_received_by_one_of_many
                one_key_makes_one_item
                one_chosen_id_makes_one_item
                the_depth_limit_holds_against_many
                set_if_absent_has_one_winner_of_many
                increments_of_many_add_up
                many_who_count_the_same_things_count_each_once
                what_many_do_is_told_in_order_and_whole
                readers_see_whole_states_while_others_write
            }
            reopen {
                an_empty_store_opens_again
                everything_survives_again_and_again
                each_step_of_a_life_survives
                a_lease_outlives_a_reopening
                a_repetition_is_known_after_a_reopening
                the_order_survives
                the_order_of_scores_survives
                keys_and_ids_stay_taken_and_free
                new_ids_are_new
                a_dead_letter_finds_home
                time_passes_while_closed
                time_does_not_go_back_over_a_reopening
                queues_go_on_where_they_were
                a_cursor_goes_on_after_a_reopening
            }
            restoring {
                everything_is_found_as_it_was
                what_was_put_in_survives
                a_lease_goes_along
                a_key_goes_along
                a_dead_letter_still_finds_home
                only_an_open_queue_takes_them
                what_cannot_have_been_stored_is_refused
            }
            model {
                random_histories_agree_with_the_reference_store
            }
        }
    };
}

with_conformance_cases! { [table] [] }
