//! Damage from outside while everything runs: files cut short, removed or overwritten, clocks that jump. The name of
//! each test states the property that still holds.

mod clock;
mod cut;
mod external;
mod gone;
mod noise;
mod readers;

use crate::support::{INFO, emit, open_service, register, wait_until};
use listen::service::Service;
use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;

/// A process's logging that also listens.
fn open(path: &Path) -> Arc<Service> {
    open_service(path, true).unwrap()
}

fn emit_span(service: &Service, thread: u64, span: std::ops::Range<u64>) {
    let event = register(&service.producer);
    // A record that comes while another thread replaces the queue is refused, and counted, where that takes long.
    span.for_each(|n| wait_until("the record is accepted", || emit(&service.producer, event, INFO, thread, n)));
}

fn cut(path: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}
