//! All tests of queue files, records and event schemas as one program.

// By the name that the other crates of the workspace use.
extern crate inferlog_queue as queue;

mod memory;
mod support;

mod golden_record;
mod published;
mod record;
