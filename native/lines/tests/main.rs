//! All tests of lines and their redaction as one program.

// By the name that the other crates of the workspace use.
extern crate inferlog_lines as lines;

mod compressed;
mod encode;
mod extract;
mod form;
mod messages;
mod packed;
mod redact;
mod support;
mod terminal;
