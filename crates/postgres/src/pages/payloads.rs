//! What was submitted: packed into rows of `bodies`, and read again piece by piece.

use crate::encoding::code;
use crate::error::damaged;
use crate::pages::snapshot::{Location, PARTS};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use tokio_postgres::Row;
use towline_domain::{Body, Field, Fields};
use towline_store::StoreError;

/// A row is closed when it holds this much. What is larger has one of its own.
const CHUNK_BYTES: usize = 256 << 10;

/// Rows about to be inserted.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    pub(crate) first: Vec<i64>,
    pub(crate) last: Vec<i64>,
    pub(crate) blob: Vec<Vec<u8>>,
}

impl Chunks {
    /// Takes the next item in order of number; tells where it is.
    pub(crate) fn push(&mut self, slot: u8, seq: u64, body: &Body, fields: &Fields) -> Location {
        let body = if *body == Body::default() { String::new() } else { code::to_json(body) };
        let size = body.len() + fields.bytes();
        let open = self.blob.last().is_some_and(|blob| blob.len() + size <= CHUNK_BYTES);
        if !open {
            self.first.push(seq.cast_signed());
            self.last.push(seq.cast_signed());
            self.blob.push(Vec::new());
        }
        let (Some(first), Some(last), Some(blob)) =
            (self.first.last(), self.last.last_mut(), self.blob.last_mut())
        else {
            unreachable!("there is one");
        };
        *last = seq.cast_signed();
        let mut at = Location {
            slot,
            chunk: first.cast_unsigned(),
            offset: blob.len() as u32,
            has: 0,
            lengths: [0; PARTS],
        };
        let mut put = |part: usize, bytes: &[u8]| {
            at.has |= 1 << part;
            at.lengths[part] = bytes.len() as u32;
            blob.extend(bytes);
        };
        if !body.is_empty() {
            put(0, body.as_bytes());
        }
        for field in Field::ALL {
            if let Some(value) = fields.get(field) {
                put(1 + field as usize, value);
            }
        }
        at
    }

    pub(crate) fn slots(&self, slot: u8) -> Vec<i16> {
        vec![slot.into(); self.first.len()]
    }
}

/// Pieces of `bodies` to read: neighbours are read at once.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    pub(crate) slot: Vec<i16>,
    pub(crate) chunk: Vec<i64>,
    pub(crate) offset: Vec<i32>,
    pub(crate) length: Vec<i32>,
    /// For every item and part.
    wanted: FxHashMap<u64, [Option<Place>; PARTS]>,
}

/// Which piece, where in it, how long.
type Place = (u32, u32, u32);

impl Pieces {
    pub(crate) fn is_empty(&self) -> bool {
        self.slot.is_empty()
    }

    /// The body, and of the fields only those asked for.
    pub(crate) fn want(&mut self, seq: u64, at: &Location, fields: [bool; 4]) {
        let mut parts = [None; PARTS];
        let mut offset = at.offset;
        for (part, length) in at.parts() {
            if part == 0 || fields[part - 1] {
                parts[part] = Some(self.piece(at, offset, length));
            }
            offset += length;
        }
        self.wanted.insert(seq, parts);
    }

    fn piece(&mut self, at: &Location, offset: u32, length: u32) -> Place {
        let (slot, chunk) = (i16::from(at.slot), at.chunk.cast_signed());
        let (offset, size) = (offset.cast_signed(), length.cast_signed());
        if let (Some(&last_slot), Some(&last_chunk), Some(&last_offset), Some(last_length)) =
            (self.slot.last(), self.chunk.last(), self.offset.last(), self.length.last_mut())
            && (last_slot, last_chunk, last_offset + *last_length) == (slot, chunk, offset)
        {
            let within = *last_length;
            *last_length += size;
            return (self.slot.len() as u32 - 1, within.cast_unsigned(), length);
        }
        self.slot.push(slot);
        self.chunk.push(chunk);
        self.offset.push(offset);
        self.length.push(size);
        (self.slot.len() as u32 - 1, 0, length)
    }
}

/// Pieces that were read.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pieces: Vec<Option<Bytes>>,
}

impl Read {
    /// Rows of (number of the piece, bytes).
    pub(crate) fn of(rows: &[Row], pieces: &Pieces) -> Read {
        let mut read = Read { pieces: vec![None; pieces.slot.len()] };
        for row in rows {
            let at = usize::try_from(row.get::<_, i64>(0) - 1).ok();
            if let Some(piece) = at.and_then(|at| read.pieces.get_mut(at)) {
                *piece = row.get::<_, Option<&[u8]>>(1).map(Bytes::copy_from_slice);
            }
        }
        read
    }

    /// What was wanted of this item; `None`: a row of it is not there.
    pub(crate) fn take(&self, pieces: &Pieces, seq: u64) -> Option<Result<(Body, Fields), StoreError>> {
        let parts = pieces.wanted.get(&seq)?;
        let (mut body, mut fields) = (Body::default(), Fields::default());
        for (part, place) in parts.iter().enumerate() {
            let Some((piece, offset, length)) = *place else { continue };
            let bytes = self.pieces.get(piece as usize)?.as_ref()?;
            let end = (offset + length) as usize;
            if end > bytes.len() {
                return None;
            }
            let bytes = bytes.slice(offset as usize..end);
            match part {
                0 => match serde_json::from_slice(&bytes) {
                    Ok(read) => body = read,
                    Err(error) => return Some(Err(damaged(format_args!("{seq} of payloads"), error))),
                },
                _ => fields.set(Field::ALL[part - 1], Some(bytes)),
            }
        }
        Some(Ok((body, fields)))
    }
}
