//! What listeners publish for every process of a directory, as words of its control page.
//!
//! [`totals`] of all queues, the state of each sink ([`sinks`]), and what [`housekeeping`] has removed and compressed.

pub mod housekeeping;
pub mod sinks;
pub mod totals;
