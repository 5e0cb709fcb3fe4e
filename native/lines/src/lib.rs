//! A record becomes a line of JSON.
//!
//! ```text
//! encode                       the line: keys in a fixed order, values as JSON
//!   ├ plan                     what is derived from an event's schema once
//!   ├ extract                  model, usage and texts, read from captured bodies
//!   ├ redact                   what must not be stored is replaced in the finished line
//!   └ series                   requests by outcome, tokens and histograms, counted on the way
//! rate                         what follows from the times of an answer and its tokens
//! json                         JSON as bytes: written without a tree, and read without one
//! ```

pub mod encode;
pub mod extract;
pub mod json;
pub mod plan;
pub mod rate;
pub mod redact;
pub mod series;
