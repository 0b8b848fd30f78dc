//! Kinds of work: a name, the type of the input, the type of the result, and a handler.

use crate::codec::Codec;
use crate::context::Context;
use crate::handler::{BatchEntry, Handler};
use crate::job::Job;
use crate::limiter::ConcurrencyLimiter;
use crate::options::Options;
use crate::outcome::{Failure, Outcome};
use crate::ports::Queue;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// A kind of work with input `I` and result `O`. Clones are the same kind.
pub struct Work<I, O> {
    pub(crate) kind: Arc<Kind>,
    input_options: Option<Arc<InputOptions<I>>>,
    types: PhantomData<fn(I) -> O>,
}

type InputOptions<I> = dyn Fn(&I) -> Options + Send + Sync;

/// A kind of work without its types, as the engine uses it.
#[derive(Clone)]
pub(crate) struct Kind {
    pub(crate) name: Arc<str>,
    pub(crate) options: Options,
    pub(crate) codec: Option<Arc<dyn Codec>>,
    pub(crate) queue: Option<Arc<dyn Queue>>,
    pub(crate) limiter: Option<ConcurrencyLimiter>,
    pub(crate) handler: Handler,
}

impl<I, O> Clone for Work<I, O> {
    fn clone(&self) -> Work<I, O> {
        Work { kind: Arc::clone(&self.kind), input_options: self.input_options.clone(), types: PhantomData }
    }
}

impl<I, O> fmt::Debug for Work<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.kind.name).finish()
    }
}

/// A kind of work whose handler runs one piece at a time.
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
    Work::new(name, Handler::single(handler))
}

/// A kind of work whose handler runs up to `size` pieces together. The batch starts when it is full, or when its first
/// piece has waited for `wait`. The handler returns one outcome for each entry, in order.
pub fn batch<I, O, F, R>(name: impl Into<String>, size: usize, wait: Duration, handler: F) -> Work<I, O>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
    F: Fn(Vec<BatchEntry<I>>) -> R + Send + Sync + 'static,
    R: Future<Output = Vec<Result<Outcome<O>, Failure>>> + Send + 'static,
{
    Work::new(name, Handler::batch(size, wait, handler))
}

/// A kind of work that other processes run. This process can submit it and wait for it.
#[must_use]
pub fn remote<I, O>(name: impl Into<String>) -> Work<I, O> {
    Work::new(name, Handler::Remote)
}

impl<I, O> Work<I, O> {
    fn new(name: impl Into<String>, handler: Handler) -> Work<I, O> {
        let kind = Kind {
            name: name.into().into(),
            options: Options::new(),
            codec: None,
            queue: None,
            limiter: None,
            handler,
        };
        Work { kind: Arc::new(kind), input_options: None, types: PhantomData }
    }

    fn change(mut self, change: impl FnOnce(&mut Kind)) -> Work<I, O> {
        change(Arc::make_mut(&mut self.kind));
        self
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.kind.name
    }

    /// Sets the options of all work of this kind.
    #[must_use]
    pub fn options(self, options: Options) -> Work<I, O> {
        self.change(|kind| kind.options = options)
    }

    /// Makes options from the input. They override [`Work::options`].
    #[must_use]
    pub fn options_by_input(mut self, options: impl Fn(&I) -> Options + Send + Sync + 'static) -> Work<I, O> {
        self.input_options = Some(Arc::new(options));
        self
    }

    /// Replaces the codec of the system for this kind.
    #[must_use]
    pub fn codec(self, codec: impl Codec + 'static) -> Work<I, O> {
        self.change(|kind| kind.codec = Some(Arc::new(codec)))
    }

    /// Gives this kind its own queue. A backlog in that queue does not delay other kinds.
    #[must_use]
    pub fn queue(self, queue: Arc<dyn Queue>) -> Work<I, O> {
        self.change(|kind| kind.queue = Some(queue))
    }

    /// Replaces the system's limiter for this kind. Kinds that get clones of one limiter share its slots.
    #[must_use]
    pub fn concurrency(self, limiter: ConcurrencyLimiter) -> Work<I, O> {
        self.change(|kind| kind.limiter = Some(limiter))
    }
}

impl<I: Serialize + Send + Sync + 'static, O> Work<I, O> {
    /// A job of this kind with this input.
    #[must_use]
    pub fn of(&self, input: I) -> Job<O> {
        let input_options = self.input_options.as_ref().map(|options| options(&input)).unwrap_or_default();
        let encode = move |codec: &dyn Codec| codec.encode(&input);
        Job::new(Arc::clone(&self.kind), Box::new(encode), input_options)
    }
}
