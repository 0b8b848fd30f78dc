//! The statements of a worker, prepared once a connection. Their text is in `queries/`.

use tokio_postgres::{Client, Error, Statement};

macro_rules! query {
    ($file:literal) => {
        include_str!(concat!("../queries/", $file, ".sql"))
    };
    (items $file:literal) => {
        concat!(
            include_str!("../queries/select_items.sql"),
            include_str!(concat!("../queries/", $file, ".sql"))
        )
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
    named: query!(items "named"),
    kv_lock: query!("kv_lock"),
    key_owners: query!("key_owners"),
    receivable: query!(items "receivable"),
    is_receivable: query!("is_receivable"),
    due: query!(items "due"),
    bodies: query!("bodies"),
    errors: query!("errors"),
    remove: query!("remove"),
    insert_items: query!("insert_items"),
    update_items: query!("update_items"),
    insert_bodies: query!("insert_bodies"),
    edit_bodies: query!("edit_bodies"),
    insert_keys: query!("insert_keys"),
    insert_chosen_ids: query!("insert_chosen_ids"),
    insert_tags: query!("insert_tags"),
    insert_errors: query!("insert_errors"),
    trim_errors: query!("trim_errors"),
    insert_outcomes: query!("insert_outcomes"),
    kv_insert: query!("kv_insert"),
    kv_update: query!("kv_update"),
    kv_delete: query!("kv_delete"),
    count: query!("count"),
    put_queue: query!("put_queue"),
    delete_queue: query!("delete_queue"),
    mark: query!("mark"),
}

impl std::fmt::Debug for Statements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Statements")
    }
}
