//! Properties of an item and its queue that hold for any commands, in any order, at any times.

use crate::driver::{Driver, Step, histories};
use proptest::prelude::*;
use std::collections::HashMap;
use towline_domain::change::Answer;
use towline_domain::{Command, EventKind, Item, ItemState, LeaseToken, QueueState, SettleVerb, State};

/// Runs a history and checks each step.
fn walk(
    (policy, history): (towline_domain::Policy, Vec<crate::driver::Timed>),
    mut check: impl FnMut(&Driver, &Command, &Step) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut driver = Driver::new(policy);
    for (millis, command) in history {
        driver.now.0 += millis;
        // Every store carries out what is due before a batch.
        while let step @ Step { change: Some(_), .. } = driver.step(Command::Elapse) {
            check(&driver, &Command::Elapse, &step)?;
        }
        let step = driver.step(command.clone());
        check(&driver, &command, &step)?;
    }
    Ok(())
}

fn same_item<'a>(driver: &'a Driver, step: &'a Step) -> Option<(&'a Item, &'a Item)> {
    let (before, after) = (step.before.as_ref()?, driver.item.as_ref()?);
    (before.head.id == after.head.id).then_some((before, after))
}

fn rank(state: QueueState) -> u8 {
    match state {
        QueueState::Open => 0,
        QueueState::Closed { .. } => 1,
        QueueState::Completed { .. } => 2,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_revision_rises_by_one_with_every_change_and_never_otherwise(history in histories()) {
        walk(history, |driver, _, step| {
            if let Some((before, after)) = same_item(driver, step) {
                let changed = step.change.as_ref().is_some_and(|change| change.head().is_some());
                prop_assert_eq!(after.head.revision, before.head.revision + u32::from(changed));
                prop_assert_eq!(changed, before != after, "a change without a difference");
                if let Some(expected) = step.change.as_ref().and_then(|change| change.before()) {
                    prop_assert_eq!(expected.revision, before.head.revision);
                    prop_assert_eq!((expected.id, expected.queue), (before.head.id, before.head.queue));
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_refusal_changes_nothing(history in histories()) {
        walk(history, |driver, _, step| {
            if step.answer.is_err() {
                prop_assert_eq!(&driver.item, &step.before);
                prop_assert_eq!(&driver.queue, &step.queue_before);
            }
            Ok(())
        })?;
    }

    #[test]
    fn deliveries_rise_by_one_at_each_receive_and_never_otherwise(history in histories()) {
        walk(history, |driver, command, step| {
            if let Some((before, after)) = same_item(driver, step) {
                let received = matches!(command, Command::Receive(_)) && step.answer.is_ok();
                prop_assert_eq!(after.head.deliveries, before.head.deliveries + u32::from(received));
            }
            Ok(())
        })?;
    }

    #[test]
    fn retry_release_and_lapse_add_a_retry_and_redrive_resets_them(history in histories()) {
        walk(history, |driver, _, step| {
            let event = step.change.as_ref().and_then(|change| change.event());
            if let Some((before, after)) = same_item(driver, step) {
                let expected = match event {
                    Some(EventKind::Retried | EventKind::Released | EventKind::Lapsed) => before.head.retries + 1,
                    Some(EventKind::Redriven) => 0,
                    _ => before.head.retries,
                };
                prop_assert_eq!(after.head.retries, expected, "{:?}", event);
                prop_assert_eq!(after.head.attempt(), after.head.retries + 1);
            }
            Ok(())
        })?;
    }

    #[test]
    fn no_item_returns_to_the_queue_after_its_last_attempt(history in histories()) {
        walk(history, |driver, _, step| {
            let event = step.change.as_ref().and_then(|change| change.event());
            if let (Some((_, after)), Some(EventKind::Retried | EventKind::Released | EventKind::Lapsed)) = (same_item(driver, step), event) {
                prop_assert!(after.head.retries <= after.head.max_retries(&driver.queue.policy));
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_terminal_item_changes_only_by_redrive_and_is_removed_only_by_delete_or_ttl(history in histories()) {
        walk(history, |driver, command, step| {
            let Some(before) = step.before.as_ref().filter(|before| before.head.is_terminal()) else {
                return Ok(());
            };
            match &driver.item {
                Some(after) if after == before => {}
                Some(after) => {
                    prop_assert_eq!(command, &Command::Redrive);
                    prop_assert_eq!(&after.head.state, &State::Pending);
                    prop_assert!(matches!(before.head.state, State::Failed { .. }), "a completed item was redriven");
                }
                None => match command {
                    Command::Delete { .. } => {}
                    other => {
                        prop_assert_eq!(other, &Command::Elapse);
                        prop_assert!(before.head.timer().is_some_and(|at| at <= driver.now));
                    }
                },
            }
            Ok(())
        })?;
    }

    #[test]
    fn no_unfinished_item_is_removed_by_time(history in histories()) {
        walk(history, |driver, command, step| {
            let unfinished = step.before.as_ref().is_some_and(|before| !before.head.is_terminal());
            if unfinished && driver.item.is_none() {
                prop_assert!(matches!(command, Command::Delete { .. }), "{:?}", command);
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_new_deadline_is_in_the_future_and_never_after_the_expiry(history in histories()) {
        walk(history, |driver, _, step| {
            if let Some(lease) = driver.item.as_ref().and_then(|item| item.head.lease()) {
                let expiry = driver.item.as_ref().and_then(|item| item.head.expires_at);
                prop_assert!(expiry.is_none_or(|expiry| lease.deadline <= expiry));
            }
            if let Ok(Answer::Leased { deadline }) = &step.answer {
                prop_assert!(*deadline > driver.now || driver.item.as_ref().and_then(|item| item.head.expires_at) == Some(*deadline));
                prop_assert_eq!(driver.item.as_ref().and_then(|item| item.head.lease()).map(|lease| lease.deadline), Some(*deadline));
            }
            Ok(())
        })?;
    }

    #[test]
    fn no_item_is_received_before_it_is_ready_or_from_a_paused_queue(history in histories()) {
        walk(history, |driver, command, step| {
            if let (Command::Receive(_), Ok(_), Some(before)) = (command, &step.answer, &step.before) {
                prop_assert!(before.head.ready_at <= driver.now);
                prop_assert!(before.head.expires_at.is_none_or(|at| at > driver.now));
                prop_assert!(!step.queue_before.paused);
                prop_assert_eq!(&before.head.state, &State::Pending);
            }
            Ok(())
        })?;
    }

    #[test]
    fn only_the_current_lease_before_its_deadline_changes_anything(history in histories()) {
        walk(history, |driver, command, step| {
            if let (Command::Lease(call), Some(change)) = (command, &step.change)
                && !change.is_empty()
            {
                let lease = step.before.as_ref().and_then(|before| before.head.lease());
                prop_assert!(lease.is_some_and(|lease| lease.token == call.token && driver.now < lease.deadline));
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_settle_repeated_at_once_gets_the_same_answer_and_changes_nothing(history in histories()) {
        walk(history, |driver, command, step| {
            if let (Command::Lease(_), Ok(answer @ Answer::State(_))) = (command, &step.answer) {
                let again = driver.decide(command.clone());
                prop_assert_eq!(again.as_ref().map(|change| change.answer()), Ok(answer));
                prop_assert!(again.is_ok_and(|change| change.is_empty()));
            }
            Ok(())
        })?;
    }

    #[test]
    fn at_most_one_commit_of_an_item_succeeds(history in histories()) {
        let mut commits: HashMap<towline_domain::ItemId, LeaseToken> = HashMap::new();
        walk(history, |driver, command, step| {
            if let (Command::Lease(call), Ok(Answer::State(ItemState::Completed)), Some(item)) = (command, &step.answer, &driver.item) {
                let first = *commits.entry(item.head.id).or_insert(call.token);
                prop_assert_eq!(first, call.token);
                prop_assert_eq!(item.head.last_settle.map(|settle| settle.verb), Some(SettleVerb::Commit));
            }
            Ok(())
        })?;
    }

    #[test]
    fn the_same_inputs_give_the_same_change(history in histories()) {
        walk(history, |driver, command, _| {
            prop_assert_eq!(driver.decide(command.clone()), driver.decide(command.clone()));
            Ok(())
        })?;
    }

    #[test]
    fn apply_returns_the_head_of_the_change(history in histories()) {
        walk(history, |driver, _, step| {
            let Some(change) = &step.change else {
                return Ok(());
            };
            if let Some(head) = change.head() {
                prop_assert_eq!(driver.item.as_ref().map(|item| &item.head), Some(head));
            }
            if change.removes_item() {
                prop_assert_eq!(&driver.item, &None);
            }
            if change.head().is_none() && !change.removes_item() {
                prop_assert_eq!(&driver.item, &step.before);
            }
            if change.submitted().is_none() && change.head().is_some() {
                prop_assert_eq!(change.apply(None), None, "applied without its item");
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_queue_never_reopens_and_is_completed_exactly_when_closed_without_unfinished_items(history in histories()) {
        walk(history, |driver, command, step| {
            prop_assert!(rank(driver.queue.state) >= rank(step.queue_before.state));
            let unfinished = driver.item.as_ref().is_some_and(|item| !item.head.is_terminal());
            match driver.queue.state {
                QueueState::Open => {}
                QueueState::Closed { .. } => prop_assert!(unfinished),
                QueueState::Completed { .. } => prop_assert!(!unfinished),
            }
            if step.queue_before.state != QueueState::Open && matches!(command, Command::Submit(_)) {
                prop_assert!(step.answer.is_err());
            }
            Ok(())
        })?;
    }

    #[test]
    fn the_body_never_changes_and_errors_only_grow(history in histories()) {
        walk(history, |driver, _, step| {
            if let Some((before, after)) = same_item(driver, step) {
                prop_assert_eq!(&before.body, &after.body);
                prop_assert_eq!((before.head.created_at, before.head.id), (after.head.created_at, after.head.id));
                prop_assert!(after.errors.len() >= before.errors.len());
            }
            Ok(())
        })?;
    }
}
