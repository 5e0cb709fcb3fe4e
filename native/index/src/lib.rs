//! The index of segments, and what is asked of it.
//!
//! ```text
//! catalog                      the segments of directories, and their indexes: refreshed, newest first
//!   ├ cache                    the files of the indexes
//!   ├ image                    the index of one segment: blocks, dictionaries, directory
//!   │   └ block, bytes         columns of some thousand records, and their zone maps
//!   ├ builder                  columns out of lines
//!   └ source                   the files of segments: lines one after the other, and single ones
//! rows, aggregate, values      the questions
//!   ├ scan                     the records of a segment that fulfil a query, by columns and where needed by lines
//!   └ query, condition         what is asked, with the grammar of `--where`
//! export                       columns as CSV, for SQL
//! record, json                 a line, parsed or only walked over; columns: which keys are indexed
//! ```
//!
//! Nothing is believed: an index file that is damaged is made anew, lines and keys are what their bytes say, and files
//! are read rather than mapped, so that one which is cut off ends no process.

pub mod aggregate;
pub mod block;
pub mod builder;
pub mod bytes;
pub mod cache;
pub mod catalog;
pub mod columns;
pub mod condition;
pub mod export;
pub mod face;
pub mod image;
pub mod json;
pub mod labels;
pub mod query;
pub mod record;
pub mod rows;
pub mod scan;
pub mod search;
pub mod sketch;
pub mod source;
pub mod times;
pub mod values;
