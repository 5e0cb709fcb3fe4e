//! All tests of lines and their redaction as one program.

mod encode;
mod extract;
mod messages;
mod packed;
mod redact;
