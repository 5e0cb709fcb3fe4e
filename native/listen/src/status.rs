//! The state of the logging and its counts, for every face: the grade of health, and the metrics as text.
//!
//! Nothing here takes part in the protocol, and nothing knows Python: a face asks for an answer and sends it. Times are
//! arguments, so that tests need no clock.

pub mod health;
pub mod lane;
pub mod metrics;
mod number;
pub mod outside;
mod per_process;
