//! The behaviour of the engine on every included backend, with a virtual clock that advances when all tasks wait.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod attempts;
#[path = "../backends/mod.rs"]
mod backends;
mod batches;
mod bulk;
mod dependents;
mod faults;
mod fleet;
mod groups;
mod ids;
#[path = "../../../postgres/tests/store/server.rs"]
mod postgres;
mod schedules;
mod states;
mod traffic;

use backends::TestBackend;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use towline::ports::{DeadLetter, Queue};
use towline::{Backend, Builder, Clock, Event, System, VirtualClock, testing};
use traffic::{Abilities, Traffic};

pub use backends::BackendKind;

/// Runs each case on each backend.
macro_rules! behaviour {
    ($($module:ident::$case:ident)*) => {
        behaviour!(@memory Memory $($module::$case)*);
        behaviour!(@embedded Embedded $($module::$case)*);
        behaviour!(@server Server $($module::$case)*);
        behaviour!(@on_postgres Postgres $($module::$case)*);
    };
    (@$backend:ident $kind:ident $($module:ident::$case:ident)*) => {
        mod $backend {
            $(
                #[tokio::test]
                async fn $case() {
                    crate::$module::$case(crate::BackendKind::$kind).await;
                }
            )*
        }
    };
}

behaviour! {
    attempts::a_result_is_returned_to_the_submitter
    attempts::a_failed_attempt_is_retried_after_growing_pauses
    attempts::a_fail_is_final_and_a_panic_is_retried
    attempts::a_defer_is_not_an_attempt
    attempts::delayed_work_runs_at_its_time
    attempts::a_timeout_limits_an_attempt_and_a_deadline_limits_the_work
    attempts::work_that_kills_its_workers_fails_after_its_attempts
    attempts::options_of_the_job_override_those_of_the_kind
    attempts::both_submitters_of_one_idempotency_key_get_the_result
    attempts::work_that_skips_the_queue_is_retried_through_the_queue
    attempts::a_handler_chooses_the_next_start_and_knows_its_last_attempt
    attempts::an_item_delivered_early_is_deferred_until_it_is_due
    attempts::a_context_reports_when_its_attempt_is_over
    attempts::a_trace_is_inherited_by_retries_and_children
    batches::a_batch_starts_when_it_is_full_or_has_waited_and_each_entry_has_its_outcome
    batches::stopping_starts_a_partial_batch
    batches::a_batch_handler_that_returns_too_few_outcomes_or_panics_is_retried
    dependents::a_dependent_runs_once_when_its_dependencies_have_ended
    dependents::a_dependent_fails_when_its_condition_cannot_be_met
    fleet::a_fleet_shares_work_and_results_reach_the_submitter
    fleet::a_declined_item_runs_in_another_system
    fleet::a_full_limiter_declines_items_and_never_exceeds_its_slots
    fleet::a_long_poll_receives_only_what_it_has_room_for
    fleet::a_flooded_queue_does_not_take_the_places_of_another_long_poll
    fleet::with_one_slot_every_queue_has_a_long_poll
    fleet::with_one_slot_and_no_long_polls_every_queue_is_served_in_turn
    fleet::a_flooded_queue_does_not_starve_other_queues
    fleet::stopping_waits_for_running_attempts_and_receives_no_more
    fleet::a_backlog_is_reported
    fleet::a_backend_error_is_reported_and_the_call_repeated
    fleet::dead_letters_of_all_queues_are_listed_and_redriven
    fleet::the_poll_interval_adapts_to_a_queue_without_long_polls
    fleet::systems_with_different_prefixes_do_not_share_records
    fleet::start_refuses_settings_that_cannot_work
    groups::a_group_ends_with_the_last_of_its_descendants
    groups::fan_out_and_fan_in
    groups::the_next_job_runs_or_fails_by_its_condition
    groups::an_orphaned_group_is_reported_once_in_the_fleet
    groups::a_failed_submit_leaves_no_group_unfinished
    groups::a_claim_is_won_once_and_kept_across_attempts
    bulk::jobs_submitted_together_are_sent_in_batches
    bulk::if_one_input_cannot_be_encoded_no_job_is_submitted
    bulk::a_submitter_waits_while_the_queue_is_full
    bulk::a_submit_by_a_handler_never_waits_for_room
    bulk::a_system_is_idle_when_no_work_is_left
    bulk::a_system_is_not_idle_while_another_system_holds_a_lease
    bulk::a_thousand_children_are_submitted_in_batches_and_all_waited_for
    ids::a_key_used_in_two_groups_delays_neither
    ids::an_idempotency_key_applies_to_children
    ids::work_with_a_repeatable_id_runs_once_even_if_it_skips_the_queue
    ids::systems_that_share_a_queue_ignore_each_others_work
    ids::a_result_that_the_backend_refuses_fails_the_work_at_once
    ids::a_chain_of_work_may_have_any_length
    ids::a_redriven_dependency_is_counted_once
    ids::a_dependent_that_waits_for_days_still_runs
    schedules::an_occurrence_runs_once_in_the_whole_fleet
    schedules::a_cron_schedule_uses_its_time_zone
    schedules::a_schedule_by_function_ends_when_the_function_returns_none
    states::every_state_of_work_is_visible
    states::redriven_work_is_processing_again
    states::group_states_list_all_members
    states::ended_and_waiting_work_is_known_without_tracking
    faults::any_single_backend_call_may_fail
}

/// One backend and its clock, for as many systems as a test starts.
struct World {
    clock: Arc<VirtualClock>,
    backend: Backend,
    test_backend: TestBackend,
    traffic: Arc<Traffic>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl World {
    async fn new(kind: BackendKind) -> World {
        let clock = testing::clock();
        let test_backend = TestBackend::new(kind, clock.clone()).await;
        let traffic = Arc::new(Traffic::default());
        let backend = match kind {
            // It uses the virtual clock, which wakes its long polls.
            BackendKind::Memory => test_backend.ports.clone(),
            _ => traffic::counted(&test_backend.ports, &traffic, &clock),
        };
        World { clock, backend, test_backend, traffic, events: Arc::default() }
    }

    /// A system whose events the test can read.
    fn system(&self) -> Builder {
        let events = Arc::clone(&self.events);
        System::on(self.backend.clone())
            .clock(self.clock.clone())
            .poll_interval(Duration::from_secs(5))
            .on_event(move |event| events.lock().unwrap().push(event.clone()))
    }

    /// A queue beside the default one.
    fn queue(&self, name: &str) -> Arc<dyn Queue> {
        self.queue_with(name, Abilities::default())
    }

    fn queue_without_long_polls(&self, name: &str) -> Arc<dyn Queue> {
        self.queue_with(name, Abilities { long_polls: false, ..Abilities::default() })
    }

    fn queue_with_delay_max(&self, name: &str, delay_max: Duration) -> Arc<dyn Queue> {
        self.queue_with(name, Abilities { delay_max, ..Abilities::default() })
    }

    fn queue_with(&self, name: &str, abilities: Abilities) -> Arc<dyn Queue> {
        traffic::queue(self.test_backend.queue(name), &self.traffic, &self.clock, abilities)
    }

    /// Like [`testing::drive`], but the clock stands still while a call of the backend is under way.
    async fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let end = self.clock.now().after(Duration::from_secs(400 * 24 * 3600));
        loop {
            let mut quiet = 0;
            while quiet < 50 {
                let polled = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
                if let Poll::Ready(output) = polled {
                    // The engine stores a result before it settles the item.
                    self.quiet().await;
                    return output;
                }
                tokio::task::yield_now().await;
                quiet = if self.traffic.under_way() == 0 { quiet + 1 } else { 0 };
            }
            match self.clock.next_wake() {
                Some(at) => {
                    assert!(at <= end, "the future does not end");
                    self.clock.advance_to(at);
                }
                // No task sleeps: they wait for a thread or for another process.
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }

    async fn pass(&self, seconds: u64) {
        let sleep = self.clock.sleep_until(self.clock.now().after(Duration::from_secs(seconds)));
        self.drive(sleep).await;
    }

    /// Runs the tasks until all of them wait.
    async fn quiet(&self) {
        let mut quiet = 0;
        while quiet < 50 {
            tokio::task::yield_now().await;
            quiet = if self.traffic.under_way() == 0 { quiet + 1 } else { 0 };
        }
    }

    fn count(&self, which: impl Fn(&Event) -> bool) -> usize {
        self.events.lock().unwrap().iter().filter(|event| which(event)).count()
    }

    /// The depth of the default queue.
    async fn depth(&self) -> u64 {
        self.backend.queue.depth().await.unwrap().unwrap()
    }

    async fn dead_letters(&self) -> Vec<DeadLetter> {
        self.backend.queue.dead_letters(100).await.unwrap()
    }
}

/// What the handlers of a test did, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn read(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}
