//! The configuration: JSON or lines in, the settings of a producer out. The crate `listen` adds those of listener and sinks.
//!
//! Names, limits and defaults come from the published schema (`schema.json`, written by `inference-logging config
//! schema`), so that each is stated once. The rules about several parameters are in `rules`. All problems are reported at
//! once.
//!
//! Reading a configuration opens nothing. The functions that return the settings of a sampler read the key files.
//!
//! A library for small machines contains `by_line` and what stands below it: no general reader of JSON, and none of regular
//! expressions.

pub mod by_line;
mod common;
pub mod json;
pub mod keys;
#[cfg(feature = "json")]
#[cfg(feature = "json")]
mod parameters;
mod place;
#[cfg(feature = "json")]
mod requests;
#[cfg(feature = "json")]
mod rules;
#[cfg(feature = "json")]
mod schema;
mod sources;
#[cfg(feature = "json")]
mod texts;
#[cfg(feature = "json")]
pub mod values;
mod words;

pub use common::{Audit, Common};
#[cfg(feature = "json")]
pub use parameters::Parameters;
pub use place::{entries, is_own, plain, queue_directories, user_name};
pub use words::ParametersError;
