//! The server as its clients see it, over real connections.

mod life_of_an_item;
mod rig;
