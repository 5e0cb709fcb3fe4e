//! The listener, which drains the queues: rounds of read → encode → write → release.
//!
//! ```text
//! service                      queue and listener of one process: open, flush, drain, close, fork
//!   ├ listener, leader         the thread; the rounds
//!   │   ├ attached             one queue as the leader sees it, alive or orphaned
//!   │   ├ copy_reader          reads on for additional sinks while the primary takes nothing
//!   │   ├ delivery             sinks on threads of their own; fallback, copies, what is said about them
//!   │   ├ takeover             what a leader that died had written already
//!   │   ├ delivered            what the leader counts as taken by sinks, beside what queues say
//!   │   └ sink                 file, stdout, null, sockets; rotation, paced writeback
//!   ├ housekeeper              beside the leader: retention, compression
//!   └ caretaker                in a process whose listener is elsewhere
//! status                       health and metrics, as every face answers them: grade, Prometheus and OpenMetrics
//! overrides                    changing what is overridden at run time: one writer, each change on record
//! ```

pub mod attached;
mod caretaker;
mod copy_reader;
mod delivered;
pub mod delivery;
pub mod housekeeper;
pub mod leader;
pub mod listener;
pub mod overrides;
pub mod service;
pub mod settings;
pub mod sink;
pub mod status;
pub mod takeover;
