//! The index of segments, and what is asked of it.
//!
//! ```text
//! face                         questions and answers as JSON
//!   ├ rows, aggregate, values  the questions; sketch, labels
//!   ├ export                   columns as CSV, for SQL
//!   ├ search, scan             the records that fulfil a query, by columns, and where needed by lines; view
//!   └ query, filter            what is asked, with the grammar of `--where`: condition, text
//! catalog                      the segments of directories, and their indexes: refreshed, newest first
//!   ├ refresh                  indexes are read from the cache or made; entry: a segment with its index
//!   ├ cache                    the files of the indexes
//!   ├ image                    the index of one segment: blocks, dictionaries, directory; block, bytes
//!   ├ builder                  columns out of lines; columns: which keys are indexed
//!   ├ tail                     the newest rows, before there is more
//!   └ source                   the files of segments: lines one after the other, and single ones
//! record, json                 a line, parsed or only walked over; times
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
pub mod entry;
pub mod export;
pub mod face;
pub mod filter;
pub mod image;
pub mod json;
pub mod labels;
pub mod query;
pub mod record;
pub mod refresh;
pub mod rows;
pub mod scan;
pub mod search;
pub mod sketch;
pub mod source;
pub mod tail;
pub mod text;
pub mod times;
pub mod values;
pub mod view;
