//! Listing buffers page by page.

use towline_buffers::{BufferError, NewBuffer};

use crate::storage::{NOW, TestStorage, assert_refused, on_every_storage, tags};

on_every_storage!(pages_are_in_order_and_complete, list_filters_by_tags, deleted_buffers_are_not_listed);

const IDS: [&str; 7] = ["a", "a-b", "a.b", "a0", "aa", "b", "c"];

async fn filled(storage: &TestStorage) -> towline_buffers::Buffers {
    let buffers = storage.open();
    for (n, id) in IDS.iter().rev().enumerate() {
        let parity = if n % 2 == 0 { "even" } else { "odd" };
        let new = NewBuffer { tags: tags(&[("parity", parity), ("all", "x")]), expires_at_ms: None };
        buffers.create(id, new, NOW).await.unwrap();
    }
    buffers
}

async fn walk(buffers: &towline_buffers::Buffers, limit: usize, with: &[(&str, &str)]) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..=IDS.len() + 1 {
        let page = buffers.list(after.as_deref(), limit, &tags(with)).await.unwrap();
        assert!(page.buffers.len() <= limit);
        found.extend(page.buffers.into_iter().map(|listed| listed.id));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
    panic!("the pages do not end");
}

async fn pages_are_in_order_and_complete(storage: TestStorage) {
    let buffers = filled(&storage).await;
    for limit in [1, 2, 3, 7, 8, 1000] {
        assert_eq!(walk(&buffers, limit, &[]).await, IDS, "by {limit}");
    }
    let page = buffers.list(Some("a0"), 10, &tags(&[])).await.unwrap();
    assert_eq!(page.buffers.iter().map(|listed| listed.id.as_str()).collect::<Vec<_>>(), ["aa", "b", "c"]);
    assert_eq!(page.buffers[0].meta, buffers.meta("aa").await.unwrap());
    assert_refused!(buffers.list(Some("../x"), 10, &tags(&[])).await, BufferError::BadId { .. });
}

async fn list_filters_by_tags(storage: TestStorage) {
    let buffers = filled(&storage).await;
    for limit in [1, 3, 1000] {
        assert_eq!(walk(&buffers, limit, &[("parity", "even")]).await, ["a", "a.b", "aa", "c"]);
        assert_eq!(walk(&buffers, limit, &[("parity", "odd"), ("all", "x")]).await, ["a-b", "a0", "b"]);
        assert_eq!(walk(&buffers, limit, &[("parity", "odd"), ("all", "y")]).await, [""; 0]);
    }
}

async fn deleted_buffers_are_not_listed(storage: TestStorage) {
    let buffers = filled(&storage).await;
    buffers.delete("a.b").await.unwrap();
    assert_eq!(walk(&buffers, 3, &[]).await, ["a", "a-b", "a0", "aa", "b", "c"]);
}
