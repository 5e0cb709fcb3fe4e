//! Shared memory: the queue file of a process, what it holds, who owns it, and what listeners publish beside it.
//!
//! ```text
//! queue_check                    the thread of a process whose listener is elsewhere
//! producer                     emit: severity limits, counted refusals; the slots; another queue after a fork or a loss
//! inspect                      what any process may see of a directory
//! claim                        the right to read a queue: one reader at a time; waiting until records are released
//! configuration                the configuration that a queue directory belongs to
//! queue_file, lock             files in the queue directory: mapping, locks that the kernel releases
//! control                      the page that wakes the listener
//! published                    what listeners publish for all processes: totals, states of sinks, housekeeping
//! shared_page                  pages that all processes map; two copies of numbers, so that a change is seen whole
//! sigbus                       a mapped file that is cut short does not end the process
//! record, event, layout        bytes: values, schemas, the queue file's header
//! severity, system             OpenTelemetry's numbers; system calls that the standard library does not offer
//! json, hex                    whether a text is JSON; hexadecimal of a fixed length
//! memory                       the one place that maps memory
//! platform                     what differs between operating systems
//! ```
//! Below is the crate `ring`: records in a ring and requests in slots, on borrowed words. This crate depends only on it
//! and on `libc`, so a producer in another language links nothing else.

pub mod claim;
pub mod configuration;
pub mod control;
pub mod event;
pub mod hex;
pub mod inspect;
pub mod json;
pub mod layout;
pub mod lock;
pub mod memory;
pub mod platform;
pub mod producer;
pub mod published;
pub mod queue_check;
pub mod queue_file;
pub mod record;
pub mod shared_page;
pub mod sigbus;
pub mod system;
