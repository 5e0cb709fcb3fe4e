//! A line of JSON as people read it on a terminal: the look of a server's console and of `inference-logging tail`.
//!
//! What holds for every line, whatever is in it:
//!
//! * The text has no control character but `\n` and the colours of [`Style`]; what reorders text or is invisible is
//!   escaped (`safe`).
//! * On a terminal whose width is known no line is wider, so only a record begins at the left edge.
//! * Nothing is built as a tree and nothing recurses; values, messages and stacks have limits.
//!
//! ```text
//! look                         what is shown of a record, and in which order
//!   ├ layout                   pieces of text in lines of the terminal's width
//!   ├ stack                    lines below a record
//!   ├ record                   the members of a line
//!   └ safe                     text that does nothing to a terminal
//! times                        durations with three digits
//! ```

mod layout;
mod look;
mod record;
mod safe;
mod stack;
mod times;

pub use look::Look;
pub use record::Record;
pub use safe::{is_plain_word, push_escaped, safe, safe_utf16};
