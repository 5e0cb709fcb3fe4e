//! All tests of segments as one program.

mod chain;
mod segment_account;
