//! Kinds of work: a name, what comes in, what comes out, and what does it.

use crate::codec::{Codec, CodecError};
use crate::context::Context;
use crate::doer::Doer;
use crate::options::Options;
use crate::outcome::{Children, Failure, Outcome};
use crate::ports::Queue;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// A kind of work with input `I` and result `O`. Clones are the same kind.
pub struct Work<I, O> {
    pub(crate) kind: Arc<Kind>,
    by_input: Option<Arc<ByInput<I>>>,
    types: PhantomData<fn(I) -> O>,
}

type ByInput<I> = dyn Fn(&I) -> Options + Send + Sync;

/// What the engine knows of a kind.
pub(crate) struct Kind {
    pub(crate) name: Arc<str>,
    pub(crate) options: Options,
    pub(crate) codec: Option<Arc<dyn Codec>>,
    pub(crate) queue: Option<Arc<dyn Queue>>,
    pub(crate) doer: Option<Doer>,
    pub(crate) run: Run,
}

/// What does it: one at a time, or many together.
#[derive(Clone)]
pub(crate) enum Run {
    One(Arc<dyn Fn(Taken) -> BoxFuture<'static, Ended> + Send + Sync>),
    Batch {
        size: usize,
        wait: Duration,
        run: Arc<dyn Fn(Vec<Taken>) -> BoxFuture<'static, Vec<Ended>> + Send + Sync>,
    },
    /// It is done elsewhere.
    Elsewhere,
}

/// One piece of work on its way into a handler.
pub(crate) struct Taken {
    pub(crate) codecs: Codecs,
    pub(crate) context: Context,
}

impl Taken {
    fn input(&self) -> &str {
        &self.context.envelope().input
    }
}

/// The codec of the kind, and the one of the system for what groups share.
#[derive(Clone)]
pub(crate) struct Codecs {
    pub(crate) own: Arc<dyn Codec>,
    pub(crate) group: Arc<dyn Codec>,
}

pub(crate) type Ended = Result<Told, Failure>;

/// An outcome, as text.
pub(crate) enum Told {
    Result {
        own: String,
        /// If the system has another codec.
        group: Option<String>,
        append: bool,
    },
    Queue(Children),
    Void,
}

impl<I, O> Clone for Work<I, O> {
    fn clone(&self) -> Work<I, O> {
        Work { kind: Arc::clone(&self.kind), by_input: self.by_input.clone(), types: PhantomData }
    }
}

impl<I, O> fmt::Debug for Work<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.kind.name).finish()
    }
}

/// A kind of work that is done one piece at a time.
///
/// ```
/// use towline::{Outcome, work};
///
/// let double = work("double", |n: u32, _| async move { Ok(Outcome::Result(n * 2)) });
/// # let _: towline::Work<u32, u32> = double;
/// ```
pub fn work<I, O, F, R>(name: impl Into<String>, handler: F) -> Work<I, O>
where
    I: DeserializeOwned + 'static,
    O: Serialize + 'static,
    F: Fn(I, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Outcome<O>, Failure>> + Send + 'static,
{
    let run = move |taken: Taken| -> BoxFuture<'static, Ended> {
        let running = taken.codecs.own.decode::<I>(taken.input()).map(|input| handler(input, taken.context));
        Box::pin(async move {
            // The text does not change: another attempt reads the same.
            let running =
                running.map_err(|error| Failure::abort(format!("its input cannot be read: {error}")))?;
            tell(running.await?, &taken.codecs)
        })
    };
    Work::new(name, Run::One(Arc::new(run)))
}

/// One piece of a batch.
#[derive(Debug)]
pub struct Piece<I> {
    pub input: I,
    pub context: Context,
}

/// A kind of work that is done up to `size` pieces at a time; none waits longer than `wait` for others. The handler
/// answers each, in order.
pub fn batch<I, O, F, R>(name: impl Into<String>, size: usize, wait: Duration, handler: F) -> Work<I, O>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
    F: Fn(Vec<Piece<I>>) -> R + Send + Sync + 'static,
    R: Future<Output = Vec<Result<Outcome<O>, Failure>>> + Send + 'static,
{
    let handler = Arc::new(handler);
    let run = move |all: Vec<Taken>| -> BoxFuture<'static, Vec<Ended>> {
        let handler = Arc::clone(&handler);
        Box::pin(async move {
            let (mut pieces, mut codecs, mut ended) = (Vec::new(), Vec::new(), Vec::new());
            for taken in all {
                match taken.codecs.own.decode::<I>(taken.input()) {
                    Ok(input) => {
                        pieces.push(Piece { input, context: taken.context });
                        codecs.push(taken.codecs);
                        ended.push(None);
                    }
                    Err(error) => {
                        ended.push(Some(Err(Failure::abort(format!("its input cannot be read: {error}")))));
                    }
                }
            }
            let asked = pieces.len();
            let mut answers = handler(pieces).await;
            if answers.len() != asked {
                let wrong = format!("the batch handler gave {} answers to {asked} pieces", answers.len());
                answers = (0..asked).map(|_| Err(Failure::retry(&wrong))).collect();
            }
            let mut answers = answers.into_iter().zip(codecs).map(|(answer, codecs)| tell(answer?, &codecs));
            let none = || Err(Failure::retry("the batch handler gave no answer"));
            ended.into_iter().map(|ended| ended.or_else(|| answers.next()).unwrap_or_else(none)).collect()
        })
    };
    Work::new(name, Run::Batch { size: size.max(1), wait, run: Arc::new(run) })
}

fn tell<O: Serialize>(outcome: Outcome<O>, codecs: &Codecs) -> Ended {
    let encode = |value: &O| -> Result<(String, Option<String>), CodecError> {
        let other = Some(&codecs.group).filter(|group| !Arc::ptr_eq(group, &codecs.own));
        Ok((codecs.own.encode(value)?, other.map(|group| group.encode(value)).transpose()?))
    };
    // A result that cannot be told will not be tellable the next time.
    let lost = |error: CodecError| Failure::abort(format!("its result cannot be told: {error}"));
    Ok(match outcome {
        Outcome::Result(value) => {
            let (own, group) = encode(&value).map_err(lost)?;
            Told::Result { own, group, append: false }
        }
        Outcome::Append(value) => {
            let (own, group) = encode(&value).map_err(lost)?;
            Told::Result { own, group, append: true }
        }
        Outcome::Queue(children) => Told::Queue(children),
        Outcome::Void => Told::Void,
    })
}

/// A kind of work that other processes do: to queue it, and to wait for it.
#[must_use]
pub fn elsewhere<I, O>(name: impl Into<String>) -> Work<I, O> {
    Work::new(name, Run::Elsewhere)
}

impl<I, O> Work<I, O> {
    fn new(name: impl Into<String>, run: Run) -> Work<I, O> {
        let kind = Kind {
            name: name.into().into(),
            options: Options::new(),
            codec: None,
            queue: None,
            doer: None,
            run,
        };
        Work { kind: Arc::new(kind), by_input: None, types: PhantomData }
    }

    fn change(mut self, change: impl FnOnce(&mut Kind)) -> Work<I, O> {
        let kind = &self.kind;
        let mut changed = Kind {
            name: Arc::clone(&kind.name),
            options: kind.options.clone(),
            codec: kind.codec.clone(),
            queue: kind.queue.clone(),
            doer: kind.doer.clone(),
            run: kind.run.clone(),
        };
        change(&mut changed);
        self.kind = Arc::new(changed);
        self
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.kind.name
    }

    /// For all of this kind.
    #[must_use]
    pub fn options(self, options: Options) -> Work<I, O> {
        self.change(|kind| kind.options = options)
    }

    /// Looks at the input; what it says wins over [`Work::options`].
    #[must_use]
    pub fn options_by_input(
        mut self,
        by_input: impl Fn(&I) -> Options + Send + Sync + 'static,
    ) -> Work<I, O> {
        self.by_input = Some(Arc::new(by_input));
        self
    }

    /// In place of the system's.
    #[must_use]
    pub fn codec(self, codec: impl Codec + 'static) -> Work<I, O> {
        self.change(|kind| kind.codec = Some(Arc::new(codec)))
    }

    /// A queue of its own: however full it gets, the others are served.
    #[must_use]
    pub fn queue(self, queue: Arc<dyn Queue>) -> Work<I, O> {
        self.change(|kind| kind.queue = Some(queue))
    }

    /// How many at a time, and which first. Kinds given clones of one share it.
    #[must_use]
    pub fn doer(self, doer: Doer) -> Work<I, O> {
        self.change(|kind| kind.doer = Some(doer))
    }
}

impl<I: Serialize + Send + Sync + 'static, O> Work<I, O> {
    /// This kind with this input.
    #[must_use]
    pub fn of(&self, input: I) -> Job<O> {
        let by_input = self.by_input.as_ref().map(|by_input| by_input(&input)).unwrap_or_default();
        let encode = move |codec: &dyn Codec| codec.encode(&input);
        let any =
            AnyJob { kind: Arc::clone(&self.kind), encode: Box::new(encode), by_input, said: Options::new() };
        Job { any, result: PhantomData }
    }
}

/// A piece of work, to be queued, with a result of type `O`.
pub struct Job<O> {
    pub(crate) any: AnyJob,
    result: PhantomData<fn() -> O>,
}

impl<O> Job<O> {
    /// Wins over everything said of its kind and its input.
    #[must_use]
    pub fn options(mut self, options: Options) -> Job<O> {
        self.any.said = options.or(&self.any.said);
        self
    }

    /// Together with others of other types.
    #[must_use]
    pub fn any(self) -> AnyJob {
        self.any
    }
}

impl<O> fmt::Debug for Job<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.any.fmt(f)
    }
}

impl<O> From<Job<O>> for AnyJob {
    fn from(job: Job<O>) -> AnyJob {
        job.any
    }
}

type Encode = dyn Fn(&dyn Codec) -> Result<String, CodecError> + Send + Sync;

/// A piece of work whose result is of some type.
pub struct AnyJob {
    pub(crate) kind: Arc<Kind>,
    pub(crate) encode: Box<Encode>,
    by_input: Options,
    said: Options,
}

impl AnyJob {
    pub(crate) fn resolved(&self, defaults: &Options) -> Options {
        self.said.clone().or(&self.by_input).or(&self.kind.options).or(defaults)
    }
}

impl fmt::Debug for AnyJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("kind", &self.kind.name)
            .field("options", &self.said)
            .finish_non_exhaustive()
    }
}
