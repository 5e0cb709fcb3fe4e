//! The listener's own lines about a process: its losses (`log.dropped`) and its end (`process.ended`), each reported
//! once.
//!
//! Both are noted in the queue's header when the sink has them. A leader that dies before that leaves the lines to its
//! successor, which finds them where it looks for released records ([`crate::takeover`]).

use super::{QueueReader, UNKNOWN_SEVERITY};
use lines::encode::{Encoder, LineHead};
use lines::plan::LinePlan;
use queue::event::{ERROR, EventSchema, INFO, WARN};
use queue::layout::{DroppedCounts, Reason, SAMPLED_OUT, level_index};
use queue::published::totals::{self, Totals, TotalsWords};
use queue::queue_file::QueueCounts;
use queue::record::Scratch;
use request::fields;
use request::in_flight::facts::SlotFacts;
use request::in_flight::terminal;
use request::outcome::Outcome;
use ring::slots::{self, Slot};
use segments::line;
use segments::segment::Utc;
use segments::segment_account::{Lost, lost_json, reasons_json};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Runs of lost records that one `log.dropped` names; for further runs, it reports only the number of records.
const NAMED_LOSSES: usize = 64;

/// The losses and the end that are still to be reported, and those whose reports are in the batch.
#[derive(Default)]
pub(super) struct Reports {
    /// In the batch: how many drops a `log.dropped` reports.
    pub(super) dropped: u64,
    /// In the batch: `process.ended`.
    pub(super) ended: bool,
    /// Skipped in the batch.
    lost: Vec<Lost>,
    /// Skipped and released.
    unreported: Vec<Lost>,
}

impl Reports {
    /// Notes that records of the batch cannot be written.
    pub(super) fn lose(&mut self, first: u64, records: u64, reason: Reason) {
        if records > 0 && self.lost.len() + self.unreported.len() < NAMED_LOSSES {
            self.lost.push(Lost { first, last: first + (records - 1), reason });
        }
    }

    /// The batch is read again.
    pub(super) fn forget_lost(&mut self) {
        self.lost.clear();
    }

    /// The skipped records are released: counted, and to be reported.
    pub(super) fn release_lost(&mut self) {
        self.unreported.append(&mut self.lost);
    }
}

impl QueueReader {
    /// Adds the reports that are due: a `log.dropped` line if records were refused or lost since the last one, and
    /// `process.ended` once no record can follow; returns how many lines it added.
    pub fn report(&mut self, batch: &mut Vec<u8>, encoder: &mut Encoder, now_unix_nano: u64) -> u64 {
        if self.file.is_headless() {
            return self.report_lost(batch, encoder, now_unix_nano);
        }
        self.at_end =
            self.is_ending() && self.file.ring().is_drained() && !self.has_requests() && self.close_for_dead();
        let dropped = self.report_dropped(batch, encoder, now_unix_nano);
        dropped + self.report_ended(batch, encoder, now_unix_nano)
    }

    /// No record may follow the end that is about to be reported: an owner that lives, but was taken for dead, is
    /// noticed here at the latest.
    fn close_for_dead(&mut self) -> bool {
        let is_at_end = self.orphaned.is_none() || self.file.close_for_dead();
        if !is_at_end {
            self.orphaned = None;
        }
        is_at_end
    }

    fn report_dropped(&mut self, batch: &mut Vec<u8>, encoder: &mut Encoder, now_unix_nano: u64) -> u64 {
        let mut counts = self.file.header().dropped.snapshot();
        // These are still in the queue, and about to be written after all.
        counts[Reason::ShutdownDeadline as usize] = Default::default();
        // Wraps, as sequences do: a damaged header must not stop the listener.
        let total = counts.iter().flatten().fold(0, |total: u64, count| total.wrapping_add(*count));
        let reported = self.file.header().dropped_reported.load(Ordering::Relaxed);
        if total <= reported {
            return 0;
        }
        let mut payload = Scratch::new();
        payload.push_uint(total - reported);
        payload.push_json(reasons_json(&counts).as_bytes());
        if self.reports.unreported.is_empty() {
            payload.push_absent();
        } else {
            payload.push_json(lost_json(&self.reports.unreported).as_bytes());
        }
        self.reports.dropped = total - reported;
        self.push(batch, encoder, EventSchema::log_dropped(), (now_unix_nano, ERROR), &payload)
    }

    fn report_ended(&mut self, batch: &mut Vec<u8>, encoder: &mut Encoder, now_unix_nano: u64) -> u64 {
        if !self.at_end || self.file.is_end_reported() {
            return 0;
        }
        let counts = self.last_counts();
        let how = if self.file.has_died() { "died" } else { "closed" };
        let lost = counts.dropped.iter().flatten().any(|count| *count > 0);
        let severity = [if how == "died" { WARN } else { INFO }, ERROR][usize::from(lost)];
        let started = Utc::from_unix_nano(self.file.header().created_unix_nano).to_string();
        let mut payload = Scratch::new();
        payload.push_str(how);
        payload.push_str(&started);
        payload.push_uint(counts.accepted);
        payload.push_uint(counts.written);
        payload.push_json(reasons_json(&counts.dropped).as_bytes());
        payload.push_json(sampled_out_json(&counts).as_bytes());
        match self.file.header().producer_name() {
            name if name.is_empty() => payload.push_absent(),
            name => payload.push_str(&name),
        }
        self.reports.ended = true;
        self.push(batch, encoder, EventSchema::process_ended(), (now_unix_nano, severity), &payload)
    }

    /// The counts at the end. The records that the owner counted as `shutdown_deadline` have been written after all.
    fn last_counts(&self) -> QueueCounts {
        let mut counts = self.file.counts();
        counts.dropped[Reason::ShutdownDeadline as usize] = Default::default();
        counts
    }

    pub(super) fn push(
        &self,
        batch: &mut Vec<u8>,
        encoder: &mut Encoder,
        schema: EventSchema,
        (time_unix_nano, severity): (u64, u8),
        payload: &Scratch,
    ) -> u64 {
        let head = LineHead { time_unix_nano, severity, boot_id: &self.boot_id, pid: self.pid, seq: None };
        // Cannot fail: this file made the payload.
        let _ = encoder.line(batch, &head, &LinePlan::from(schema), payload.as_slice());
        1
    }

    /// A listener that died had reported all losses up to this sum of them, and maybe the end, but had not noted that.
    pub fn note_reported(&mut self, losses: u64, ended: bool) {
        self.file.header().dropped_reported.fetch_max(losses, Ordering::Relaxed);
        self.reports.ended |= ended;
    }

    /// The sink took only the first `lines` of this queue's lines in the batch: returns how many of those were reports,
    /// and forgets the others.
    pub(super) fn keep_reported(&mut self, lines: u64) -> u64 {
        let dropped = u64::from(self.reports.dropped > 0 && lines > 0);
        if dropped == 0 {
            self.reports.dropped = 0;
        }
        self.reports.ended &= lines > dropped;
        dropped + u64::from(self.reports.ended)
    }

    /// The sink has the reports.
    pub(super) fn release_reported(&mut self) {
        let header = self.file.header();
        if self.reports.dropped > 0 {
            header.dropped_reported.fetch_add(self.reports.dropped, Ordering::Relaxed);
            self.reports.dropped = 0;
            self.reports.unreported.clear();
        }
        if self.reports.ended {
            self.file.note_end_reported();
        }
    }

    // The end of a dead process's requests in flight (P5): each gets its terminal record, in the process's own ring.
    //
    // There the record has a sequence, and the rules for every record apply: it is counted, goes to all sinks, and is
    // written exactly once whenever the listener dies. The recovering listener does the same steps in a slot as the owner
    // would have done, so that the next listener decides by the same rule whether the record is there.

    /// The owner is dead: finds the requests that have their record already.
    pub(super) fn settle_requests(&self) {
        let ring = self.file.ring();
        for slot in self.file.slots().iter() {
            slot.settle_end(|sequence| slots::is_committed(&ring, sequence));
            if !slot.is_taken() {
                slot.wipe();
            }
        }
        self.count_requests();
    }

    /// Whether a request of this queue may still need its record.
    pub(super) fn has_requests(&self) -> bool {
        self.file.slots().taken() > 0
    }

    /// Whether something is left to do for a queue that is closed or whose owner has died.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let waits_for_owner = self.orphaned.is_none() && self.file.ring().is_drained() && self.has_requests();
        self.is_ending() && !waits_for_owner
    }

    /// Once every record that a dead owner committed is written: puts a terminal record into its ring for each request
    /// in flight, as many as have room. If the owner had closed its queue, the shutdown cut them off.
    pub fn end_requests(&mut self) {
        let file = Arc::clone(&self.file);
        let ring = file.ring();
        if self.orphaned.is_none() || !ring.is_drained() || self.read != ring.tail() || !self.has_requests() {
            return;
        }
        self.read_schemas();
        let known = self.plans.iter().flatten().filter(|plan| plan.is_request());
        let mut schemas: Vec<EventSchema> = known.map(|plan| plan.schema.clone()).collect();
        if schemas.is_empty() {
            schemas = fields::schemas();
        }
        let outcome = if ring.is_closed() { Outcome::ServerShutdown } else { Outcome::ProcessDied };
        let signs = file.slots().iter().map(|slot| slot.last_sign());
        // A request without chunks gives no sign while the process works on it.
        let last_sign = signs.max().unwrap_or(0).max(self.seen_alive);
        for slot in file.slots().iter().filter(Slot::is_open) {
            let record = terminal::record(slot, outcome, last_sign, &schemas);
            if !slots::end_request(slot, ring, &record, |_| ()) {
                break;
            }
            slot.wipe();
        }
        self.count_requests();
    }

    /// The owner may have died between a step and its count.
    fn count_requests(&self) {
        self.file.header().in_flight.store(self.file.slots().taken() as u64, Ordering::Relaxed);
    }

    // A queue whose file was cut to nothing while it was mapped: only its last known counts are left.

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

fn sampled_out_json(counts: &QueueCounts) -> String {
    let present = SAMPLED_OUT.iter().zip(&counts.sampled_out).filter(|(_, count)| **count > 0);
    let members: Vec<String> = present.map(|(reason, count)| format!("\"{}\":{count}", reason.name())).collect();
    format!("{{{}}}", members.join(","))
}
