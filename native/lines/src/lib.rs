//! A record becomes a line of JSON.
//!
//! ```text
//! encode                       the line: keys in a fixed order, values as JSON
//!   ├ plan                     derived once from an event's schema
//!   ├ extract                  model, usage and texts, read from captured bodies
//!   ├ redact                   secrets are replaced in the finished line
//!   └ series                   requests by outcome, tokens and histograms, counted on the way
//! catalogue                    each field: type, unit, meaning, source
//! rate                         rates from the times of an answer and its tokens
//! terminal                     a line as people read it
//! json                         JSON as bytes: written without a tree, and read without one
//! ```

pub mod catalogue;
pub mod encode;
pub mod extract;
pub mod json;
pub mod plan;
mod rate;
pub mod redact;
pub mod series;
pub mod terminal;
