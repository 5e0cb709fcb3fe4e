//! The waiting records of queues that a proof needs: the reports of segments that housekeeping has removed.

use lines::encode::{Encoder, LineHead};
use lines::plan::LinePlan;
use queue::event::{EventSchema, SEGMENTS_REMOVED};
use queue::inspect;
use std::path::Path;

/// Returns the reports of removed segments that wait in the queues of a directory, in their final form as lines.
#[must_use]
pub fn reports_of_removals(directory: &Path) -> Vec<Vec<u8>> {
    let plan = LinePlan::from(EventSchema::segments_removed());
    let mut encoder = Encoder::new();
    let mut lines = Vec::new();
    for file in inspect::files(directory) {
        let boot_id = format!("{:016x}", file.header().boot_id);
        let head = LineHead { time_unix_nano: 0, severity: 0, boot_id: &boot_id, pid: file.header().pid, seq: None };
        for payload in file.ring().copy_waiting(SEGMENTS_REMOVED, &file.header().releasing) {
            let mut line = Vec::new();
            if encoder.line(&mut line, &head, &plan, &payload).is_ok() {
                lines.push(line);
            }
        }
    }
    lines
}
