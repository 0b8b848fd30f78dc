//! Payloads: packed into rows of `payloads`, and read again piece by piece.

use crate::encoding::code;
use crate::error::damaged;
use crate::pages::snapshot::{PARTS, PayloadLocation};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use tokio_postgres::Row;
use towline_domain::{Body, Field, Fields};
use towline_store::StoreError;

/// A row is closed when it holds this many bytes. A larger payload gets its own row.
const CHUNK_BYTES: usize = 256 << 10;

/// Rows to insert into `payloads`.
#[derive(Debug, Default)]
pub(crate) struct PayloadChunks {
    pub(crate) first: Vec<i64>,
    pub(crate) last: Vec<i64>,
    pub(crate) bytes: Vec<Vec<u8>>,
}

impl PayloadChunks {
    /// Adds an item and returns the location of its payload. The items must come in order of their numbers.
    pub(crate) fn push(&mut self, partition: u8, seq: u64, body: &Body, fields: &Fields) -> PayloadLocation {
        let body = if *body == Body::default() { String::new() } else { code::to_json(body) };
        let size = body.len() + fields.bytes();
        let open = self.bytes.last().is_some_and(|row| row.len() + size <= CHUNK_BYTES);
        if !open {
            self.first.push(seq.cast_signed());
            self.last.push(seq.cast_signed());
            self.bytes.push(Vec::new());
        }
        let (Some(first), Some(last), Some(row)) =
            (self.first.last(), self.last.last_mut(), self.bytes.last_mut())
        else {
            unreachable!("a row was added above");
        };
        *last = seq.cast_signed();
        let mut at = PayloadLocation {
            partition,
            chunk: first.cast_unsigned(),
            offset: row.len() as u32,
            has: 0,
            lengths: [0; PARTS],
        };
        let mut put = |part: usize, bytes: &[u8]| {
            at.has |= 1 << part;
            at.lengths[part] = bytes.len() as u32;
            row.extend(bytes);
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

    pub(crate) fn partitions(&self, partition: u8) -> Vec<i16> {
        vec![partition.into(); self.first.len()]
    }
}

/// Pieces of `payloads` to read. Neighbouring parts are read as one piece.
#[derive(Debug, Default)]
pub(crate) struct PayloadPieces {
    pub(crate) partition: Vec<i16>,
    pub(crate) chunk: Vec<i64>,
    pub(crate) offset: Vec<i32>,
    pub(crate) length: Vec<i32>,
    /// Where the parts of each item are.
    parts_by_item: FxHashMap<u64, [Option<PieceRange>; PARTS]>,
}

/// The index of a piece, the offset in it, and the length.
type PieceRange = (u32, u32, u32);

impl PayloadPieces {
    pub(crate) fn is_empty(&self) -> bool {
        self.partition.is_empty()
    }

    /// Asks for the body of an item and for these of its fields.
    pub(crate) fn want(&mut self, seq: u64, at: &PayloadLocation, fields: [bool; 4]) {
        let mut parts = [None; PARTS];
        let mut offset = at.offset;
        for (part, length) in at.parts() {
            if part == 0 || fields[part - 1] {
                parts[part] = Some(self.piece(at, offset, length));
            }
            offset += length;
        }
        self.parts_by_item.insert(seq, parts);
    }

    fn piece(&mut self, at: &PayloadLocation, offset: u32, length: u32) -> PieceRange {
        let (partition, chunk) = (i16::from(at.partition), at.chunk.cast_signed());
        let (offset, size) = (offset.cast_signed(), length.cast_signed());
        if let (Some(&last_partition), Some(&last_chunk), Some(&last_offset), Some(last_length)) =
            (self.partition.last(), self.chunk.last(), self.offset.last(), self.length.last_mut())
            && (last_partition, last_chunk, last_offset + *last_length) == (partition, chunk, offset)
        {
            let within = *last_length;
            *last_length += size;
            return (self.partition.len() as u32 - 1, within.cast_unsigned(), length);
        }
        self.partition.push(partition);
        self.chunk.push(chunk);
        self.offset.push(offset);
        self.length.push(size);
        (self.partition.len() as u32 - 1, 0, length)
    }
}

/// The bytes of the pieces.
#[derive(Debug, Default)]
pub(crate) struct PayloadBytes {
    pieces: Vec<Option<Bytes>>,
}

impl PayloadBytes {
    /// Takes the rows of `read_payloads.sql`.
    pub(crate) fn of(rows: &[Row], pieces: &PayloadPieces) -> PayloadBytes {
        let mut read = PayloadBytes { pieces: vec![None; pieces.partition.len()] };
        for row in rows {
            let at = usize::try_from(row.get::<_, i64>(0) - 1).ok();
            if let Some(piece) = at.and_then(|at| read.pieces.get_mut(at)) {
                *piece = row.get::<_, Option<&[u8]>>(1).map(Bytes::copy_from_slice);
            }
        }
        read
    }

    /// The parts asked for of this item. `None` if its row is missing.
    pub(crate) fn take(
        &self,
        pieces: &PayloadPieces,
        seq: u64,
    ) -> Option<Result<(Body, Fields), StoreError>> {
        let parts = pieces.parts_by_item.get(&seq)?;
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
