use super::*;
use std::collections::BTreeMap;
use towline_domain::item::{Extras, Settled};
use towline_domain::{Condition, Dependency, DependsOn, FailureKind, GroupTag, KeyTag, SettleVerb};
use uuid::Uuid;

const SALT: u64 = 7;
const FIRST: u64 = 1000;
const QUEUE: QueueId = QueueId(3);

fn head(seq: u64, state: State) -> Head {
    let created_at = Timestamp(1_800_000_000_000);
    Head {
        id: ItemId::derive(SALT, created_at, seq),
        queue: QUEUE,
        state,
        priority: 0,
        created_at,
        ready_at: created_at,
        retries: 0,
        deliveries: 1,
        revision: 2,
        transitions: 2,
        expires_at: None,
        last_settle: None,
        group: None,
        fairness_key: KeyTag::NONE,
        changed_at: None,
        heartbeat_at: None,
        extras: None,
    }
}

fn token(n: u128) -> LeaseToken {
    LeaseToken(Uuid::from_u128(n))
}

fn leased(n: u128) -> State {
    State::Processing(Lease {
        token: token(n),
        deadline: Timestamp(1_800_000_300_000),
        visibility: Millis(300_000),
        unacknowledged: false,
        renewals: 0,
        buffers: None,
    })
}

/// Heads of every kind, some of them equal to the one before.
fn all_kinds() -> Vec<Head> {
    let at = Timestamp(1_800_000_001_000);
    let mut heads: Vec<Head> = (0..4).map(|n| head(FIRST + n, State::Pending)).collect();
    heads.extend((4..8).map(|n| head(FIRST + n, leased(n.into()))));
    let done = State::Completed { at, remove_at: Some(Timestamp(1_800_600_000_000)) };
    for n in 8..12 {
        let settle =
            Settle { token: token(n.into()), verb: SettleVerb::Commit, left: Settled::Completed, digest: 99 };
        heads.push(Head { last_settle: Some(settle), ..head(FIRST + n, done.clone()) });
    }
    let failed = State::Failed { at, remove_at: None, kind: FailureKind::Poison };
    let on = DependsOn::items(vec![ItemId(Uuid::from_u128(9)), ItemId(Uuid::from_u128(8))]);
    let after = Some(Box::new(Dependency { on, when: Condition::CountOf(2) }));
    let extras = Extras { lapses: 3, score: -5, after, ..Extras::default() };
    let group = Some(GroupTag::of("a group"));
    heads.push(Head { group, extras: Some(Box::new(extras)), ..head(FIRST + 20, failed) });
    // With a group, and no other rare property.
    heads.push(Head { id: ItemId(Uuid::from_u128(5)), group, ..head(FIRST + 21, State::Paused) });
    let buffers = BTreeMap::from([("out".parse().unwrap(), "a-buffer".parse().unwrap())]);
    let State::Processing(lease) = leased(77) else { unreachable!() };
    let lease = Lease { buffers: Some(Box::new(buffers)), unacknowledged: true, renewals: 4, ..lease };
    let odd = Head {
        expires_at: Some(Timestamp(5)),
        ready_at: Timestamp(0),
        priority: i16::MIN,
        ..head(FIRST + 500, State::Processing(lease))
    };
    heads.push(odd);
    // Given back, and extended.
    let times = |n: u64, state| Head {
        changed_at: Some(Timestamp(1_800_000_000_001)),
        heartbeat_at: Some(Timestamp(1_800_000_000_002)),
        ..head(FIRST + n, state)
    };
    heads.extend([times(501, State::Pending), times(502, leased(502))]);
    heads
}

fn sequence(index: usize) -> u64 {
    match index {
        0..12 => FIRST + index as u64,
        12 => FIRST + 20,
        13 => FIRST + 21,
        index => FIRST + 486 + index as u64,
    }
}

fn encoded(heads: &[Head]) -> (Vec<u8>, Vec<PayloadRef>) {
    let mut encoder = PageEncoder::new(SALT, FIRST);
    let mut at = PayloadLocation { partition: 2, chunk: FIRST, ..PayloadLocation::default() };
    let mut all = Vec::new();
    for (index, head) in heads.iter().enumerate() {
        at = PayloadLocation { has: 0b100, lengths: [0, 0, 100, 0, 0], ..at.after() };
        if index == 13 {
            at = PayloadLocation {
                partition: 3,
                chunk: 9,
                offset: 7,
                has: 0b10011,
                lengths: [1, 2, 0, 0, 300],
            };
        }
        let kept = PayloadRef { at, edited: (index == 14).then_some(12345), side: index % 5 == 0 };
        encoder.push(ItemSnapshotRef {
            seq: sequence(index),
            head,
            counted: head.count_kind(Timestamp::MAX),
            kept,
        });
        all.push(kept);
    }
    (encoder.finish(), all)
}

#[test]
fn an_encoded_page_decodes_to_the_same_items() {
    let heads = all_kinds();
    let (bytes, kept) = encoded(&heads);
    let items = decode(&bytes, FIRST, FIRST + 502, QUEUE, SALT).unwrap();
    assert_eq!(items.len(), heads.len());
    for (index, (item, head)) in items.iter().zip(&heads).enumerate() {
        assert_eq!((item.seq, &item.head, item.kept), (sequence(index), head, kept[index]));
        assert_eq!(item.counted, head.count_kind(Timestamp::MAX));
    }
}

#[test]
fn similar_items_take_few_bytes() {
    let waiting: Vec<Head> = (0..100).map(|n| head(FIRST + n, State::Pending)).collect();
    let leased: Vec<Head> = (0..100).map(|n| head(FIRST + n, leased(n.into()))).collect();
    let size = |heads: &[Head]| {
        let mut encoder = PageEncoder::new(SALT, FIRST);
        for (seq, head) in (FIRST..).zip(heads) {
            let kept = PayloadRef::default();
            encoder.push(ItemSnapshotRef { seq, head, counted: CountKind::Pending, kept });
        }
        encoder.len()
    };
    assert!(size(&waiting) < 100 * 4, "{} bytes", size(&waiting));
    assert!(size(&leased) < 100 * 20, "{} bytes", size(&leased));
}

#[test]
fn damage_is_reported() {
    let (bytes, _) = encoded(&all_kinds());
    let read = |bytes: &[u8]| decode(bytes, FIRST, FIRST + 502, QUEUE, SALT);
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "cut at {end}");
    }
    assert!(read(&[&[9], &bytes[1..]].concat()).is_err(), "an unknown version");
    assert!(decode(&bytes, FIRST, FIRST + 503, QUEUE, SALT).is_err(), "the wrong last_seq");
    // A flipped byte may decode to another page. It must not panic or loop.
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x55;
        let _ = read(&flipped);
    }
}
