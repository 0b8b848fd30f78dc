use super::file::SECTOR_BYTES;
use super::*;

fn content(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
    let file = disk.open(name).ok()?;
    let mut bytes = vec![0; file.size().ok()? as usize];
    file.read_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

#[test]
fn a_crash_loses_unsynced_writes() {
    let (disk, mut rng) = (SimDisk::default(), Rng::with_seed(1));
    let file = disk.create("a").unwrap();
    file.write_at(b"kept", 0).unwrap();
    file.sync().unwrap();
    disk.sync_directory().unwrap();
    file.write_at(b"lost", 0).unwrap();
    assert_eq!(content(&disk, "a").unwrap(), b"lost");
    disk.crash(Crash::Nothing, &mut rng);
    assert_eq!(content(&disk, "a").unwrap(), b"kept");
    assert!(file.write_at(b"late", 0).is_err(), "a file handle from before the crash must fail");
}

#[test]
fn a_crash_loses_a_file_whose_directory_was_not_synced() {
    let (disk, mut rng) = (SimDisk::default(), Rng::with_seed(1));
    let file = disk.create("a").unwrap();
    file.write_at(b"x", 0).unwrap();
    file.sync().unwrap();
    disk.crash(Crash::Nothing, &mut rng);
    assert!(disk.open("a").is_err());
}

#[test]
fn a_torn_write_leaves_whole_sectors() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let (disk, mut rng) = (SimDisk::default(), Rng::with_seed(seed));
        let file = disk.create("a").unwrap();
        file.reserve(2048).unwrap();
        file.sync().unwrap();
        disk.sync_directory().unwrap();
        file.write_at(&[1; 2048], 0).unwrap();
        disk.crash(Crash::Subset, &mut rng);
        let bytes = content(&disk, "a").unwrap();
        for sector in bytes.chunks(SECTOR_BYTES) {
            assert!(sector.iter().all(|&byte| byte == sector[0]));
        }
        seen.insert(bytes.iter().map(|&byte| usize::from(byte)).sum::<usize>());
    }
    assert!(seen.len() > 3, "{seen:?}");
}

#[test]
fn a_second_sync_does_not_repair_a_failed_one() {
    let (disk, mut rng) = (SimDisk::default(), Rng::with_seed(1));
    let file = disk.create("a").unwrap();
    disk.sync_directory().unwrap();
    file.write_at(b"x", 0).unwrap();
    disk.set_fault(disk.operations() + 1, Fault::Io);
    assert!(file.sync().is_err());
    file.sync().unwrap();
    disk.crash(Crash::Everything, &mut rng);
    assert_eq!(content(&disk, "a").unwrap(), b"");
}
