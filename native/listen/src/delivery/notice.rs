//! What happened to the sinks, reported twice: in the log itself, and in one line on stderr for the operator.
//!
//! In-band records have no sequence number, as `log.dropped`: they are the listener's, not a queue's. A thread of its
//! own writes the line on stderr: stderr can be a pipe without a reader.

use super::outlet::Trouble;
use crate::sink::Now;
use crate::takeover::Torn;
use lines::encode::{Encoder, LineHead};
use lines::plan::LinePlan;
use queue::event::{ERROR, EventSchema, INFO, WARN};
use queue::record::Scratch;
use std::io::Write;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// At most one report of trouble per this time on stderr.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Lines that go into the next batch, and the line on stderr.
pub struct Notices {
    boot_id: String,
    lines: Vec<u8>,
    records: u64,
    operator: Option<Operator>,
}

impl Notices {
    /// Begins with none; `boot_id` is the listener's.
    pub fn new(boot_id: String, operator: Option<Operator>) -> Self {
        Self { boot_id, lines: Vec::new(), records: 0, operator }
    }

    /// Whether no report is waiting.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Moves the waiting lines to the end of `batch`; returns how many lines they are.
    pub fn move_into(&mut self, batch: &mut Vec<u8>) -> u64 {
        batch.append(&mut self.lines);
        std::mem::take(&mut self.records)
    }

    /// A sink does not take its batch.
    pub fn failed(&mut self, sink: &str, trouble: &Trouble, now: Now) {
        let what = if trouble.kind.is_some() { "fails: " } else { "hangs" };
        self.report(|| format!("the sink {sink} {what}{}; records wait in the queue", trouble.message), now);
        let mut values = Scratch::new();
        values.push_str(sink);
        values.push_str(trouble.kind.map_or("hung", |kind| kind.name()));
        values.push_str(&trouble.message);
        self.push("sink.failed", &["sink", "error.type", "error.message"], ERROR, trouble.since.unix_nano, &values);
    }

    /// It takes batches again; `fallback_records` went to the fallback meanwhile.
    pub fn recovered(&mut self, sink: &str, trouble: &Trouble, fallback_records: u64, now: Now) {
        let seconds = now.monotonic.saturating_sub(trouble.since.monotonic).as_secs_f64();
        if let Some(operator) = &mut self.operator {
            operator.relief(format!("the sink {sink} works again, after {seconds:.1} s"));
        }
        let mut values = Scratch::new();
        values.push_str(sink);
        values.push_float(seconds);
        values.push_uint(trouble.errors);
        values.push_uint(fallback_records);
        let fields = ["sink", "failed_s", "errors", "fallback_records"];
        self.push("sink.recovered", &fields, INFO, now.unix_nano, &values);
    }

    /// The fallback takes over, or took a batch that hangs in the primary: `doubtful` is a JSON list of the processes
    /// and sequence numbers that can be in both.
    pub fn fallback(&mut self, sink: &str, fallback: &str, reason: &str, doubtful: Option<&str>, now: Now) {
        self.report(|| format!("the sink {sink} is {reason}; {fallback} takes over"), now);
        let mut values = Scratch::new();
        values.push_str(sink);
        values.push_str(fallback);
        values.push_str(reason);
        match doubtful {
            Some(processes) => values.push_json(processes.as_bytes()),
            None => values.push_absent(),
        }
        let fields = ["sink", "fallback", "reason", "in_both"];
        self.push("sink.fallback", &fields, WARN, now.unix_nano, &values);
    }

    /// A sink with a buffer of its own had no room for some lines.
    pub fn dropped(&mut self, sink: &str, records: u64, unix_nano: u64) {
        let mut values = Scratch::new();
        values.push_str(sink);
        values.push_uint(records);
        self.push("sink.dropped", &["sink", "dropped"], ERROR, unix_nano, &values);
    }

    /// An unfinished line was cut off, and the process's own queue had no room for the record about it.
    pub fn repaired(&mut self, torn: &Torn, unix_nano: u64) {
        self.push_as(EventSchema::segment_repaired(), WARN, unix_nano, &torn.payload());
    }

    /// Segments were removed, and the process's own queue is closed.
    pub fn removed(&mut self, (severity, payload): &(u8, Scratch), unix_nano: u64) {
        self.push_as(EventSchema::segments_removed(), *severity, unix_nano, payload);
    }

    /// A segment was left as it is, although the last leader's write in it should have been cut off.
    pub fn kept(&mut self, what: &str, now: Now) {
        self.report(|| what.to_owned(), now);
        let mut values = Scratch::new();
        values.push_str(what);
        self.push("segment.kept", &["reason"], WARN, now.unix_nano, &values);
    }

    fn report(&mut self, text: impl FnOnce() -> String, now: Now) {
        if let Some(operator) = &mut self.operator {
            operator.trouble(text(), now);
        }
    }

    fn push(&mut self, name: &str, fields: &[&str], severity: u8, time_unix_nano: u64, values: &Scratch) {
        if let Ok(schema) = EventSchema::new(0, name, fields) {
            self.push_as(schema, severity, time_unix_nano, values);
        }
    }

    fn push_as(&mut self, schema: EventSchema, severity: u8, time_unix_nano: u64, values: &Scratch) {
        let head = LineHead { time_unix_nano, severity, boot_id: &self.boot_id, pid: std::process::id(), seq: None };
        let before = self.lines.len();
        if Encoder::new().line(&mut self.lines, &head, &LinePlan::from(schema), values.as_slice()).is_ok() {
            self.records += 1;
        } else {
            self.lines.truncate(before);
        }
    }
}

/// The line on stderr.
#[derive(Default)]
pub struct Operator {
    last: Option<Duration>,
    /// A trouble was reported, and its end was not.
    open: bool,
    writing: Weak<()>,
}

impl Operator {
    /// Reports trouble, unless the last report is fresh or stuck.
    pub fn trouble(&mut self, text: String, now: Now) {
        if self.last.is_some_and(|last| now.monotonic < last + REPORT_INTERVAL) {
            return;
        }
        self.open |= self.say(text);
        self.last = Some(now.monotonic);
    }

    /// Reports the end of a trouble that was reported.
    pub fn relief(&mut self, text: String) {
        if self.open && self.say(text) {
            self.open = false;
        }
    }

    fn say(&mut self, text: String) -> bool {
        if self.writing.strong_count() > 0 {
            return false;
        }
        let token = Arc::new(());
        self.writing = Arc::downgrade(&token);
        let write = move || {
            let _ = std::io::stderr().write_all(format!("inference_logging: {text}\n").as_bytes());
            drop(token);
        };
        std::thread::Builder::new().name("inference-note".into()).spawn(write).is_ok()
    }
}
