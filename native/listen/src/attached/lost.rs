//! A queue whose file was cut to nothing while it was mapped: only its last known counts are left.

use super::{QueueReader, UNKNOWN_SEVERITY};
use lines::encode::Encoder;
use queue::event::EventSchema;
use queue::layout::{DroppedCounts, Reason, level_index};
use queue::published::totals::{self, Totals, TotalsWords};
use queue::queue_file::QueueCounts;
use queue::record::Scratch;
use queue::severity::ERROR;
use segments::line;
use segments::spans::{Lost, lost_json, reasons_json};

impl QueueReader {
    fn accepted(&self) -> u64 {
        self.seen.max(self.sequence)
    }

    /// Accepted records, as far as known, that cannot be read any more.
    fn lost_counts(&self) -> DroppedCounts {
        let mut counts = DroppedCounts::default();
        counts[Reason::Corrupt as usize][level_index(UNKNOWN_SEVERITY)] = self.accepted().saturating_sub(self.released);
        counts
    }

    /// Adds one `log.dropped` line about them; returns how many lines it added.
    pub(super) fn report_lost(&mut self, batch: &mut Vec<u8>, encoder: &mut Encoder, now_unix_nano: u64) -> u64 {
        self.at_end = true;
        let (first, end) = (self.released, self.accepted());
        if first >= end || std::mem::replace(&mut self.reported_lost, true) {
            return 0;
        }
        let mut payload = Scratch::new();
        payload.push_uint(end - first);
        payload.push_json(reasons_json(&self.lost_counts()).as_bytes());
        payload.push_json(lost_json(&[Lost { first, last: end - 1, reason: Reason::Corrupt }]).as_bytes());
        self.push(batch, encoder, EventSchema::log_dropped(), (now_unix_nano, ERROR), &payload)
    }

    /// As `finish`: adds the known counts, and removes the file, which no process can open any more.
    pub(super) fn finish_lost(&self, words: &TotalsWords) -> Option<QueueCounts> {
        let boot_id = line::parse_boot_id(self.boot_id.as_bytes()).unwrap_or_default();
        let (accepted, written, dropped) = (self.accepted(), self.released, self.lost_counts());
        let known = Totals { queues: 1, accepted, written, dropped, ..Totals::default() };
        if !totals::add_lost(words, self.file.path.parent()?, boot_id, &known) {
            return None;
        }
        self.file.remove_name();
        Some(QueueCounts { boot_id, pid: self.pid, accepted, written, dropped, in_queue: 0, ..self.counts() })
    }
}
