//! The files on disk.
//!
//! ```text
//! verify                       proves that nothing is missing: segments and queues, read without taking part
//! retention, compress          which segments are removed, and which compressed; rotation
//! segment_store                the inventory of a directory
//! segment                      names and headers; the lock of its writer
//! segment_account              the records of a segment by process, and of a queue, as JSON
//! rows                         records as rows: the members of a line in columns of types
//! chain, line                  a hash over lines, so that tampering shows; where a line ends, and the content of some
//! ```

pub mod chain;
pub mod compress;

pub mod line;
pub mod retention;
pub mod rotation;
pub mod rows;
pub mod segment;
pub mod segment_account;
pub mod segment_store;
pub mod verify;
