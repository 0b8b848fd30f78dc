//! State and size of a buffer, as the storage tells them.

use futures::TryStreamExt;

use crate::header::HEADER_LEN;
use crate::id::check_id;
use crate::sizes::Sizes;
use crate::storage::{At, chunk_number};
use crate::{Buffers, CHUNKS_MAX, Position, Result, Shown, State};

/// What the names and sizes of the stored chunks tell, and the headers of the last ones.
#[derive(Debug)]
pub(crate) struct Survey {
    pub position: Position,
    pub sizes: Sizes,
    /// When the last chunk was put; 0 if there is none.
    pub last_put_ms: u64,
}

impl Buffers {
    /// State and size. Marks the buffer failed if its writer vanished.
    pub async fn show(&self, id: &str, now_ms: u64) -> Result<Shown> {
        check_id(id)?;
        let at = At::new("showing buffer", id);
        let meta = self.need_meta(at).await?;
        let (state, position) = match self.find_end(at).await? {
            Some(end) => (end.state(), end.position(at)?),
            None => match self.find_writer(at).await? {
                None => (State::Empty, Position::START),
                Some(there) => match self.fail_if_vanished(&there, now_ms, at).await? {
                    Some(end) => (end.state(), end.position(at)?),
                    None => {
                        let survey = self.survey(at).await?;
                        let known = self.known_progress(id).map_or(0, |known| known.last_sign_ms());
                        let last_sign_ms = there.touched_at_ms.max(survey.last_put_ms).max(known);
                        let begun_at_ms = there.begun_at_ms;
                        (State::Writing { begun_at_ms, last_sign_ms }, survey.position)
                    }
                },
            },
        };
        Ok(Shown { id: id.to_owned(), meta, state, position })
    }

    pub(crate) async fn survey(&self, at: At<'_>) -> Result<Survey> {
        let mut chunks = Vec::new();
        let mut listed = self.storage().list_under(&self.storage().chunks(at.id), at);
        while let Some(object) = listed.try_next().await? {
            if let Some(n) = chunk_number(&object.location).filter(|n| *n < CHUNKS_MAX) {
                chunks.push((n, object.size.saturating_sub(HEADER_LEN as u64)));
            }
        }
        chunks.sort_unstable();
        let mut sizes = Sizes::default();
        let mut position = Position::START;
        for &(n, bytes) in &chunks {
            if n != position.chunks {
                break;
            }
            sizes.push(bytes);
            position.chunks += 1;
            position.bytes += bytes;
        }
        let mut last_put_ms = 0;
        if let Some(last) = position.chunks.checked_sub(1)
            && let Some(header) = self.find_header(last, at).await?
        {
            position.chain = header.chain;
            last_put_ms = header.put_at_ms;
        }
        if let Some(&(last, _)) = chunks.last()
            && last >= position.chunks
            && let Some(header) = self.find_header(last, at).await?
        {
            last_put_ms = last_put_ms.max(header.put_at_ms);
        }
        Ok(Survey { position, sizes, last_put_ms })
    }
}
