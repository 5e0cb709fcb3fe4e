//! One process of the model: its actions on its queue, step by step until it dies, and the records that must result.

use super::EVENT;
use crate::support::{INFO, SIZES, begun, payload};
use queue::event::{EventSchema, REQUEST, builtin};
use queue::lock::ProcessLock;
use queue::queue_file::QueueFile;
use queue::record::{Scratch, Trace};
use request::fields::{self, HttpRecord};
use request::ids::RequestIds;
use request::in_flight::facts::{Answer, SlotFacts};
use request::in_flight::terminal;
use request::outcome::Outcome;
use ring::slots::{self, LastRecord, Progress, Slot};
use ring::{Mark, record_words};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where a process dies: with nothing under way, in an emit, or at the end of a request.
#[derive(Clone, Copy, Debug)]
pub enum DeathStep {
    Between,
    Reserved,
    Begun,
    Filled,
    Claimed,
    Ending(slots::EndStep),
}

pub const STEPS: [DeathStep; 9] = [
    DeathStep::Between,
    DeathStep::Reserved,
    DeathStep::Begun,
    DeathStep::Filled,
    DeathStep::Claimed,
    DeathStep::Ending(slots::EndStep::Reserved),
    DeathStep::Ending(slots::EndStep::Noted),
    DeathStep::Ending(slots::EndStep::Committed),
    DeathStep::Ending(slots::EndStep::Freed),
];

/// The content of a request's terminal record: its id, its outcome, the chunks of one that was cut off.
pub type ReportedFate = (String, &'static str, u64);

struct Request {
    slot: usize,
    number: u64,
    chunks: u64,
}

impl Request {
    fn reported(&self, outcome: &'static str, chunks: u64) -> ReportedFate {
        (format!("{:016x}", self.number), outcome, chunks)
    }
}

/// The model's knowledge of a process, and the resources of a living one.
pub struct Process {
    pub file: Arc<QueueFile>,
    pub committed: u64,
    pub torn: u64,
    pub reported: Vec<ReportedFate>,
    pub is_closed: bool,
    lock: Option<ProcessLock>,
    open: Vec<Request>,
}

impl Process {
    pub fn begin(directory: &Path, boot_id: u64) -> Self {
        let (file, lock) = QueueFile::create(directory, SIZES, boot_id, 1).unwrap();
        let own = EventSchema::new(EVENT, "test", &["thread", "n"]).unwrap();
        for schema in builtin().iter().chain(&fields::schemas()).chain([&own]) {
            file.append_schema(&schema.to_bytes()).unwrap();
        }
        let (reported, open) = (Vec::new(), Vec::new());
        Self { file, committed: 0, torn: 0, reported, is_closed: false, lock: Some(lock), open }
    }

    pub fn is_alive(&self) -> bool {
        self.lock.is_some()
    }

    pub fn emit(&mut self) {
        let bytes = payload(self.file.header().boot_id, self.committed);
        // Another test covers a full queue.
        let Ok(reserved) = self.file.ring().reserve(bytes.as_slice().len() as u32, u32::MAX) else { return };
        reserved.commit(EVENT, INFO, 1, bytes.as_slice());
        self.committed += 1;
    }

    pub fn begin_request(&mut self, number: u64) {
        let slots = self.file.slots();
        let Some(slot) = (0..slots.count()).find(|at| !slots.get(*at).unwrap().is_taken()) else { return };
        let ids = RequestIds::new(Trace { span_id: number.to_be_bytes(), ..Trace::default() }, None, None);
        let (method, path) = (&b"POST"[..], &b"/v1/chat/completions"[..]);
        let begun = begun(&ids, method, path);
        slots.get(slot).unwrap().write_facts(&begun);
        slots.get(slot).unwrap().open();
        self.open.push(Request { slot, number, chunks: 0 });
    }

    /// A chunk of the request that began last passes.
    pub fn chunk(&mut self) {
        let Some(request) = self.open.last_mut() else { return };
        request.chunks += 1;
        let slot = self.file.slots().get(request.slot).unwrap();
        slot.write_answer(Answer { status: 200, streamed: true, ..Answer::default() });
        slot.progress(Progress { chunks: request.chunks, bytes: request.chunks, last_chunk: 1 });
    }

    pub fn end_request(&mut self) {
        self.end_request_until(None);
    }

    fn end_request_until(&mut self, death: Option<slots::EndStep>) {
        let Some(request) = self.open.pop() else { return };
        let (slot, ring) = (self.file.slots().get(request.slot).unwrap(), self.file.ring());
        let record =
            LastRecord { event: REQUEST, severity: INFO, time_unix_nano: 1, payload: terminal_payload(&request) };
        let at = |step| {
            if death == Some(step) {
                resume_unwind(Box::new("killed"));
            }
        };
        assert!(slot.claim());
        let ended = catch_unwind(AssertUnwindSafe(|| slots::end_request(slot, ring, &record, at)));
        assert!(ended.unwrap_or(death.is_some()), "room for everything");
        if let Some(slots::EndStep::Reserved | slots::EndStep::Noted) = death {
            self.torn += 1;
            self.open.push(request);
        } else {
            self.reported.push(request.reported("ok", 0));
        }
    }

    pub fn die(&mut self, at: DeathStep) {
        match at {
            DeathStep::Between => {}
            DeathStep::Claimed => {
                assert!(self.open.last().is_none_or(|it| self.file.slots().get(it.slot).unwrap().claim()))
            }
            DeathStep::Ending(step) => self.end_request_until(Some(step)),
            step => self.die_in_emit(step),
        }
        self.leave("process_died");
    }

    fn die_in_emit(&mut self, at: DeathStep) {
        let bytes = payload(99, 99);
        let (ring, len) = (self.file.ring(), bytes.as_slice().len() as u32);
        if let DeathStep::Reserved = at {
            // Only the head shows the reservation.
            let head = ring.head();
            let word = Mark { sequence: head.sequence + 1, position: head.position + record_words(len) }.to_word();
            self.file.header().head.store(word, Ordering::Release);
        } else {
            let reserved = ring.reserve(len, u32::MAX).unwrap();
            if let DeathStep::Filled = at {
                reserved.fill(1, bytes.as_slice());
            }
        }
        self.torn += 1;
    }

    /// Ends in good order: first its requests in flight end, and the lock goes with the process.
    pub fn close(&mut self) {
        for slot in self.file.slots().iter().filter(Slot::claim) {
            let record = terminal::record(slot, Outcome::ServerShutdown, 1, &fields::schemas());
            assert!(slots::end_request(slot, self.file.ring(), &record, |_| ()), "room for everything");
        }
        self.file.ring().close();
        self.is_closed = true;
        self.leave("server_shutdown");
    }

    fn leave(&mut self, outcome: &'static str) {
        self.reported.extend(self.open.drain(..).map(|request| request.reported(outcome, request.chunks)));
        self.lock = None;
    }

    /// Records that have a sequence, recovered ones included.
    pub fn accepted(&self) -> u64 {
        self.committed + self.torn + self.reported.len() as u64
    }
}

/// The fields that matter here of a terminal record as the observer makes it.
fn terminal_payload(request: &Request) -> Vec<u8> {
    let mut scratch = Scratch::new();
    for field in HttpRecord::fields() {
        match field.name {
            "request_id" => scratch.push_str(&format!("{:016x}", request.number)),
            "outcome" => scratch.push_str("ok"),
            _ => scratch.push_absent(),
        }
    }
    scratch.as_slice().to_vec()
}
