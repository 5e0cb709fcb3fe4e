//! All tests of leaders, sinks and services as one program.

// By the name that the other crates of the workspace use.
extern crate inferlog_listen as listen;

mod support;

mod audit;
mod comparison;
mod copies;
mod delivery;
mod faults;
mod fields;
mod fuzz_corpus;
mod health;
mod housekeeping;
mod leader;
mod life;
mod metrics;
mod observer;
mod queues;
mod runtime;
mod series;
mod service;
mod settings;
mod sink;
mod takeover;
mod totals;
mod verify;
