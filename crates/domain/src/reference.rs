//! References to offloaded payload fields. A store keeps the reference in place of the field and treats it as any bytes.
//!
//! **Invariant:** a stored field that begins with `MARK` is a reference. The broker offloads every payload that happens to
//! begin with `MARK`, whatever its size.

use bytes::Bytes;

/// Drawn once, at random.
const MARK: [u8; 16] =
    [0x9d, 0x1f, 0xc4, 0x02, 0xe7, 0x6b, 0x58, 0xa3, 0x34, 0xf0, 0x8e, 0x71, 0xb5, 0x0a, 0xdc, 0x46];
const HASH_AT: usize = MARK.len() + 8;
const KEY_AT: usize = HASH_AT + 32;

/// Where a field is stored, and the length and hash of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub key: String,
    pub bytes: u64,
    /// BLAKE3 of the field's content.
    pub hash: [u8; 32],
}

impl Reference {
    /// The reference to `content` stored under `key`.
    #[must_use]
    pub fn to(content: &[u8], key: String) -> Reference {
        Reference { key, bytes: content.len() as u64, hash: *blake3::hash(content).as_bytes() }
    }

    /// Whether these bytes begin like a reference, so that they must be offloaded.
    #[must_use]
    pub fn is_marked(bytes: &[u8]) -> bool {
        bytes.starts_with(&MARK)
    }

    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Reference> {
        let length: [u8; 8] = bytes.strip_prefix(&MARK)?.get(..8)?.try_into().ok()?;
        let hash: [u8; 32] = bytes.get(HASH_AT..KEY_AT)?.try_into().ok()?;
        let key = std::str::from_utf8(bytes.get(KEY_AT..)?).ok()?;
        Some(Reference { key: key.to_owned(), bytes: u64::from_le_bytes(length), hash })
    }

    #[must_use]
    pub fn write(&self) -> Bytes {
        let parts: [&[u8]; 4] = [&MARK, &self.bytes.to_le_bytes(), &self.hash, self.key.as_bytes()];
        Bytes::from(parts.concat())
    }
}

/// Length and hash of a field's content, inline or offloaded.
pub(crate) fn content_of(field: &[u8]) -> (u64, [u8; 32]) {
    match Reference::read(field) {
        Some(reference) => (reference.bytes, reference.hash),
        None => (field.len() as u64, *blake3::hash(field).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_reference_is_read_back(content: Vec<u8>, key in "[a-z0-9.-]{1,80}") {
            let reference = Reference::to(&content, key);
            let written = reference.write();
            prop_assert!(Reference::is_marked(&written));
            prop_assert_eq!(content_of(&written), content_of(&content));
            prop_assert_eq!(Reference::read(&written), Some(reference));
        }

        #[test]
        fn other_bytes_are_not_a_reference(bytes: Vec<u8>, cut in 0..KEY_AT) {
            prop_assert_eq!(Reference::read(&bytes), None);
            let written = Reference::to(&bytes, "k".to_owned()).write();
            prop_assert_eq!(Reference::read(&written[..cut]), None);
        }
    }
}
