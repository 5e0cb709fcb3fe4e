//! The native core of `inference_logging`: read this map first.
//!
//! ```text
//! python                       the only part that knows Python (feature `python`)
//!   └ service                  queue and listener of one process: open, flush, drain, close, fork
//!       ├ observer             one request: ids, trace_state, capture, timeline, outcome, the terminal record
//!       │   └ sampler        which requests are recorded: ratio, callers, route_pattern, budget
//!       ├ producer             emit: severity limits, counted refusals
//!       └ listener, leader     the thread; rounds of read → encode → write → release
//!            ├ attached        one queue as the leader sees it, alive or orphaned
//!            ├ ahead           reads on for additional sinks while the primary takes nothing
//!            ├ delivery        sinks on threads of their own; fallback, copies, what is said about them
//!            ├ takeover        what a leader that died had written already
//!            ├ tally           what the leader counts as taken by sinks, beside what queues say
//!            ├ encode, extract JSON Lines; model and usage read from captured bodies
//!            ├ redact          what must not be stored is replaced in the finished line
//!            ├ series          requests by outcome, tokens and histograms, computed from the records
//!            ├ housekeeper     beside the leader: retention, compress, through segment_store
//!            └ sink, segment   file, stdout, null, sockets; names, rotation, locks, paced writeback
//! verify                       proves the books: segments and queues, read without taking part
//! inspect, totals              what anyone may see of a directory: its queues, and the counts of those that have ended
//! runtime                      what an operator has changed for a while
//! report                       what a listener says itself, through its own process's queue
//! control, sink_words, …       pages that all processes map (shared_page, twin); futex, published counts
//! commits                      waiting until records are released, from any process
//! queue_file, lock             files in the queue directory: mapping, locks that the kernel releases
//! sigbus                       mapped files that somebody cuts short do not end the process
//! flight                       what requests in flight have come to, on borrowed words (loom, proptest)
//! ring                         reserve → fill → commit, on borrowed words (loom, proptest)
//! chain                        a hash over lines, so that tampering shows
//! record, event, layout        bytes: values, schemas, the queue file's header
//! sync, system                 real or loom atomics; clocks and random bits
//! ```
//! Nothing points upward. A record's life: `python` → `producer` → `ring` … `attached` → `encode` → `sink`.

#[cfg(not(loom))]
mod ahead;
#[cfg(not(loom))]
pub mod attached;
#[cfg(not(loom))]
pub mod books;
#[cfg(not(loom))]
pub mod budget;
#[cfg(not(loom))]
pub mod callers;
#[cfg(not(loom))]
pub mod capture;
#[cfg(not(loom))]
pub mod chain;
#[cfg(not(loom))]
pub mod commits;
#[cfg(not(loom))]
pub mod compress;
#[cfg(not(loom))]
pub mod control;
#[cfg(not(loom))]
pub mod delivery;
#[cfg(not(loom))]
pub mod encode;
#[cfg(not(loom))]
pub mod event;
#[cfg(not(loom))]
pub mod extract;
pub mod flight;
#[cfg(not(loom))]
pub mod housekeeper;
#[cfg(not(loom))]
pub mod housekeeping_words;
#[cfg(not(loom))]
pub mod ids;
#[cfg(not(loom))]
pub mod inspect;
#[cfg(not(loom))]
pub mod layout;
#[cfg(not(loom))]
pub mod leader;
#[cfg(not(loom))]
pub mod line;
#[cfg(not(loom))]
pub mod listener;
#[cfg(not(loom))]
pub mod lock;
#[cfg(not(loom))]
pub mod observer;
#[cfg(not(loom))]
pub mod outcome;
#[cfg(not(loom))]
pub mod producer;
#[cfg(all(feature = "python", not(loom)))]
mod python;
#[cfg(not(loom))]
pub mod queue_file;
#[cfg(not(loom))]
pub mod ratio;
#[cfg(not(loom))]
pub mod record;
#[cfg(not(loom))]
pub mod redact;
#[cfg(not(loom))]
pub mod report;
#[cfg(not(loom))]
pub mod retention;
pub mod ring;
#[cfg(not(loom))]
pub mod route_pattern;
#[cfg(not(loom))]
pub mod runtime;
#[cfg(not(loom))]
pub mod sampler;
#[cfg(not(loom))]
pub mod segment;
#[cfg(not(loom))]
pub mod segment_account;
#[cfg(not(loom))]
pub mod segment_lock;
#[cfg(not(loom))]
pub mod segment_spans;
#[cfg(not(loom))]
pub mod segment_store;
#[cfg(not(loom))]
pub mod series;
#[cfg(not(loom))]
pub mod service;
#[cfg(not(loom))]
mod shared_page;
#[cfg(not(loom))]
pub mod sigbus;
#[cfg(not(loom))]
pub mod sink;
#[cfg(not(loom))]
pub mod sink_words;
mod sync;
#[cfg(not(loom))]
pub mod system;
#[cfg(not(loom))]
pub mod takeover;
#[cfg(not(loom))]
mod tally;
#[cfg(not(loom))]
pub mod totals;
#[cfg(not(loom))]
pub mod trace_state;
#[cfg(not(loom))]
pub mod twin;
#[cfg(not(loom))]
pub mod verify;
