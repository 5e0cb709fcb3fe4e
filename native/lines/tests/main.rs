//! All tests of lines and what is redacted in them as one program.

mod encode;
mod extract;
mod messages;
mod packed;
mod redact;
