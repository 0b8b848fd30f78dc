//! The contract of [`towline_store::Store`] as one suite that every store runs.
//!
//! A store's tests implement [`Harness`] and write `towline_conformance::conformance_tests!(ItsHarness);`. Each case
//! becomes a test. [`exercise`] runs all cases in one call.
//!
//! **Invariant:** cases use a store only through its trait, so every store can run them. The clock stands still unless a
//! case moves it. The next update carries out what is due.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a case fails with a panic")]

mod bulk_actions;
mod closing;
mod dependencies;
mod events;
mod fairness;
mod flow;
mod full_store;
mod hand_offs;
mod idempotency_keys;
mod key_limits;
mod kv;
mod lease;
mod metrics;
mod model;
mod operate;
mod operations;
mod order;
mod queues;
mod races;
mod reads;
mod receive;
mod record_guards;
mod reopen;
mod replace_keys;
mod restore;
mod retries;
mod rig;
mod settle;
mod submit;
mod tallies;
mod timers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use towline_store::{ManualClock, Store};

/// How to open the store under test.
pub trait Harness: Sync {
    /// Opens a new, empty store that reads the time from `clock`.
    fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store>;

    /// Opens a store that holds at most this many bytes of key-value records; `None` for a store without such a limit.
    fn open_with_room_for_records(&self, _: Arc<ManualClock>, _bytes_max: usize) -> Option<Arc<dyn Store>> {
        None
    }

    /// Closes the store and opens the same data again; `None` for a store without durable data.
    fn reopen(&self, store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Option<Arc<dyn Store>>;
}

/// A case opens a store with the harness, and panics if the store breaks the contract.
pub type Case = fn(&dyn Harness);

/// Runs every case.
///
/// # Panics
/// After the last case, with the names of the failed cases.
pub fn exercise(harness: &dyn Harness) {
    let failed: Vec<&str> = CASES
        .iter()
        .filter(|(_, case)| catch_unwind(AssertUnwindSafe(|| case(harness))).is_err())
        .map(|(name, _)| *name)
        .collect();
    assert!(failed.is_empty(), "the store fails: {}", failed.join(", "));
}

/// Runs the case with this name.
///
/// # Panics
/// If the store breaks the contract, or if there is no such case.
pub fn run(name: &str, harness: &dyn Harness) {
    let found = CASES.iter().find(|(case, _)| *case == name);
    let (_, case) = found.unwrap_or_else(|| panic!("there is no case {name}"));
    case(harness);
}

/// Defines one `#[test]` for each case, in one module for each subject. The expression makes the harness.
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
            #[allow(unused_imports, reason = "the harness may be named by its full path")]
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
        /// Every case with its name: `subject::case`.
        pub const CASES: &[(&str, Case)] =
            &[$($((concat!(stringify!($subject), "::", stringify!($case)), $subject::$case)),*),*];
    };
}

/// Passes the list of all cases to another macro: the table here, or the tests of a store.
#[doc(hidden)]
#[macro_export]
macro_rules! with_conformance_cases {
    ([$($then:tt)*] [$($arguments:tt)*]) => {
        $($then)* ! { [$($arguments)*]
            queues {
                a_new_queue_is_open_and_empty
                creating_the_same_queue_again_succeeds
                creating_a_different_queue_with_the_same_name_is_refused
                a_policy_outside_the_limits_is_refused
                a_dead_letter_queue_must_exist
                a_changed_policy_applies_at_once
                queues_are_listed_in_byte_order_of_their_names
                operations_on_a_missing_queue_are_refused
                a_paused_queue_accepts_submits_and_gives_no_items
                deleting_a_queue_deletes_its_items
                a_queue_of_finished_items_is_deleted_without_force
                a_recreated_queue_is_a_new_queue
                items_that_left_a_queue_survive_its_deletion
                the_oldest_ready_time_of_a_queue_is_exact
            }
            closing {
                closing_an_empty_queue_completes_it
                a_closed_queue_refuses_submits_and_allows_receives
                commit_and_fail_complete_a_closed_queue
                cancel_and_delete_complete_a_closed_queue
                time_completes_a_closed_queue
                moving_the_last_item_away_completes_a_closed_queue
                returning_an_item_does_not_complete_a_closed_queue
                batches_complete_a_closed_queue_once
                a_paused_queue_still_closes_and_completes
            }
            submit {
                an_item_without_options_has_the_defaults
                payloads_are_returned_byte_for_byte
                every_part_of_a_submit_is_stored
                an_item_of_the_maximum_size_fits
                a_submit_outside_the_limits_is_refused_without_effect
                the_depth_limit_applies_within_a_batch
                a_submit_that_violates_the_schema_is_refused_without_effect
                a_refused_operation_does_not_affect_its_batch
                an_operation_sees_the_effects_of_earlier_ones_in_its_batch
                a_batch_above_the_maximum_size_is_refused
                an_item_keeps_its_trace
            }
            record_guards {
                an_item_and_its_guarded_record_change_together
                only_one_of_many_submits_with_the_same_record_guard_succeeds
                a_refused_submit_does_not_change_its_record
                a_guarded_submit_is_refused_before_its_time
                item_and_record_survive_a_reopen
            }
            idempotency_keys {
                the_same_key_and_content_returns_the_same_item
                the_same_key_with_different_content_is_a_conflict
                a_different_trace_does_not_make_a_different_item
                a_key_is_unique_within_its_batch_and_queue
                a_key_stands_for_the_submitted_content_not_for_later_edits
                a_key_stays_in_its_queue_when_the_item_moves
                a_key_is_free_after_its_item_is_removed
                a_key_may_be_free_when_its_item_ends
                a_freed_key_stays_free
                a_closed_or_full_queue_still_recognises_a_known_key
                a_chosen_id_can_be_used_once
                an_id_is_free_after_its_item_is_removed
            }
            replace_keys {
                a_pending_item_is_replaced_by_the_latest_submit
                an_item_that_was_touched_is_not_replaced
                each_submit_delays_the_item_up_to_the_maximum_delay
                a_replaced_ready_item_keeps_its_position
                a_replacement_does_not_count_against_the_depth_limit
                replace_keys_are_separate_per_queue
                a_batch_sees_its_own_replacements
                incompatible_options_are_refused
                a_replacement_emits_an_event
                replacements_survive_a_reopen
                a_restored_item_keeps_its_replace_key
                parallel_submits_with_one_replace_key_leave_one_pending_item
            }
            receive {
                nothing_is_received_before_its_ready_time
                a_resumed_item_still_waits_for_its_ready_time
                a_receive_returns_at_most_max_items
                no_item_is_leased_twice_at_the_same_time
                lease_tokens_are_derived_from_the_seed_in_order
                a_receive_returns_the_requested_fields
                a_received_item_equals_the_stored_item
                deliveries_and_attempts_are_counted
                a_receiver_may_request_output_buffers
                a_receiver_may_choose_its_visibility_timeout
                a_receive_never_returns_an_item_and_a_completed_queue
                an_item_that_is_already_expired_is_never_received
            }
            order {
                fifo_order_is_by_ready_time_then_submission
                priority_order_is_lower_first_then_ready_time_then_submission
                score_order_is_highest_first_and_grows_with_age
                an_item_that_moves_to_a_scored_queue_gets_its_score
                a_scheduled_item_of_a_scored_queue_waits_for_its_ready_time
                items_with_equal_ready_times_are_in_order_of_submission
                a_chosen_id_does_not_change_the_order
                an_item_that_becomes_ready_between_updates_keeps_its_position
                an_item_given_back_without_a_delay_keeps_its_place
                a_retried_item_goes_behind_items_that_were_already_ready
                a_ready_time_in_the_past_is_a_place_in_the_queue
                an_item_returned_with_a_delay_is_ordered_by_its_new_ready_time
                a_resumed_item_keeps_its_position
                a_changed_priority_applies_at_once
                an_item_moved_from_another_queue_is_ordered_by_its_ready_time
                many_items_keep_their_order_across_batches_of_any_size
            }
            lease {
                a_heartbeat_extends_the_lease
                the_times_of_the_last_transition_and_heartbeat_are_stored
                a_lease_ends_at_its_deadline
                a_late_call_notices_the_lapse_of_its_lease
                a_foreign_token_settles_nothing
                a_stale_token_settles_nothing
                a_settle_after_cancel_delete_or_expiry_is_refused
                an_assigned_lease_must_be_acknowledged
                heartbeats_follow_the_lease_rule_of_the_queue
                a_settle_of_an_unknown_item_is_refused
            }
            settle {
                a_repeated_settle_gets_the_same_answer
                a_repeated_settle_may_have_a_different_jitter_seed
                a_different_settle_of_the_same_lease_is_refused
                only_one_settle_of_a_lease_in_a_batch_succeeds
                every_verb_can_set_and_unset_every_field
                edits_add_up_and_reach_the_next_lease_holder
                every_verb_can_change_the_priority
                an_item_can_be_returned_to_another_queue
                a_refused_move_to_another_queue_keeps_the_lease
                a_commit_stores_its_outcome
                a_commit_must_satisfy_the_schema
                a_repeated_settle_of_a_removed_item_is_refused
                a_settle_replies_with_the_resulting_state
                a_holder_can_pause_its_item
                a_holder_can_cancel_its_item
            }
            hand_offs {
                a_commit_and_its_items_are_one_step
                a_receive_in_the_same_batch_gets_the_items
                a_refused_item_keeps_the_lease_and_submits_nothing
                only_a_commit_hands_off
                a_repeated_commit_submits_nothing_again
                a_lost_lease_is_answered_before_a_refused_item
                a_known_key_hands_off_the_existing_item
                a_replace_key_replaces_a_pending_item
                a_commit_may_hand_its_key_to_the_next_item
                a_hand_off_completes_its_closed_queue
                a_hand_off_counts_in_the_effects
                a_hand_off_survives_a_reopen
                a_hand_off_in_a_batch_sees_the_operations_before_it
            }
            retries {
                attempts_are_one_more_than_retries
                retries_releases_and_lapses_count_together
                a_defer_does_not_count_as_a_retry
                a_release_can_be_uncounted
                the_default_backoff_doubles_from_one_second_to_five_minutes
                an_item_may_override_max_retries
                backoff_grows_up_to_its_cap
                an_item_may_override_the_backoff
                jitter_is_derived_from_the_seed_of_the_call
                the_first_and_the_latest_errors_are_kept
                a_long_reason_is_cut_and_an_oversized_one_is_refused
                consecutive_lapses_fail_an_item_as_poison
                an_unfinished_item_expires
                give_up_after_counts_from_the_first_delivery
                a_failed_item_moves_to_the_dead_letter_queue
                a_dead_letter_frees_depth_in_its_origin_queue
                a_cancelled_item_is_not_a_dead_letter
                the_kinds_of_failure_that_become_dead_letters_can_be_chosen
                without_an_open_dead_letter_queue_a_failed_item_stays
            }
            operate {
                each_operation_is_allowed_only_in_its_states
                a_cancelled_item_is_failed_with_the_reason
                a_paused_item_is_not_received_until_resumed
                a_deleted_item_is_gone
                a_delete_can_be_limited_to_a_state
                a_guarded_delete_skips_an_item_that_was_replaced
                a_redriven_item_starts_over
                every_kind_of_failure_can_be_redriven
                a_dead_letter_is_redriven_to_its_origin_queue
                a_redrive_is_allowed_into_a_closed_queue_but_not_into_a_completed_one
                a_dead_letter_of_a_completed_queue_cannot_be_redriven
                a_purge_deletes_matching_items_in_chunks
            }
            bulk_actions {
                a_tag_prefix_matches_whole_segments
                filters_select_by_numbers_times_and_failures
                filters_select_what_items_do_not_have
                counts_equal_lists
                a_bulk_action_affects_only_matching_items
                a_bulk_action_skips_items_that_no_longer_match
                a_deleted_item_never_comes_back
                a_changed_priority_keeps_the_ready_time
                a_moved_item_is_ordered_by_its_ready_time
            }
            timers {
                a_terminal_item_is_removed_when_its_ttl_ends
                without_a_ttl_a_terminal_item_is_kept
                a_settle_can_be_repeated_until_its_lease_would_have_ended
                a_ttl_of_zero_removes_at_once_what_no_lease_holder_settled
                a_ttl_does_not_remove_unfinished_items
                becoming_ready_needs_no_update
                a_sweep_reports_how_many_items_changed
                any_update_carries_out_what_is_due
                one_update_carries_out_everything_that_is_due
                the_next_wake_time_is_exact
                the_clock_of_the_store_never_goes_back
            }
            reads {
                get_returns_items_in_the_requested_order
                lists_are_in_the_order_of_submission
                a_list_returns_complete_items
                heads_equal_those_of_complete_items
                filters_select_items
                filters_select_by_state
                a_list_shows_each_remaining_item_once_during_changes
                a_cursor_stays_valid_after_its_item_is_deleted
                a_page_has_a_minimum_and_a_maximum_size
            }
            kv {
                a_value_is_returned_byte_for_byte
                a_key_is_any_text_within_the_limits
                a_record_expires_with_its_ttl
                set_if_absent_has_one_winner
                increments_add_up
                increment_once_counts_a_thing_once
                adopt_stores_a_record_of_another_store_once
                delete_reports_whether_the_record_existed
                replace_succeeds_only_if_the_record_has_the_seen_value
                records_are_listed_by_prefix
                clients_cannot_fill_the_room_of_the_servers_own_records
            }
            tallies {
                every_terminal_item_is_counted_once
                every_item_of_a_batch_is_counted
                a_tally_outlives_its_items
                hours_are_counted_separately
                a_dead_letter_is_counted_in_the_queue_where_it_failed
                tags_named_in_the_policy_are_counted
                values_above_the_limit_are_counted_together
                a_queue_chooses_how_many_values_are_counted_separately
                two_tags_are_counted_together
                old_hours_are_removed
                deleting_a_queue_deletes_its_tallies
                tallies_survive_a_reopen
                restored_items_are_not_counted
            }
            metrics {
                every_outcome_and_every_retry_is_counted
                waiting_and_processing_times_are_measured
                every_item_of_a_batch_is_measured
                restored_items_are_not_counted
                the_start_of_a_lease_survives_a_reopen
            }
            flow {
                a_receive_from_a_paused_queue_says_so
                concurrency_limits_the_number_of_leased_items
                every_end_of_a_lease_frees_its_slot
                a_receive_sees_slots_freed_in_its_batch
                leases_that_lapse_together_free_all_their_slots
                a_changed_concurrency_applies_at_once
                a_paused_queue_at_its_limit_gives_no_items
                concurrency_holds_with_parallel_receivers
                a_rate_allows_a_burst_and_then_a_steady_flow
                a_receive_reports_how_many_more_items_the_limits_allow
                an_empty_receive_does_not_use_up_the_rate
                a_changed_rate_applies_at_once
                a_rate_and_a_concurrency_limit_hold_together
                limits_out_of_range_are_refused
                limits_survive_a_reopen
            }
            fairness {
                a_key_with_few_items_does_not_wait_for_a_key_with_many
                keys_share_by_their_weights
                a_key_that_was_idle_gets_no_credit
                items_of_a_key_are_in_the_order_of_the_queue
                items_without_a_key_count_as_one_key
                fairness_can_be_turned_on_and_off_while_items_are_pending
                an_item_keeps_its_key_through_every_transition
                a_paused_queue_keeps_its_round_robin
                a_key_without_items_loses_its_turn
                the_turn_of_an_expired_item_goes_to_the_next_key
                fairness_survives_a_reopen
                a_recreated_queue_starts_a_new_round_robin
                parallel_receivers_share_the_round_robin
                weights_out_of_range_are_refused
            }
            key_limits {
                concurrency_per_key_limits_the_leased_items_of_a_key
                every_end_of_a_lease_frees_the_slot_of_its_key
                a_lapse_frees_the_slot_within_the_same_call
                a_receive_sees_slots_of_keys_freed_in_its_batch
                new_items_of_a_full_key_wait
                a_changed_concurrency_per_key_applies_at_once
                limits_per_key_and_of_the_queue_hold_together
                concurrency_per_key_holds_with_parallel_receivers
                limits_per_key_survive_a_reopen
                a_full_key_does_not_block_other_keys
                a_receive_names_the_full_keys
                a_receive_names_at_most_a_fixed_number_of_full_keys
                an_expired_item_takes_no_slot_of_its_key
                items_leased_before_the_limit_was_set_count
                limits_per_key_out_of_range_are_refused
            }
            events {
                each_transition_emits_one_event
                transitions_by_time_emit_events
                queue_changes_emit_events
                refused_and_repeated_operations_emit_no_event
                a_reader_continues_after_its_cursor
                reading_from_now_returns_only_later_events
                an_empty_store_has_no_events
                an_event_carries_a_chosen_id
                the_event_of_a_dead_letter_names_the_queue_where_it_failed
                a_restored_item_emits_one_event
                events_survive_a_reopen
                a_cursor_of_another_store_is_refused
            }
            dependencies {
                a_dependent_is_not_received_before_its_dependency_is_met
                a_dependent_fails_when_its_dependency_cannot_be_met
                observed_dependency_states_are_stored
                a_waiting_dependent_can_be_ended
                an_invalid_dependency_is_refused
                each_transition_of_a_member_is_reported_for_its_group
                group_membership_survives_a_reopen
                a_dependent_can_be_restored_in_another_store
            }
            races {
                every_item_is_committed_exactly_once
                one_of_many_parallel_settles_succeeds
                one_of_many_parallel_receivers_gets_an_item
                parallel_submits_with_one_key_create_one_item
                parallel_submits_with_one_id_create_one_item
                the_depth_limit_holds_with_parallel_submits
                one_of_many_parallel_set_if_absent_wins
                parallel_increments_add_up
                parallel_increment_once_counts_each_thing_once
                events_of_parallel_writers_are_complete_and_in_order
                readers_see_consistent_counts_during_writes
            }
            reopen {
                an_empty_store_can_be_reopened
                everything_survives_repeated_reopens
                each_transition_survives_a_reopen
                a_lease_survives_a_reopen
                a_repeated_settle_is_recognised_after_a_reopen
                the_order_survives_a_reopen
                the_order_of_scores_survives_a_reopen
                used_and_free_keys_and_ids_survive_a_reopen
                ids_after_a_reopen_are_new
                a_dead_letter_remembers_its_origin_queue_after_a_reopen
                timers_that_ran_out_while_closed_are_carried_out
                the_clock_does_not_go_back_across_a_reopen
                queues_keep_their_state_across_a_reopen
                a_list_cursor_stays_valid_across_a_reopen
            }
            restore {
                restored_items_equal_the_original_items
                restored_items_survive_a_reopen
                a_restored_item_keeps_its_lease
                a_restored_item_keeps_its_idempotency_key
                a_restored_dead_letter_keeps_its_origin_queue
                only_an_open_queue_accepts_restored_items
                an_impossible_item_is_refused
            }
            model {
                random_histories_agree_with_the_reference_store
            }
        }
    };
}

with_conformance_cases! { [table] [] }
