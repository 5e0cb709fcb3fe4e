//! encode
mod block;
pub mod escape;
