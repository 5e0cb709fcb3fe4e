//! The end of a dead process's requests in flight (P5): each gets its terminal record, in the process's own ring.
//!
//! There the record has a sequence, and the rules for every record apply: it is counted, goes to all sinks, and is
//! written exactly once whenever the listener dies. The recovering listener does the same steps in a slot as the owner
//! would have done, so that the next listener decides by the same rule whether the record is there.

use super::QueueReader;
use queue::event::EventSchema;
use request::fields;
use request::in_flight::facts::SlotFacts;
use request::in_flight::terminal;
use request::outcome::Outcome;
use ring::slots::{self, Slot};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl QueueReader {
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
}
