//! All tests of segments as one program.

// By the name that the other crates of the workspace use.
extern crate inferlog_segments as segments;

mod chain;
mod segment_account;
