//! All tests of the index as one program.

// By the name that the other crates of the workspace use.
extern crate inferlog_index as index;

mod block;
mod catalog;
mod chosen;
mod condition;
mod ends;
mod hostile;
mod image;
mod json;
mod segment;
mod sketch;
