//! A body as it arrives: its size, its memory, its pauses and its pace are limited.

use super::room::{BodyMemory, SLOW_AFTER, Slow};
use crate::app::App;
use crate::response::ProblemResponse;
use axum::body::Body;
use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::Frame;
use http_body_util::BodyExt;
use std::pin::{Pin, pin};
use std::time::Duration;
use tokio::time::{Sleep, sleep};
use towline_api::Code;

/// The request fails if the client sends nothing for this long.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Maximum time for a body without data. Each [`BYTES_PER_SECOND_MIN`] bytes of data add one second.
const ARRIVAL_MAX: Duration = Duration::from_secs(30);
const BYTES_PER_SECOND_MIN: usize = 8 << 10;
/// Maximum number of bytes that the server allocates for an announced body before its data arrives.
const ANNOUNCED_MAX: usize = 1 << 20;
/// Frames smaller than this are copied into one, because each frame needs memory besides its data.
const SMALL_FRAME: usize = 4 << 10;
const JOINED_FRAMES: usize = 64 << 10;

/// A body, frame by frame.
pub(crate) struct BodyStream {
    body: Body,
    memory: BodyMemory,
    bytes: usize,
    bytes_max: usize,
    /// The content length, or 0.
    announced: usize,
    /// `None` until the client makes the server wait.
    pace: Option<ArrivalPace>,
}

/// How fast a body arrives.
struct ArrivalPace {
    deadline: Pin<Box<Sleep>>,
    slow_after: Pin<Box<Sleep>>,
    slow: Option<Slow>,
}

/// How much longer a body may take when this many of its bytes have arrived.
fn time_for(bytes: usize) -> Duration {
    Duration::from_millis((bytes.saturating_mul(1000) / BYTES_PER_SECOND_MIN) as u64)
}

impl BodyStream {
    pub(crate) fn new(request: Request, app: &App, bytes_max: usize) -> Result<BodyStream, ProblemResponse> {
        let announced = match length(request.headers()) {
            Some(length) if length > bytes_max as u64 => return Err(too_large(length, bytes_max)),
            length => length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0),
        };
        let memory = BodyMemory::new(&app.body_room);
        Ok(BodyStream { body: request.into_body(), memory, bytes: 0, bytes_max, announced, pace: None })
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ProblemResponse> {
        loop {
            // Most frames are there already and need no timers.
            let frame = match self.body.frame().now_or_never() {
                Some(frame) => frame.transpose().map_err(|error| broken_off(&error))?,
                None => self.wait().await?,
            };
            let Some(frame) = frame else { return Ok(None) };
            let Ok(data) = frame.into_data() else { continue };
            self.bytes += data.len();
            if self.bytes > self.bytes_max {
                return Err(too_large(format!("more than {}", self.bytes_max), self.bytes_max));
            }
            if let Some(ArrivalPace { deadline, .. }) = &mut self.pace {
                let later = deadline.deadline() + time_for(data.len());
                deadline.as_mut().reset(later);
            }
            self.memory.grow(self.bytes, 0).await?;
            return Ok(Some(data));
        }
    }

    /// Waits for the next frame. `None`: the body is complete.
    async fn wait(&mut self) -> Result<Option<Frame<Bytes>>, ProblemResponse> {
        let ArrivalPace { deadline, slow_after, slow } = self.pace.get_or_insert_with(|| ArrivalPace {
            deadline: Box::pin(sleep(ARRIVAL_MAX + time_for(self.bytes))),
            slow_after: Box::pin(sleep(SLOW_AFTER)),
            slow: None,
        });
        let mut silence = pin!(sleep(SILENCE_MAX));
        loop {
            let was_slow = slow.is_some();
            let next = async {
                match slow {
                    Some(slow) => slow.cut().await,
                    None => slow_after.as_mut().await,
                }
            };
            tokio::select! {
                biased;
                frame = self.body.frame() => return frame.transpose().map_err(|error| broken_off(&error)),
                () = next => {}
                () = deadline.as_mut() => return Err(too_slow()),
                () = &mut silence => return Err(silent(SILENCE_MAX)),
            }
            if was_slow {
                return Err(cut());
            }
            *slow = Some(self.memory.slow());
        }
    }

    /// Reads the whole body without copying large frames. Keep the reservation as long as the data.
    pub(crate) async fn all(mut self) -> Result<(Vec<Bytes>, BodyMemory), ProblemResponse> {
        let mut frames = Frames::default();
        while let Some(frame) = self.next().await? {
            frames.push(frame);
        }
        Ok((frames.take(), self.memory))
    }

    /// Reads the whole body into one piece. Keep the reservation as long as the data.
    pub(super) async fn joined(mut self) -> Result<(Bytes, BodyMemory), ProblemResponse> {
        // Most bodies are one frame and need no copy.
        let Some(first) = self.next().await? else { return Ok((Bytes::new(), self.memory)) };
        let Some(second) = self.next().await? else { return Ok((first, self.memory)) };
        let capacity = self.announced.min(ANNOUNCED_MAX).max(first.len() + second.len());
        let mut whole = BytesMut::with_capacity(capacity);
        whole.extend_from_slice(&first);
        whole.extend_from_slice(&second);
        while let Some(frame) = self.next().await? {
            whole.extend_from_slice(&frame);
        }
        Ok((whole.freeze(), self.memory))
    }
}

/// Frames of a body. Small ones are joined.
#[derive(Default)]
pub(crate) struct Frames {
    frames: Vec<Bytes>,
    small: BytesMut,
    bytes: usize,
}

impl Frames {
    pub(crate) fn push(&mut self, frame: Bytes) {
        self.bytes += frame.len();
        if frame.len() < SMALL_FRAME {
            self.small.extend_from_slice(&frame);
            if self.small.len() < JOINED_FRAMES {
                return;
            }
            self.join();
        } else {
            self.join();
            self.frames.push(frame);
        }
    }

    fn join(&mut self) {
        if !self.small.is_empty() {
            self.frames.push(self.small.split().freeze());
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn take(&mut self) -> Vec<Bytes> {
        self.join();
        self.bytes = 0;
        std::mem::take(&mut self.frames)
    }
}

fn too_large(bytes: impl std::fmt::Display, max: usize) -> ProblemResponse {
    let detail = format!("the body is {bytes} bytes, the maximum is {max}; split the request");
    ProblemResponse::new(Code::TooLarge, detail)
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
}

fn too_slow() -> ProblemResponse {
    let detail = format!("the body arrives too slowly; send at least {BYTES_PER_SECOND_MIN} bytes a second");
    ProblemResponse::new(Code::RequestTimeout, detail)
}

fn cut() -> ProblemResponse {
    let detail =
        "the body arrives slowly, and other requests need its memory; send it again, faster or in parts";
    ProblemResponse::new(Code::RequestTimeout, detail)
}

pub(crate) fn silent(time: Duration) -> ProblemResponse {
    let detail = format!("the client sent nothing for {} s; send the body without pauses", time.as_secs());
    ProblemResponse::new(Code::RequestTimeout, detail)
}

pub(crate) fn broken_off(error: &axum::Error) -> ProblemResponse {
    ProblemResponse::new(Code::MalformedBody, format!("the body is incomplete: {error}"))
}
