//! The promises of the model, checked on what clients saw.
