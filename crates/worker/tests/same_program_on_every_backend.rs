//! Runs the program of `docs/worker/backends.md` on each backend.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod backends;
#[path = "../../postgres/tests/store/server.rs"]
mod postgres;

use std::sync::Arc;
use towline::{Backend, Embedded, Outcome, Postgres, Server, System, work};

async fn thumbnails(backend: impl Into<Backend>) -> Result<(), towline::Error> {
    let thumbnail = work("thumbnail", |(name, width): (String, u32), _| async move {
        Ok(Outcome::Result(format!("{name} at {width}")))
    });
    let system = System::on(backend).work(&thumbnail).start()?;
    let handle = system.submit(thumbnail.of(("cat.png".to_owned(), 64))).await?;
    assert_eq!(handle.result().await?, "cat.png at 64");
    Ok(())
}

#[test]
fn the_program_is_the_one_in_the_document() {
    let document = include_str!("../../../docs/worker/backends.md");
    let begin = |text: &str| text.find("async fn thumbnails").unwrap();
    let lines = |text: &str| text[begin(text)..].split("\n}\n").next().unwrap().to_owned();
    assert_eq!(lines(document), lines(include_str!("same_program_on_every_backend.rs")));
}

#[tokio::test]
async fn in_memory() {
    thumbnails(towline::Memory::new()).await.unwrap();
}

#[tokio::test]
async fn in_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(directory.path().join("work")).unwrap();
    thumbnails(embedded.clone()).await.unwrap();
    let error = Embedded::open(directory.path().join("work")).unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
}

#[tokio::test]
async fn at_a_server() {
    let server = backends::TestServer::start(Arc::new(towline_broker::SteadyClock::new()));
    thumbnails(Server::at(&server.url).unwrap()).await.unwrap();
}

#[tokio::test]
async fn in_postgres() {
    let options = towline_postgres::Options { schema: postgres::new_schema(), ..Default::default() };
    let address = tokio::task::spawn_blocking(backends::postgres_address).await.unwrap();
    let clock = Arc::new(towline_broker::SteadyClock::new());
    let time = towline_postgres::Time::Database;
    thumbnails(Postgres::connect_with(&address, options, time, clock).await.unwrap()).await.unwrap();
}
