//! One of the two sinks that can free the queue: its state, when it is tried again, and its job under way.

use super::worker::{Answer, Job, Worker};
use super::{Batch, HUNG_AFTER};
use crate::sink::{Now, WriteError};
use queue::published::sinks::{SinkErrorType, SinkState, SinkWords};
use std::sync::Arc;
use std::time::Duration;

const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// The trouble of a sink that does not take its batch.
#[derive(Clone, Debug)]
pub struct Trouble {
    pub since: Now,
    pub errors: u64,
    /// The last error in words; empty while it only hangs.
    pub message: String,
    pub kind: Option<SinkErrorType>,
}

/// A sink and its worker.
pub struct Outlet {
    pub name: String,
    pub worker: Worker,
    pub row: &'static SinkWords,
    /// Since its last success.
    pub trouble: Option<Trouble>,
    busy: Option<Busy>,
    /// Records that it can never take, since the last report of them.
    pub refused: u64,
    backoff: Duration,
    pub retry_at: Duration,
}

struct Busy {
    since: Now,
    /// Records and bytes of the write, if it is one.
    size: (u64, usize),
    /// Another sink has taken the batch meanwhile.
    abandoned: bool,
}

/// The result of a write.
pub enum Written {
    All,
    Part(WriteError),
}

impl Outlet {
    pub fn new(name: String, worker: Worker, row: &'static SinkWords) -> Self {
        let retry_at = Duration::ZERO;
        Self { name, worker, row, trouble: None, busy: None, refused: 0, backoff: FIRST_BACKOFF, retry_at }
    }

    /// Whether it has no job.
    pub fn is_free(&self) -> bool {
        self.busy.is_none()
    }

    /// Whether it may be given a batch now.
    pub fn is_ready(&self, now: Now) -> bool {
        self.is_free() && now.monotonic >= self.retry_at
    }

    /// How long the job under way has taken so far.
    pub fn busy_for(&self, now: Now) -> Duration {
        self.busy.as_ref().map_or(Duration::ZERO, |busy| now.monotonic.saturating_sub(busy.since.monotonic))
    }

    /// For how long it has not taken its batch.
    pub fn troubled_for(&self, now: Now) -> Option<Duration> {
        self.trouble.as_ref().map(|trouble| now.monotonic.saturating_sub(trouble.since.monotonic))
    }

    /// Hands over the rest of a batch.
    pub fn write(&mut self, batch: &Arc<Batch>, from: usize, records: u64, continues: bool, now: Now) {
        self.busy = Some(Busy { since: now, size: (records, batch.lines.len() - from), abandoned: false });
        self.worker.submit(Job::Write { batch: Arc::clone(batch), from, records, continues, now });
    }

    /// Hands over another job.
    pub fn submit(&mut self, job: Job, now: Now) {
        self.busy = Some(Busy { since: now, size: (0, 0), abandoned: false });
        self.worker.submit(job);
    }

    /// Lets the job under way go on; its result is ignored.
    pub fn abandon(&mut self) {
        if let Some(busy) = &mut self.busy {
            busy.abandoned = true;
        }
    }

    /// Whether the result of the job under way is ignored.
    pub fn is_abandoned(&self) -> bool {
        self.busy.as_ref().is_some_and(|busy| busy.abandoned)
    }

    /// Takes the answer to any job, if it is there.
    pub fn answer(&mut self) -> Option<Answer> {
        let answer = self.worker.poll()?;
        self.busy = None;
        Some(answer)
    }

    /// Takes the answer to a write, if it is there, and counts it.
    ///
    /// # Panics
    /// The sink panicked: only the file itself shows how far it came, and the next leader reads that.
    pub fn written(&mut self, now: Now) -> Option<Written> {
        let answer = self.worker.poll()?;
        self.count(answer, now)
    }

    /// As `written`, but waits for the answer, at most `patience`.
    pub fn wait_written(&mut self, now: Now, patience: Duration) -> Option<Written> {
        let answer = self.worker.wait(patience)?;
        self.count(answer, now)
    }

    fn count(&mut self, answer: Answer, now: Now) -> Option<Written> {
        let (records, bytes) = self.busy.take().map_or((0, 0), |busy| busy.size);
        if let Answer::Written { refused, .. } = &answer {
            self.row.count_refused(*refused);
            self.refused += refused;
        }
        match answer {
            Answer::Written { result: Ok(()), took, refused } => {
                self.row.count_write(records.saturating_sub(refused), bytes, took);
                (self.backoff, self.retry_at) = (FIRST_BACKOFF, Duration::ZERO);
                self.row.set_state(SinkState::Ok, now.unix_nano);
                Some(Written::All)
            }
            Answer::Written { result: Err(error), took, refused } => {
                self.row.count_write(error.records.saturating_sub(refused), error.written, took);
                self.fail(&error, now);
                Some(Written::Part(error))
            }
            Answer::Panicked => panic!("the sink {} panicked", self.name),
            // Reads are settled before the first write, and after a close nothing is written.
            Answer::Read(..) | Answer::Closed(_) => None,
        }
    }

    fn fail(&mut self, error: &WriteError, now: Now) {
        self.row.count_error(&error.source);
        self.row.set_state(SinkState::Failing, now.unix_nano);
        self.retry_at = now.monotonic + self.backoff;
        self.backoff = (self.backoff * 2).min(LONGEST_BACKOFF);
        let fresh = || Trouble { since: now, errors: 0, message: String::new(), kind: None };
        let trouble = self.trouble.get_or_insert_with(fresh);
        trouble.errors += 1;
        trouble.message = error.source.to_string();
        trouble.kind = Some(SinkErrorType::of(&error.source));
    }

    /// Notes that the job under way has not returned for long; returns whether that is news.
    pub fn check_worker(&mut self, now: Now) -> bool {
        self.busy_for(now) >= HUNG_AFTER && self.hang(now)
    }

    /// As `check_worker`, whatever the time.
    pub fn hang(&mut self, now: Now) -> bool {
        let Some(busy) = &self.busy else { return false };
        self.row.set_state(SinkState::Hung, now.unix_nano);
        let news = self.trouble.is_none();
        let since = busy.since;
        self.trouble.get_or_insert_with(|| Trouble { since, errors: 0, message: String::new(), kind: None });
        news
    }

    /// Tries again at once.
    pub fn hurry(&mut self) {
        self.retry_at = Duration::ZERO;
    }
}
