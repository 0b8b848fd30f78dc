//! The prepared statements of a connection that writes. Their text is in `queries/`, in files of the same names.

use tokio_postgres::{Client, Error, Statement};

/// The text of one statement: one file, or several fragments behind each other.
macro_rules! query {
    ($($file:expr),+) => {
        concat!($(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/queries/", $file, ".sql")), "\n"),+)
    };
}
pub(crate) use query;

macro_rules! statements {
    ($($name:ident,)* ; $($composed:ident: $sql:expr,)*) => {
        #[derive(Clone)]
        pub(crate) struct Statements {
            $(pub(crate) $name: Statement,)*
            $(pub(crate) $composed: Statement,)*
        }

        impl Statements {
            /// Prepares all statements in one round trip.
            pub(crate) async fn prepare(client: &Client) -> Result<Statements, Error> {
                let ($($name,)* $($composed,)*) = tokio::try_join!(
                    $(client.prepare(query!(stringify!($name))),)*
                    $(client.prepare($sql),)*
                )?;
                Ok(Statements { $($name,)* $($composed,)* })
            }
        }
    };
}

statements! {
    lock_store,
    lock_store_shared,
    lock_queues,
    read_catalog,
    read_clock,
    read_changed_queues,
    draw_item_seqs,
    draw_queue_id,
    read_counts,
    read_rate_states,
    read_round_robins,
    read_leased_counts,
    lock_kv,
    read_key_owners,
    lock_ready_pages,
    lock_ready_pages_by_key,
    lock_unkeyed_pages,
    lock_uncounted_pages,
    has_ready_page,
    has_receivable_key,
    lock_due_pages,
    remove_due_terminal_pages,
    read_next_removal,
    read_payloads,
    read_edits,
    read_errors,
    delete_side_rows,
    delete_side_rows_in_ranges,
    delete_pages,
    delete_terminal_pages,
    insert_pages,
    update_pages,
    insert_terminal_pages,
    insert_payloads,
    upsert_edits,
    release_keys,
    free_keys,
    insert_keys,
    insert_chosen_ids,
    delete_tags,
    insert_tags,
    insert_errors,
    trim_errors,
    upsert_outcomes,
    insert_kv,
    update_kv,
    delete_kv,
    upsert_queue,
    upsert_rate_states,
    upsert_round_robins,
    delete_queue,
    insert_events,
    record_batch,
    rotate_payloads,
    reclaim_disk,
    rotate_events,
    ;
    find_pages: query!(
        "fragments/with_asked_items",
        "fragments/select_pages",
        "fragments/pages_holding_items"
    ),
    lock_pages: query!(
        "fragments/with_asked_items",
        "fragments/select_pages",
        "fragments/pages_holding_items",
        "fragments/lock_in_order"
    ),
    lock_terminal_pages: query!(
        "fragments/with_asked_items",
        "fragments/select_terminal_pages",
        "fragments/terminal_pages_holding_items",
        "fragments/lock_in_order"
    ),
    add_counts: query!("add_counts", "fragments/add_to_counters"),
    fold_counters: query!("fold_counters", "fragments/add_to_counters"),
    add_tallies: query!("add_tallies", "fragments/add_to_tallies"),
    add_tag_tallies: query!("add_tag_tallies", "fragments/add_to_tallies"),
    fold_tallies: query!("fold_tallies", "fragments/add_to_tallies"),
}

impl std::fmt::Debug for Statements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Statements")
    }
}
