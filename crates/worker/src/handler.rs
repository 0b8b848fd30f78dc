//! Handlers: the functions that do the work, behind one type for all inputs and results.

use crate::codec::{Codec, CodecError};
use crate::context::Context;
use crate::outcome::{Children, Failure, Outcome};
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// What runs the work of a kind.
#[derive(Clone)]
pub(crate) enum Handler {
    Single(Arc<dyn Fn(HandlerInput) -> BoxFuture<'static, HandlerResult> + Send + Sync>),
    Batch {
        size: usize,
        wait: Duration,
        run: Arc<dyn Fn(Vec<HandlerInput>) -> BoxFuture<'static, Vec<HandlerResult>> + Send + Sync>,
    },
    /// Another process runs it.
    Remote,
}

/// One piece of work, before its input is decoded.
pub(crate) struct HandlerInput {
    pub(crate) codecs: Codecs,
    pub(crate) context: Context,
}

/// The codec of the kind, and the codec of the system for the values of groups.
#[derive(Clone)]
pub(crate) struct Codecs {
    pub(crate) kind: Arc<dyn Codec>,
    pub(crate) group: Arc<dyn Codec>,
}

pub(crate) type HandlerResult = Result<HandlerOutcome, Failure>;

/// An [`Outcome`] whose value is encoded.
pub(crate) enum HandlerOutcome {
    Result {
        result: String,
        /// The value in the codec of the system, if that is not the codec of the kind.
        group_value: Option<String>,
        append: bool,
    },
    Submit(Children),
    Void,
}

impl HandlerInput {
    /// The input does not change between attempts: if it cannot be decoded, the work fails at once.
    fn decode<I: DeserializeOwned>(&self) -> Result<I, Failure> {
        let input = self.codecs.kind.decode(&self.context.envelope().input);
        input.map_err(|error| Failure::fail(format!("the input cannot be decoded: {error}")))
    }
}

impl Handler {
    pub(crate) fn single<I, O, F, R>(handler: F) -> Handler
    where
        I: DeserializeOwned + 'static,
        O: Serialize + 'static,
        F: Fn(I, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome<O>, Failure>> + Send + 'static,
    {
        Handler::Single(Arc::new(move |input: HandlerInput| -> BoxFuture<'static, HandlerResult> {
            let running = input.decode::<I>().map(|decoded| handler(decoded, input.context));
            Box::pin(async move { encode(running?.await?, &input.codecs) })
        }))
    }

    pub(crate) fn batch<I, O, F, R>(size: usize, wait: Duration, handler: F) -> Handler
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        F: Fn(Vec<BatchEntry<I>>) -> R + Send + Sync + 'static,
        R: Future<Output = Vec<Result<Outcome<O>, Failure>>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let run = move |inputs: Vec<HandlerInput>| -> BoxFuture<'static, Vec<HandlerResult>> {
            let handler = Arc::clone(&handler);
            Box::pin(async move { run_batch(&*handler, inputs).await })
        };
        Handler::Batch { size: size.max(1), wait, run: Arc::new(run) }
    }
}

/// One piece of work of a batch.
#[derive(Debug)]
pub struct BatchEntry<I> {
    pub input: I,
    pub context: Context,
}

/// Runs the handler on the entries whose input can be decoded. Entries with other input fail.
async fn run_batch<I, O, R>(
    handler: &impl Fn(Vec<BatchEntry<I>>) -> R,
    inputs: Vec<HandlerInput>,
) -> Vec<HandlerResult>
where
    I: DeserializeOwned,
    O: Serialize,
    R: Future<Output = Vec<Result<Outcome<O>, Failure>>>,
{
    let (mut entries, mut codecs, mut results) = (Vec::new(), Vec::new(), Vec::new());
    for input in inputs {
        match input.decode() {
            Ok(decoded) => {
                entries.push(BatchEntry { input: decoded, context: input.context });
                codecs.push(input.codecs);
                results.push(None);
            }
            Err(failure) => results.push(Some(Err(failure))),
        }
    }
    let count = entries.len();
    let mut outcomes = handler(entries).await;
    if outcomes.len() != count {
        let error = format!("the batch handler returned {} outcomes for {count} entries", outcomes.len());
        outcomes = (0..count).map(|_| Err(Failure::retry(&error))).collect();
    }
    let mut outcomes = outcomes.into_iter().zip(codecs).map(|(outcome, codecs)| encode(outcome?, &codecs));
    let missing = || Err(Failure::retry("the batch handler returned no outcome"));
    results.into_iter().map(|result| result.or_else(|| outcomes.next()).unwrap_or_else(missing)).collect()
}

fn encode<O: Serialize>(outcome: Outcome<O>, codecs: &Codecs) -> HandlerResult {
    let result = |value: &O, append| -> Result<HandlerOutcome, CodecError> {
        let group_codec = Some(&codecs.group).filter(|group| !Arc::ptr_eq(group, &codecs.kind));
        let group_value = group_codec.map(|group| group.encode(value)).transpose()?;
        Ok(HandlerOutcome::Result { result: codecs.kind.encode(value)?, group_value, append })
    };
    let encoded = match outcome {
        Outcome::Result(value) => result(&value, false),
        Outcome::Append(value) => result(&value, true),
        Outcome::Submit(children) => Ok(HandlerOutcome::Submit(children)),
        Outcome::Void => Ok(HandlerOutcome::Void),
    };
    // The next attempt would return a value that cannot be encoded either.
    encoded.map_err(|error| Failure::fail(format!("the result cannot be encoded: {error}")))
}
