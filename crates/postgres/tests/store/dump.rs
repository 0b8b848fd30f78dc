//! A dump of the schema, taken while a server runs and restored into another database, is the complete store.

use crate::calls::*;
use crate::harness::open;
use crate::server::{Own, RUNTIME, connect, run_tool};
use towline_domain::ItemState;
use towline_domain::Policy;
use towline_postgres::Time;
use towline_store::{Events, EventsFrom, Operation, Store};

#[test]
fn a_restored_dump_of_the_schema_is_the_complete_store() {
    let server = Own::start();
    let store = open(&server.config(), "towline", Time::Database).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    let ids: Vec<_> = ["a", "b", "c"].map(|text| submitted(&run(&store, submit("jobs", text))).0).into();
    let held = receive(&store, "jobs", 2, seed(0, 0));
    assert_eq!(run(&store, lease(held[0].0, held[0].1, commit())), left(ItemState::Completed));
    run(&store, Operation::Cancel { id: ids[2], reason: String::new() }).unwrap();

    let client = RUNTIME.block_on(connect(&server.config())).unwrap();
    RUNTIME.block_on(client.batch_execute("CREATE DATABASE copy")).unwrap();
    let file = server.directory().join("towline.dump");
    let connection_to = |database: &str| {
        format!("--dbname=host={} user=towline dbname={database}", server.directory().display())
    };
    let to_file = format!("--file={}", file.display());
    run_tool("pg_dump", &["--format=custom", "--schema=towline", &to_file, &connection_to("postgres")]);
    let from = file.display().to_string();
    run_tool("pg_restore", &["--exit-on-error", &connection_to("copy"), &from]);

    let mut config = server.config();
    config.dbname("copy");
    let copy = open(&config, "towline", Time::Database).unwrap();
    assert_eq!(counts(&copy, "jobs"), counts(&store, "jobs"));
    // The two go on by themselves, so a cursor of one is not valid in the other.
    let cursor = |store: &dyn Store| match block_on(store.events(EventsFrom::Now, 1)).unwrap() {
        Events::Page(page) => EventsFrom::After(page.next),
        other => panic!("{other:?}"),
    };
    let (original, copied) = (cursor(&store), cursor(&copy));
    // Nor does the copy take the original's place for buffers for its own.
    assert!(copy.identity().is_copy_of(&store.identity().parts));
    assert_eq!(block_on(copy.events(original.clone(), 1)).unwrap(), Events::Elsewhere);
    assert_eq!(block_on(store.events(copied.clone(), 1)).unwrap(), Events::Elsewhere);
    drop(copy);
    let identity = store.identity();
    let copy = open(&config, "towline", Time::Database).unwrap();
    assert!(matches!(block_on(copy.events(copied, 1)).unwrap(), Events::Page(_)), "a copy has one history");
    let again = open(&server.config(), "towline", Time::Database).unwrap();
    assert_eq!(again.identity(), identity);
    assert!(matches!(block_on(again.events(original, 1)).unwrap(), Events::Page(_)));
    let shown = |store: &dyn Store| block_on(store.get(ids.clone(), towline_domain::FieldSet::ALL)).unwrap();
    assert_eq!(shown(&copy), shown(&store));
    // The dump includes leases. Ids of new items differ from the restored ones.
    assert_eq!(run(&copy, lease(held[1].0, held[1].1, commit())), left(ItemState::Completed));
    let (new, created) = submitted(&run(&copy, submit("jobs", "d")));
    assert!(created && !ids.contains(&new));
}
