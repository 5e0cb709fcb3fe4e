//! JSON as bytes: written without a tree, and read without one.

pub mod bounded;
pub mod escape;
pub mod lex;
pub mod number;
pub mod rewrite;
pub mod text;
pub mod timestamp;
