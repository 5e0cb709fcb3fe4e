//! The files on disk.
//!
//! ```text
//! verify                       proves that nothing is missing: segments and queues, read without taking part
//! retention, compress          which segments go, and which are made smaller; clock_steps, rotation
//! segment_store                the inventory of a directory
//! segment, segment_lock        names and headers; who writes one
//! segment_account, spans       what a segment holds, process by process; segment_spans of those that are sealed
//! chain, line                  a hash over lines, so that tampering shows; where a line ends
//! ```

pub mod chain;
pub mod clock_steps;
pub mod compress;
pub mod line;
pub mod retention;
pub mod rotation;
pub mod segment;
pub mod segment_account;
pub mod segment_lock;
pub mod segment_spans;
pub mod segment_store;
pub mod spans;
pub mod verify;
