//! The paths of all objects that this crate stores.

use object_store::path::Path;

use super::Storage;

impl Storage {
    pub fn owner(&self) -> Path {
        self.prefix.clone().join("owner")
    }

    pub fn metas(&self) -> Path {
        self.prefix.clone().join("meta")
    }

    pub fn meta(&self, id: &str) -> Path {
        self.metas().join(id)
    }

    pub(super) fn all_data(&self) -> Path {
        self.prefix.clone().join("buffers")
    }

    /// The prefix of all objects of a buffer except its description.
    pub fn data(&self, id: &str) -> Path {
        self.all_data().join(id)
    }

    pub fn writer(&self, id: &str) -> Path {
        self.data(id).join("writer")
    }

    pub fn end(&self, id: &str) -> Path {
        self.data(id).join("end")
    }

    pub fn chunks(&self, id: &str) -> Path {
        self.data(id).join("c")
    }

    pub fn chunk(&self, id: &str, n: u32) -> Path {
        self.chunks(id).join(format!("{n:08}"))
    }

    pub fn blobs(&self) -> Path {
        self.prefix.clone().join("fields")
    }

    pub fn blob(&self, key: &str) -> Path {
        self.blobs().join(key)
    }
}

/// The chunk number in the path of a chunk.
pub(crate) fn chunk_number(path: &Path) -> Option<u32> {
    path.filename().filter(|name| name.len() == 8)?.parse().ok()
}
