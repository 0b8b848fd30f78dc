//! Checking every object of a location.

use bytes::Bytes;
use towline_buffers::ObjectReport;

use crate::storage::{NOW, TestStorage, WRITER, created, on_every_storage};
use crate::writer::{TestWriter, written};

on_every_storage!(an_intact_location_has_no_findings, damage_of_each_kind_of_object_is_found,);

async fn filled(storage: &TestStorage) -> ObjectReport {
    let buffers = storage.open();
    written(&buffers, "whole", &[b"one", b"two"]).await;
    created(storage, "begun").await;
    buffers.begin("begun", WRITER, NOW).await.unwrap();
    TestWriter::new("begun").put(&buffers, b"half").await.unwrap();
    created(storage, "empty").await;
    buffers.put_blob("field", Bytes::from_static(b"payload")).await.unwrap();
    let mut read = 0;
    let report = buffers.verify(&mut |bytes| read += bytes).await.unwrap();
    assert_eq!(read, report.bytes);
    report
}

async fn an_intact_location_has_no_findings(storage: TestStorage) {
    let report = filled(&storage).await;
    assert_eq!((report.buffers, report.blobs, &report.findings[..]), (3, 1, &[][..]));
    assert!(report.bytes > 10, "{report:?}");
}

async fn damage_of_each_kind_of_object_is_found(storage: TestStorage) {
    filled(&storage).await;
    for (object, id) in [
        ("buffers/whole/c/00000001", "whole"),
        ("buffers/begun/c/00000000", "begun"),
        ("buffers/whole/end", "whole"),
        ("meta/empty", "empty"),
        ("fields/field", "field"),
    ] {
        let file = storage.file(object);
        let intact = std::fs::read(&file).unwrap();
        let mut damaged = intact.clone();
        *damaged.last_mut().unwrap() ^= 1;
        std::fs::write(&file, damaged).unwrap();
        let findings = storage.open().verify(&mut |_| {}).await.unwrap().findings;
        assert_eq!(findings.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), [id], "{findings:?}");
        std::fs::write(&file, intact).unwrap();
    }
    std::fs::remove_file(storage.file("buffers/whole/c/00000000")).unwrap();
    let findings = storage.open().verify(&mut |_| {}).await.unwrap().findings;
    assert!(findings[0].what.contains("chunk 0 is missing"), "{findings:?}");
}
