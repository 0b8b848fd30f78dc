//! `towline run exec`: a run with standard input, standard output and an exit code.

use super::logs::print_log_to_stderr;
use super::run::{RunOptions, reason, wait};
use crate::buffer::{Sink, hexadecimal};
use crate::connect::Session;
use crate::entropy;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use clap::Args;
use std::time::Duration;
use towline_api::buffer::NewBuffer;
use towline_api::chain::Position;
use towline_api::client::chunker::chunk_input;
use towline_api::client::{Download, Upload, UploadError};
use towline_api::compute::{CodespecBody, CodespecRef, NewRun, RunShown, RunState};
use towline_api::{Client, ItemId, Millis, Text};

/// Buffers of `run exec` are not needed for longer.
const BUFFER_TTL: Millis = Millis::days(1);
/// Canceling must not delay ctrl-C for longer than this.
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);

/// Create a run, and connect it to this command: standard input is its input, standard output its output, and its log goes to
/// standard error.
///
/// Ends with the exit code of the run. Ctrl-C cancels the run. An input or output that has a --buffer is not connected. Example:
/// towline run exec --codespec sort < names.txt
#[derive(Debug, Args)]
pub struct ExecArgs {
    #[command(flatten)]
    options: RunOptions,
}

pub async fn run(session: &Session, args: ExecArgs) -> Result<(), Failure> {
    let client = session.client.clone().retry_for(Duration::from_secs(10));
    let mut new = args.options.new_run()?;
    let body = match &new.codespec {
        CodespecRef::Named(name) => client.codespec(name).await?.codespec,
        CodespecRef::Inline(body) => (**body).clone(),
    };
    let (input, output) = connect(&client, &body, &mut new).await?;
    let interrupt = Interrupt::listen()?;
    let run = client.create_run(&new).await?;
    let Text::Good(id) = run.id.clone() else { return Err(Failure::refused("the server answered no id")) };
    let feeding = tokio::spawn(feed(client.clone(), input));
    let ended = tokio::select! {
        ended = follow(session, &client, id, output) => ended,
        () = interrupt.raised() => {
            let cancel = client.cancel_run(id, Some("interrupted".to_owned()));
            let _ = tokio::time::timeout(CANCEL_PATIENCE, cancel).await;
            return Err(Failure::Refused(format!("interrupted; run {id} is being canceled")));
        }
    };
    feeding.abort();
    let run = ended?;
    match (run.state, run.exit_code) {
        (RunState::Succeeded, _) => Ok(()),
        (RunState::Failed, Some(code)) => Err(Failure::Exited(reason(&run, run.state), code)),
        (state, _) => Err(Failure::Refused(reason(&run, state))),
    }
}

/// Creates buffers for the input and the output that have none. At most one of each is connected.
async fn connect(
    client: &Client,
    body: &CodespecBody,
    new: &mut NewRun,
) -> Result<(Option<String>, Option<String>), Failure> {
    let mut created = [None, None];
    for (at, (what, names)) in
        [("inputs", &body.buffers.inputs), ("outputs", &body.buffers.outputs)].into_iter().enumerate()
    {
        let open: Vec<&String> = names.iter().filter(|name| !new.buffers.contains_key(*name)).collect();
        let name = match open[..] {
            [] => continue,
            [name] => name.clone(),
            _ => {
                let names = open.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
                return Err(Failure::Usage(format!(
                    "the codespec has several {what}: {names}; give all but one of them a buffer with --buffer NAME=ID"
                )));
            }
        };
        let buffer = client
            .create_buffer(&NewBuffer { ttl: Some(BUFFER_TTL.into()), ..NewBuffer::default() })
            .await?
            .id;
        new.buffers.insert(name, buffer.clone());
        created[at] = Some(buffer);
    }
    let [input, output] = created;
    Ok((input, output))
}

/// Writes standard input to the buffer of the input.
async fn feed(client: Client, input: Option<String>) {
    let Some(buffer) = input else { return };
    let written = async {
        let writer = hexadecimal(entropy::bytes()?);
        let mut upload = Upload::begin(client, &buffer, &writer).await?;
        match upload.run(chunk_input(tokio::io::stdin()), |_| ()).await {
            Ok(_) => Ok(()),
            Err(UploadError::Client(error)) => Err(Failure::from(error)),
            Err(UploadError::Input(error)) => {
                upload.fail("standard input failed").await?;
                Err(Failure::refused(error))
            }
        }
    };
    let written: Result<(), Failure> = written.await;
    if let Err(Failure::Refused(words) | Failure::Unreachable(words)) = written {
        crate::output::say(format!("cannot send standard input: {words}"));
    }
}

/// Copies output and log until the run has ended.
async fn follow(
    session: &Session,
    client: &Client,
    id: ItemId,
    output: Option<String>,
) -> Result<RunShown, Failure> {
    let copied = async {
        let Some(buffer) = output else { return Ok(()) };
        let mut sink = Sink::stdout()?;
        let mut download = Download::new(client.clone(), &buffer, Position::START);
        // A run that fails fails its output: the reason is in the run.
        while let Ok(Some(pieces)) = download.next().await {
            sink.write(pieces).await?;
        }
        sink.end().await
    };
    let logged = async {
        loop {
            let run = client.run(id).await?;
            if let Some(log) = &run.log {
                return print_log_to_stderr(client, log).await;
            }
            if run.state.is_terminal() {
                return Ok(());
            }
            client.wait_for_run(id, Duration::from_millis(200)).await?;
        }
    };
    let ended = wait(session, id, None);
    let mut copied = std::pin::pin!(copied);
    let mut logged = std::pin::pin!(logged);
    let mut ended = std::pin::pin!(ended);
    let (mut is_copied, mut is_logged) = (false, false);
    let run = loop {
        tokio::select! {
            run = &mut ended => break run?,
            done = &mut copied, if !is_copied => {
                done?;
                is_copied = true;
            }
            done = &mut logged, if !is_logged => {
                done?;
                is_logged = true;
            }
        }
    };
    // A run that never started has an output that never ends.
    if !is_copied && run.state == RunState::Succeeded {
        copied.await?;
    }
    if !is_logged {
        logged.await?;
    }
    Ok(run)
}
