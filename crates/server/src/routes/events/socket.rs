//! Events over a WebSocket: each event is a text message. A last message says why the stream ended.

use super::stream::{EventStream, StreamStep};
use crate::app::App;
use crate::response::ProblemResponse;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{FromRequestParts, Request};
use axum::response::Response;
use futures::{SinkExt, StreamExt};
use std::time::Duration;
use towline_api::Code;

/// Clients send nothing but control frames.
const MESSAGE_BYTES_MAX: usize = 4096;
/// The connection ends after this many pings without an answer.
const UNANSWERED_PINGS_MAX: u32 = 3;
/// Limit for sending messages.
const SEND_LIMIT: Duration = Duration::from_secs(60);
/// Limit for the last message when the server stops.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

pub(super) async fn upgrade(
    app: App,
    events: EventStream,
    request: Request,
) -> Result<Response, ProblemResponse> {
    let (mut parts, _) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    let upgrade = upgrade.map_err(|rejected| {
        let detail = format!("this is not a WebSocket request: {rejected}");
        ProblemResponse::new(Code::Invalid, detail)
    })?;
    Ok(upgrade
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX)
        .on_upgrade(move |socket| serve(app, events, socket)))
}

async fn serve(app: App, mut events: EventStream, socket: WebSocket) {
    let caller = events.filter().caller();
    let revoked = caller.ended();
    let stopped = app.stopped();
    let forward = forward(&mut events, socket);
    tokio::pin!(revoked, stopped, forward);
    tokio::select! {
        () = &mut forward => return,
        () = &mut revoked => return,
        () = &mut stopped => {}
    }
    // The stream ends by itself, unless the client does not read.
    let _ = tokio::time::timeout(CLOSE_LIMIT, forward).await;
}

async fn forward(events: &mut EventStream, socket: WebSocket) {
    let (mut sink, mut stream) = socket.split();
    let mut unanswered = 0;
    loop {
        let next = tokio::select! {
            next = events.next() => next,
            received = stream.next() => match received {
                None | Some(Err(_) | Ok(Message::Close(_))) => return,
                Some(Ok(_)) => {
                    unanswered = 0;
                    continue;
                }
            },
        };
        let (messages, ends) = match next {
            StreamStep::Events(events) => {
                let text = |event| serde_json::to_string(event).unwrap_or_default();
                (events.iter().map(|event| Message::text(text(event))).collect(), None)
            }
            StreamStep::Idle => {
                unanswered += 1;
                if unanswered > UNANSWERED_PINGS_MAX {
                    return;
                }
                (vec![Message::Ping(bytes::Bytes::new())], None)
            }
            StreamStep::Ended(problem) => {
                let last = serde_json::json!({ "cut_off": problem.problem() });
                let reason = problem.problem().code.clone();
                (vec![Message::text(last.to_string())], Some((close_code::AGAIN, reason)))
            }
            StreamStep::TimeUp => (Vec::new(), Some((close_code::NORMAL, String::new()))),
        };
        let sending = async {
            for message in messages {
                sink.feed(message).await?;
            }
            sink.flush().await
        };
        if !matches!(tokio::time::timeout(SEND_LIMIT, sending).await, Ok(Ok(()))) {
            return;
        }
        if let Some((code, reason)) = ends {
            let close = CloseFrame { code, reason: reason.into() };
            let _ = tokio::time::timeout(CLOSE_LIMIT, sink.send(Message::Close(Some(close)))).await;
            return;
        }
    }
}
