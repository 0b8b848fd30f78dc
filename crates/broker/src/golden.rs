//! Checks that stored records keep their bytes (decision 29).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::{Debug, Write};

/// Checks that a record is written as these bytes, in hexadecimal, and that it is read from them, also if a later version has
/// added a field.
pub(crate) fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(record: &T, golden: &str) {
    let written = rmp_serde::to_vec_named(record).unwrap();
    let hex = written.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    assert_eq!(hex, golden, "the bytes of {record:?}");
    assert_eq!(rmp_serde::from_slice::<T>(&written).unwrap(), *record);
    let later = rmp_serde::to_vec_named(&Later { record, added_later: Vec::from([1, 2]) }).unwrap();
    assert_eq!(rmp_serde::from_slice::<T>(&later).unwrap(), *record);
}

/// The same record with one more field.
#[derive(Serialize, Deserialize)]
struct Later<T> {
    #[serde(flatten)]
    record: T,
    added_later: Vec<u8>,
}
