//! Retention, quota and compression: rounds in real directories, on an operating system that fails or dies on command.

#[path = "housekeeping/bench.rs"]
mod bench;
#[path = "housekeeping/compression.rs"]
mod compression;
#[path = "housekeeping/damage.rs"]
mod damage;
#[path = "housekeeping/limits.rs"]
mod limits;
#[path = "housekeeping/shipped.rs"]
mod shipped;
#[path = "housekeeping/spans.rs"]
mod spans;
