//! What the engine promises, on every backend that is shipped, on a clock that moves when nobody has anything to do.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod attempts;
mod batches;
mod dependents;
mod faults;
mod fleet;
mod groups;
mod many;
mod names;
#[path = "../../../postgres/tests/store/server.rs"]
mod postgres;
#[path = "../rig/mod.rs"]
mod rig;
mod schedules;
mod states;
mod watched;

use rig::Rig;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use towline::ports::{DeadLetter, Queue};
use towline::{Backend, Builder, Clock, Event, System, VirtualClock, testing};
use watched::Traffic;

pub use rig::Kind;

/// Each case on each backend.
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
                    crate::$module::$case(crate::Kind::$kind).await;
                }
            )*
        }
    };
}

behaviour! {
    attempts::a_result_comes_back
    attempts::a_failure_is_tried_again_after_a_pause_that_grows
    attempts::an_abort_is_final_and_a_panic_is_not
    attempts::a_deferral_is_no_attempt
    attempts::what_is_to_run_later_runs_then
    attempts::an_attempt_and_the_whole_have_their_time
    attempts::what_its_workers_do_not_survive_ends
    attempts::what_is_said_when_it_is_queued_wins
    attempts::a_key_is_queued_once_and_both_who_queued_it_get_the_result
    attempts::what_skips_the_queue_runs_here_and_is_queued_when_it_fails
    attempts::who_fails_or_defers_says_until_when_and_knows_its_last_attempt
    attempts::what_comes_early_is_put_back_until_it_is_due
    attempts::what_a_handler_began_is_told_when_its_answer_is_not_taken_any_more
    attempts::a_trace_goes_on_with_work_and_what_comes_of_it
    batches::they_go_when_they_are_enough_or_have_waited_and_each_has_its_own_answer
    batches::stopping_lets_them_go
    batches::a_handler_that_answers_too_little_or_panics_is_told_and_tried_again
    dependents::it_runs_once_when_all_have_ended_however_late_it_was_said
    dependents::what_cannot_come_any_more_fails_what_waits_for_it
    fleet::work_fans_out_and_whoever_waits_is_told_wherever_it_was_done
    fleet::what_one_does_not_take_or_know_another_does
    fleet::a_full_doer_puts_back_without_counting_and_never_runs_more
    fleet::what_is_waited_for_finds_room_when_it_comes
    fleet::a_queue_that_is_waited_for_keeps_its_room_while_another_is_flooded
    fleet::where_one_runs_at_a_time_every_queue_is_waited_for
    fleet::where_one_runs_at_a_time_and_no_wait_is_answered_every_queue_has_its_turn
    fleet::a_kind_that_floods_its_own_queue_does_not_starve_the_others
    fleet::stopping_waits_for_what_runs_and_takes_no_more
    fleet::a_backlog_is_told
    fleet::trouble_is_told_and_tried_again
    fleet::dead_letters_of_all_queues_can_be_looked_at_and_tried_again
    fleet::a_queue_that_cannot_be_waited_for_is_looked_at_as_often_as_it_is_worth
    fleet::two_systems_with_different_prefixes_do_not_meet_in_the_store
    fleet::what_cannot_work_is_said_at_the_start
    groups::a_group_ends_with_the_last_of_its_descendants
    groups::fan_out_and_fan_in
    groups::what_follows_children_that_fail
    groups::a_group_that_nobody_waits_for_is_told_once_in_the_fleet
    groups::a_push_that_fails_leaves_no_group_open
    groups::a_claim_is_one_pieces_and_stays_its_own
    many::what_is_queued_together_is_pushed_together
    many::if_one_cannot_be_written_down_none_is_queued
    many::who_queues_too_much_is_held_up_until_there_is_room
    many::what_a_handler_queues_is_never_held_up
    many::it_is_idle_when_nothing_is_left_to_do
    many::it_is_not_idle_while_another_process_has_something
    many::children_by_the_thousand_come_together_and_are_all_waited_for
    names::a_key_that_another_group_has_queued_holds_no_group_up
    names::a_key_counts_for_children_too
    names::what_skips_the_queue_and_has_a_name_is_done_once
    names::systems_that_share_a_queue_leave_each_others_work_alone
    names::what_a_backend_refuses_fails_in_its_words_and_at_once
    names::a_chain_may_be_long
    names::one_that_is_redriven_is_one_all_the_same
    names::what_waits_for_days_is_not_forgotten
    schedules::an_occurrence_is_done_once_in_the_whole_fleet
    schedules::by_cron_and_in_a_time_zone
    schedules::as_a_function_says_until_it_says_never
    states::others_see_how_a_piece_of_work_stands
    states::one_that_was_redriven_runs_again
    states::a_group_is_seen_with_all_its_members
    states::without_being_told_to_a_system_knows_what_ended_and_what_waits
    faults::every_call_may_fail
}

/// A backend that is shared by as many systems as are started on it.
struct World {
    clock: Arc<VirtualClock>,
    backend: Backend,
    rig: Rig,
    traffic: Arc<Traffic>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl World {
    async fn new(kind: Kind) -> World {
        let clock = testing::clock();
        let rig = Rig::new(kind, clock.clone()).await;
        let traffic = Arc::new(Traffic::default());
        let backend = match kind {
            // It knows the clock, and who waits is woken by it.
            Kind::Memory => rig.backend.clone(),
            _ => watched::watched(&rig.backend, &traffic, &clock),
        };
        World { clock, backend, rig, traffic, events: Arc::default() }
    }

    /// A system that tells what happens.
    fn system(&self) -> Builder {
        let events = Arc::clone(&self.events);
        System::on(self.backend.clone())
            .clock(self.clock.clone())
            .poll_interval(Duration::from_secs(5))
            .on_event(move |event| events.lock().unwrap().push(event.clone()))
    }

    /// A queue beside the one that all share.
    fn queue(&self, name: &str) -> Arc<dyn Queue> {
        watched::queue(self.rig.queue(name), &self.traffic, &self.clock)
    }

    /// One that is only found out about by asking.
    fn queue_without_wait(&self, name: &str) -> Arc<dyn Queue> {
        watched::queue_without_wait(self.rig.queue(name), &self.traffic, &self.clock)
    }

    /// One that delays nothing for longer than this.
    fn queue_that_delays(&self, name: &str, delay_max: Duration) -> Arc<dyn Queue> {
        watched::queue_that_delays(self.rig.queue(name), &self.traffic, &self.clock, delay_max)
    }

    /// As [`testing::drive`], but time stands still while a call of the backend is under way.
    async fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let end = self.clock.now().after(Duration::from_secs(400 * 24 * 3600));
        loop {
            let mut quiet = 0;
            while quiet < 50 {
                let polled = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
                if let Poll::Ready(ended) = polled {
                    // A result is known before the queue has heard of it.
                    self.quiet().await;
                    return ended;
                }
                tokio::task::yield_now().await;
                quiet = if self.traffic.under_way() == 0 { quiet + 1 } else { 0 };
            }
            match self.clock.next_wake() {
                Some(at) => {
                    assert!(at <= end, "it does not end");
                    self.clock.advance_to(at);
                }
                // Nobody waits for time: for a thread, or another machine.
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }

    async fn pass(&self, seconds: u64) {
        let sleep = self.clock.sleep_until(self.clock.now().after(Duration::from_secs(seconds)));
        self.drive(sleep).await;
    }

    /// Whoever was woken does what there is to do.
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

    /// How many wait in the queue.
    async fn waiting(&self) -> u64 {
        self.backend.queue.depth().await.unwrap().unwrap()
    }

    async fn letters(&self) -> Vec<DeadLetter> {
        self.backend.queue.letters(100).await.unwrap()
    }
}

/// Things in the order they came.
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
