//! The same over a WebSocket: each event a text message, and a last one that says why nothing more comes.

use super::{Next, Reading};
use crate::app::App;
use crate::refuse::Refused;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{FromRequestParts, Request};
use axum::response::Response;
use futures::{SinkExt, StreamExt};
use std::time::Duration;
use towline_api::Code;

/// Whoever follows has nothing to say.
const MESSAGE_BYTES_MAX: usize = 4096;
/// Silent for so many signs of life: it is not there any more.
const UNANSWERED_MAX: u32 = 3;
/// For a message to get on its way.
const SEND_LIMIT: Duration = Duration::from_secs(60);
/// For the last words, when the server stops.
const FAREWELL: Duration = Duration::from_secs(1);

pub(super) async fn upgrade(app: App, reading: Reading, request: Request) -> Result<Response, Refused> {
    let (mut parts, _) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    let upgrade = upgrade.map_err(|rejected| {
        let detail = format!("this is no request for a WebSocket: {rejected}");
        Refused::new(Code::Invalid, detail)
    })?;
    Ok(upgrade
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX)
        .on_upgrade(move |socket| follow(app, reading, socket)))
}

async fn follow(app: App, mut reading: Reading, socket: WebSocket) {
    let caller = reading.wanted.caller();
    let unwelcome = caller.ended();
    let stopped = app.stopped();
    let talk = talk(&mut reading, socket);
    tokio::pin!(unwelcome, stopped, talk);
    tokio::select! {
        () = &mut talk => return,
        () = &mut unwelcome => return,
        () = &mut stopped => {}
    }
    // It hears so by itself, unless its client takes nothing.
    let _ = tokio::time::timeout(FAREWELL, talk).await;
}

async fn talk(reading: &mut Reading, socket: WebSocket) {
    let (mut sink, mut stream) = socket.split();
    let mut unanswered = 0;
    loop {
        let next = tokio::select! {
            next = reading.next() => next,
            said = stream.next() => match said {
                None | Some(Err(_) | Ok(Message::Close(_))) => return,
                Some(Ok(_)) => {
                    unanswered = 0;
                    continue;
                }
            },
        };
        let (messages, ends) = match next {
            Next::Events(events) => {
                let text = |event| serde_json::to_string(event).unwrap_or_default();
                (events.iter().map(|event| Message::text(text(event))).collect(), None)
            }
            Next::Silence => {
                unanswered += 1;
                if unanswered > UNANSWERED_MAX {
                    return;
                }
                (vec![Message::Ping(bytes::Bytes::new())], None)
            }
            Next::Ended(refused) => {
                let last = serde_json::json!({ "cut_off": refused.problem() });
                let reason = refused.problem().code.clone();
                (vec![Message::text(last.to_string())], Some((close_code::AGAIN, reason)))
            }
            Next::Over => (Vec::new(), Some((close_code::NORMAL, String::new()))),
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
            let _ = tokio::time::timeout(FAREWELL, sink.send(Message::Close(Some(close)))).await;
            return;
        }
    }
}
