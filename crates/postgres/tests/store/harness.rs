//! Opens stores for the conformance suite, each in its own schema.

pub use crate::server::new_schema;
use crate::server::{RUNTIME, SHARED, connect};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use tokio_postgres::Config;
use towline_conformance::suite::Harness;
use towline_postgres::{Options, Postgres, Time};
use towline_store::{ManualClock, Store};

type Opened = (Weak<dyn Store>, String);

#[derive(Default)]
pub struct Schemas {
    /// The schema of each opened store, by the address of the store in memory.
    open: Mutex<HashMap<usize, Opened>>,
}

pub fn open(config: &Config, schema: &str, time: Time) -> towline_store::Result<Postgres> {
    let options = Options { schema: schema.to_owned(), readers: 2, ..Options::default() };
    RUNTIME.block_on(Postgres::open(&config.clone().into(), options, time))
}

impl Schemas {
    fn start(&self, schema: String, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        let store = open(&SHARED.config(), &schema, Time::Injected(clock)).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        self.open.lock().unwrap().insert(address(&store), (Arc::downgrade(&store), schema));
        store
    }

    /// Empties a schema whose store was dropped. To create a schema takes longer than most test cases.
    fn emptied(&self) -> Option<String> {
        let mut open = self.open.lock().unwrap();
        let address = *open.iter().find(|(_, (store, _))| store.strong_count() == 0)?.0;
        let (_, schema) = open.remove(&address)?;
        RUNTIME.block_on(async {
            let client = connect(SHARED.config().options(format!("-c search_path={schema}"))).await.unwrap();
            client.batch_execute(include_str!("empty.sql")).await.unwrap();
        });
        Some(schema)
    }
}

fn address(store: &Arc<dyn Store>) -> usize {
    Arc::as_ptr(store).cast::<()>() as usize
}

impl Harness for Schemas {
    fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        let schema = self.emptied().unwrap_or_else(new_schema);
        self.start(schema, clock)
    }

    fn reopen(&self, store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Option<Arc<dyn Store>> {
        let (weak, schema) = self.open.lock().unwrap().remove(&address(&store)).unwrap();
        drop(weak);
        assert_eq!(Arc::strong_count(&store), 1, "the test still holds the store");
        drop(store);
        Some(self.start(schema, clock))
    }
}

impl Drop for Schemas {
    fn drop(&mut self) {
        let open = std::mem::take(&mut *self.open.lock().unwrap());
        if open.is_empty() {
            return;
        }
        let config = SHARED.config();
        RUNTIME.block_on(async {
            let client = connect(&config).await.unwrap();
            for (_, schema) in open.values() {
                client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
            }
        });
    }
}
