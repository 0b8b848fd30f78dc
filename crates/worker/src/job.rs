//! Jobs: work with its input, ready to submit.

use crate::codec::{Codec, CodecError};
use crate::options::Options;
use crate::work::Kind;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A piece of work to submit, with a result of type `O`. [`crate::Work::of`] makes it.
pub struct Job<O> {
    pub(crate) any: AnyJob,
    result: PhantomData<fn() -> O>,
}

impl<O> Job<O> {
    pub(crate) fn new(kind: Arc<Kind>, encode: Box<Encode>, input_options: Options) -> Job<O> {
        Job { any: AnyJob { kind, encode, input_options, options: Options::new() }, result: PhantomData }
    }

    /// Overrides the options of the kind and those made from the input.
    #[must_use]
    pub fn options(mut self, options: Options) -> Job<O> {
        self.any.options = options.or(&self.any.options);
        self
    }

    /// Removes the type of the result, so that jobs of several kinds can be submitted together.
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

pub(crate) type Encode = dyn Fn(&dyn Codec) -> Result<String, CodecError> + Send + Sync;

/// A job whose type of result is erased.
pub struct AnyJob {
    pub(crate) kind: Arc<Kind>,
    pub(crate) encode: Box<Encode>,
    input_options: Options,
    options: Options,
}

impl AnyJob {
    pub(crate) fn resolved_options(&self, defaults: &Options) -> Options {
        self.options.clone().or(&self.input_options).or(&self.kind.options).or(defaults)
    }
}

impl fmt::Debug for AnyJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("kind", &self.kind.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
