//! TLS to PostgreSQL: trusted certificates are accepted, and the error for another certificate says what to do.

use crate::calls::*;
use crate::reserved_port::ReservedPort;
use crate::server::{Own, RUNTIME, connect};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::path::Path;
use towline_domain::Policy;
use towline_postgres::{Options, Postgres, Time};
use towline_store::StoreError;

/// A certificate authority, and its own certificate.
fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), own)
}

fn open(port: u16, host: &str, query: &str) -> Result<Postgres, String> {
    let url = format!("postgres://towline@{host}:{port}/postgres?{query}");
    let opened = RUNTIME.block_on(Postgres::open(&url.parse().unwrap(), Options::default(), Time::Database));
    opened.map_err(|error| match error {
        StoreError::Unavailable { cause } => cause,
        other => panic!("{url}: {other:?}"),
    })
}

/// How many connections of stores are encrypted, or not encrypted.
fn connections(server: &Own, encrypted: bool) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
               WHERE application_name LIKE 'towline%' AND ssl = $1";
    let config = server.config();
    RUNTIME.block_on(async {
        connect(&config).await.unwrap().query_one(sql, &[&encrypted]).await.unwrap().get(0)
    })
}

fn written(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().replace('/', "%2F")
}

#[test]
fn a_certificate_is_checked_as_sslmode_says() {
    let (authority, trusted) = authority("trusted");
    let (_, stranger) = self::authority("stranger");
    let (_, namesake) = self::authority("trusted");
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let reserved = ReservedPort::new();
    let port = reserved.address().port();
    let settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        "ssl=on".to_owned(),
        "ssl_cert_file=server.pem".to_owned(),
        "ssl_key_file=server.key".to_owned(),
    ];
    let files = [("server.pem", &*certificate.pem()), ("server.key", &*key.serialize_pem())];
    let server = Own::start_tcp(&settings, &files, port);
    let directory = tempfile::tempdir().unwrap();
    let trusted = written(directory.path(), "trusted.pem", &trusted);
    let stranger = written(directory.path(), "stranger.pem", &stranger);
    let namesake = written(directory.path(), "namesake.pem", &namesake);
    let rubbish = written(directory.path(), "rubbish.pem", "rubbish");

    for (host, query, encrypted) in [
        ("localhost", format!("sslmode=verify-full&sslrootcert={trusted}"), true),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={trusted}"), true),
        ("127.0.0.1", format!("sslmode=require&sslrootcert={trusted}"), true),
        ("127.0.0.1", "sslmode=require".to_owned(), true),
        ("127.0.0.1", "sslmode=prefer".to_owned(), true),
        ("127.0.0.1", String::new(), true),
        ("127.0.0.1", "sslmode=disable".to_owned(), false),
    ] {
        let store = open(port, host, &query).unwrap_or_else(|cause| panic!("{host} {query}: {cause}"));
        run(&store, create("jobs", Policy::default())).unwrap();
        assert!(submitted(&run(&store, submit("jobs", "work"))).1);
        assert_eq!(view(&store, "jobs").queue.name.as_str(), "jobs");
        assert!(connections(&server, encrypted) > 0, "{host} {query}");
        if encrypted {
            assert_eq!(connections(&server, false), 0, "{host} {query}");
        }
        drop(store);
        let all_closed = || connections(&server, true) + connections(&server, false) == 0;
        assert!((0..1200).any(|_| all_closed() || {
            std::thread::sleep(std::time::Duration::from_millis(25));
            false
        }));
    }

    for (host, query, words) in [
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={trusted}"), "for another host"),
        ("localhost", format!("sslmode=verify-full&sslrootcert={stranger}"), "no trusted authority signed"),
        ("localhost", format!("sslmode=verify-ca&sslrootcert={stranger}"), "no trusted authority signed"),
        ("localhost", format!("sslmode=require&sslrootcert={stranger}"), "no trusted authority signed"),
        ("localhost", format!("sslmode=verify-ca&sslrootcert={namesake}"), "did not sign the certificate"),
        ("localhost", format!("sslmode=verify-full&sslrootcert={rubbish}"), "has no certificate"),
        ("localhost", "sslmode=verify-full&sslrootcert=%2Fnowhere".to_owned(), "sslrootcert=/nowhere"),
    ] {
        let cause = open(port, host, &query).unwrap_err();
        assert!(cause.contains(words), "{host} {query}: {cause}");
    }
}

#[test]
fn a_server_without_tls_is_refused_if_sslmode_requires_it() {
    let reserved = ReservedPort::new();
    let port = reserved.address().port();
    let settings = ["listen_addresses=127.0.0.1".to_owned(), format!("port={port}")];
    let _server = Own::start_tcp(&settings, &[], port);
    open(port, "127.0.0.1", "sslmode=prefer").unwrap();
    for mode in ["require", "verify-ca", "verify-full"] {
        let cause = open(port, "127.0.0.1", &format!("sslmode={mode}")).unwrap_err();
        assert!(cause.contains("does not support TLS") && cause.contains("turn on ssl"), "{cause}");
    }
}
