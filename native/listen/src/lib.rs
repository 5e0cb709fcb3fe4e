//! The listener, which drains the queues: rounds of read → encode → write → release.
//!
//! ```text
//! service                      queue and listener of one process: open, flush, drain, close, fork
//!   ├ listener, leader         the thread; the rounds
//!   │   ├ attached             one queue as the leader sees it, alive or orphaned
//!   │   ├ delivery             sinks on threads of their own; fallback, copies, reports about them
//!   │   ├ takeover             the last write of a leader that died: its repair and its counts
//!   │   ├ delivered            the leader's own count of delivered records, to compare with the queues'
//!   │   └ sink                 file, stdout, null, sockets; rotation, paced writeback
//!   └ housekeeper              beside the leader: retention, compression
//! status                       health and metrics for every face: the grade, Prometheus and OpenMetrics
//! overrides                    run-time overrides: one writer, each change on record
//! ```

pub mod attached;
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
