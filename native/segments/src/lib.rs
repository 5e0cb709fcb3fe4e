//! The files on disk.
//!
//! ```text
//! verify                       proves that nothing is missing: segments and queues, read without taking part
//! retention, compress          which segments are removed, and which compressed; clock_steps, rotation
//! segment_store                the inventory of a directory
//! segment, segment_lock        names and headers; the lock of its writer
//! segment_account, spans       the records of a segment by process; segment_spans for sealed segments
//! rows                         records as rows: the members of a line in columns of types
//! chain, line, json            a hash over lines, so that tampering shows; where a line ends; the content of some
//! ```

pub mod chain;
pub mod clock_steps;
pub mod compress;
pub mod json;
pub mod line;
pub mod retention;
pub mod rotation;
pub mod rows;
pub mod segment;
pub mod segment_account;
pub mod segment_lock;
mod segment_spans;
pub mod segment_store;
pub mod spans;
pub mod verify;
