//! All tests of the crate in one program.

mod json;
mod pattern;
mod producers;
