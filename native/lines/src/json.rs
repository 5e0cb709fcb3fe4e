//! JSON as bytes: written without a tree, and read without one.

pub mod bounded;
pub mod escape;
pub(crate) mod lex;
pub(crate) mod number;
pub mod timestamp;
