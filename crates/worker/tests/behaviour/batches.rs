//! Pieces that are done together.

use crate::{Kind, Log, World};
use std::time::Duration;
use towline::{Failure, Outcome, Piece, Work, batch};

fn insert(log: &Log, size: usize) -> Work<u32, u32> {
    let log = log.clone();
    batch("insert", size, Duration::from_secs(2), move |pieces: Vec<Piece<u32>>| {
        log.add(pieces.len().to_string());
        async move {
            let answer = |piece: Piece<u32>| match piece.input {
                7 if piece.context.attempt() == 1 => Err(Failure::retry("seven is late")),
                n => Ok(Outcome::Result(n * 10)),
            };
            pieces.into_iter().map(answer).collect()
        }
    })
}

pub async fn they_go_when_they_are_enough_or_have_waited_and_each_has_its_own_answer(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let insert = insert(&log, 5);
    let system = world.system().work(&insert).start().unwrap();
    let mut handles = Vec::new();
    for n in 0..12 {
        handles.push(system.queue(insert.of(n)).await.unwrap());
    }
    for (n, handle) in (0..).zip(&handles) {
        assert_eq!(world.drive(handle.result()).await, Ok(n * 10));
    }
    assert_eq!(log.read()[..2], ["5", "5"]);
    let total: usize = log.read().iter().map(|count| count.parse::<usize>().unwrap()).sum();
    assert_eq!(total, 13, "{:?}", log.read());
}

pub async fn stopping_lets_them_go(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let insert = insert(&log, 100);
    let system = world.system().work(&insert).start().unwrap();
    let handle = system.queue(insert.of(1)).await.unwrap();
    world.pass(1).await;
    assert_eq!(log.read().len(), 0);
    assert!(world.drive(system.stop(Duration::from_secs(1))).await);
    assert_eq!(handle.result().await, Ok(10));
}

pub async fn a_handler_that_answers_too_little_or_panics_is_told_and_tried_again(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let wrong = {
        let log = log.clone();
        batch("wrong", 2, Duration::from_secs(1), move |pieces: Vec<Piece<u32>>| {
            log.add(pieces[0].context.attempt().to_string());
            let attempt = pieces[0].context.attempt();
            async move {
                match attempt {
                    1 => Vec::new(),
                    2 => panic!("the second time"),
                    _ => pieces.into_iter().map(|piece| Ok(Outcome::Result(piece.input))).collect(),
                }
            }
        })
    };
    let system = world.system().work(&wrong).start().unwrap();
    let handle = system.queue(wrong.of(4)).await.unwrap();
    assert_eq!(world.drive(handle.result()).await, Ok(4));
    let told = format!("{:?}", world.events.lock().unwrap());
    assert!(
        told.contains("gave 0 answers to 1 pieces") && told.contains("panicked: the second time"),
        "{told}"
    );
}
