//! The statements of a worker, prepared once a connection. Their text is in `queries/`.

use tokio_postgres::{Client, Error, Statement};

macro_rules! query {
    ($file:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/queries/", $file, ".sql"))
    };
    ($($file:literal),+) => {
        concat!($(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/queries/", $file, ".sql")), "\n"),+)
    };
}
pub(crate) use query;

macro_rules! statements {
    ($($name:ident: $sql:expr,)*) => {
        #[derive(Clone)]
        pub(crate) struct Statements {
            $(pub(crate) $name: Statement,)*
        }

        impl Statements {
            /// Asks for all of them at once.
            pub(crate) async fn prepare(client: &Client) -> Result<Statements, Error> {
                let ($($name,)*) = tokio::try_join!($(client.prepare($sql),)*)?;
                Ok(Statements { $($name,)* })
            }
        }
    };
}

statements! {
    lock_store: query!("lock_store"),
    lock_store_shared: query!("lock_store_shared"),
    lock_queues: query!("lock_queues"),
    catalog: query!("catalog"),
    clock: query!("clock"),
    queues_since: query!("queues_since"),
    new_sequences: query!("new_sequences"),
    new_queue: query!("new_queue"),
    counts: query!("counts"),
    rates: query!("rates"),
    turns: query!("turns"),
    named: query!("columns_of_pages", "among_pages", "named"),
    named_finished: query!("columns_of_finished", "among_finished", "named"),
    moved: query!("columns_of_pages", "among_pages"),
    kv_lock: query!("kv_lock"),
    key_owners: query!("key_owners"),
    receivable: query!("receivable"),
    receivable_in_turn: query!("receivable_in_turn"),
    without_key: query!("without_key"),
    leases: query!("leases"),
    uncounted_leases: query!("uncounted_leases"),
    is_receivable: query!("is_receivable"),
    is_receivable_in_turn: query!("is_receivable_in_turn"),
    due: query!("due"),
    remove_due: query!("remove_due"),
    next_removal: query!("next_removal"),
    bodies: query!("bodies"),
    edits: query!("edits"),
    errors: query!("errors"),
    remove: query!("remove"),
    remove_ranges: query!("remove_ranges"),
    delete_pages: query!("delete_pages"),
    delete_finished: query!("delete_finished"),
    insert_pages: query!("insert_pages"),
    update_pages: query!("update_pages"),
    insert_finished: query!("insert_finished"),
    insert_bodies: query!("insert_bodies"),
    edit: query!("edit"),
    release_keys: query!("release_keys"),
    insert_keys: query!("insert_keys"),
    insert_chosen_ids: query!("insert_chosen_ids"),
    remove_tags: query!("remove_tags"),
    insert_tags: query!("insert_tags"),
    insert_errors: query!("insert_errors"),
    trim_errors: query!("trim_errors"),
    insert_outcomes: query!("insert_outcomes"),
    kv_insert: query!("kv_insert"),
    kv_update: query!("kv_update"),
    kv_delete: query!("kv_delete"),
    count: query!("count"),
    fold_counters: query!("fold_counters"),
    tally: query!("tally"),
    tally_tags: query!("tally_tags"),
    fold_tallies: query!("fold_tallies"),
    put_queue: query!("put_queue"),
    put_rates: query!("put_rates"),
    put_turns: query!("put_turns"),
    delete_queue: query!("delete_queue"),
    tell: query!("tell"),
    mark: query!("mark"),
    rotate_bodies: query!("rotate_bodies"),
    reclaim: query!("reclaim"),
    rotate_events: query!("rotate_events"),
}

impl std::fmt::Debug for Statements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Statements")
    }
}
