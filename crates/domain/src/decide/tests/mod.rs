//! Every rule of the model that one decision can show.

mod lease;
mod operate;
mod queue;
mod receive;
mod scene;
mod submit;
mod timer;
