//! The thread that calls a sink: one of its own, or the caller's.
//!
//! A sink can hang for as long as its file system or its reader does. On a thread of its own it delays no other: the
//! leader hands over a job, goes on with its rounds, and finds the answer later. `Here` does the job at once: for tests
//! with a clock of their own, and when the system gives no more threads.

use super::Batch;
use crate::sink::{Now, Sink, WriteError};
use crate::takeover::{self, Findings, Inquiry, Torn, Write};
use queue::control::Control;
use queue::event::{SEGMENT_REPAIRED, WARN};
use queue::queue_file::QueueFile;
use queue::system::{now_monotonic_nano, thread_cpu_nano};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Thread;
use std::time::Duration;

/// How often an idle sink is maintained (rotation by age, paced writeback).
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(500);

/// A job for a sink.
pub enum Job {
    /// Write the lines of the batch from a byte on. `continues`: this sink has written everything before that byte.
    Write { batch: Arc<Batch>, from: usize, records: u64, continues: bool, now: Now },
    /// Find the result of a dead leader's last write.
    Read(Inquiry),
    /// End the output.
    Close { now: Now, footer: Vec<u8> },
}

/// The result of a job.
pub enum Answer {
    /// `refused`: records that can never be written there.
    Written {
        result: Result<(), WriteError>,
        took: Duration,
        refused: u64,
    },
    /// With the repairs that the process's own queue has no room to report.
    Read(io::Result<Findings>, Option<Torn>),
    Closed(io::Result<()>),
    /// How far it came is not known.
    Panicked,
}

/// A sink with everything that its jobs need.
pub struct Desk {
    pub sink: Box<dyn Sink>,
    pub control: Control,
    /// Where in the control page this sink publishes its writes.
    pub slot: usize,
    /// The process's own queue, which takes reports of repairs.
    reports: Option<Arc<QueueFile>>,
    /// Where the current batch began.
    begun: Option<(PathBuf, u64)>,
}

impl Desk {
    /// `ending` is set once no one waits for the sink any more.
    pub fn new(
        mut sink: Box<dyn Sink>,
        control: Control,
        slot: usize,
        reports: Option<Arc<QueueFile>>,
        ending: &Arc<AtomicBool>,
    ) -> Self {
        sink.heed(ending);
        Self { sink, control, slot, reports, begun: None }
    }

    fn work(&mut self, job: Job) -> Answer {
        match job {
            Job::Write { batch, from, records, continues, now } => {
                let begun = now_monotonic_nano();
                let result = self.write(&batch, from, records, continues, now);
                let took = Duration::from_nanos(now_monotonic_nano() - begun);
                Answer::Written { result, took, refused: self.sink.take_refused() }
            }
            Job::Read(inquiry) => {
                // No process relies on lines that are not on the device, and a sync of another process would not prove
                // that they are.
                let write = match (self.sink.is_durable(), self.control.is_committed(self.slot)) {
                    (false, _) => Write::Plain,
                    (true, true) => Write::Committed,
                    (true, false) => Write::Uncommitted,
                };
                let mut unreported = None;
                let report = &mut |torn| unreported = self.unreported(torn);
                let findings = takeover::repair(&inquiry, self.sink.segments(), write, report);
                Answer::Read(findings, unreported)
            }
            Job::Close { now, footer } => Answer::Closed(self.sink.close(now, &footer)),
        }
    }

    /// Reports a repair; returns it if the report is refused.
    fn unreported(&self, torn: Torn) -> Option<Torn> {
        let queue = self.reports.as_deref();
        let is_reported = queue.is_some_and(|queue| queue.put_report(SEGMENT_REPAIRED, WARN, &torn.payload()));
        (!is_reported).then_some(torn)
    }

    fn write(&mut self, batch: &Batch, from: usize, records: u64, continues: bool, now: Now) -> Result<(), WriteError> {
        let (lines, is_durable) = (&batch.lines[from..], self.sink.is_durable());
        let place = self.sink.prepare(lines.len(), now).map_err(WriteError::nothing_written)?;
        if let Some((path, offset)) = place {
            // The rest of a batch in the same file: the records before it are still in the queue.
            let same = self.begun.as_ref().filter(|(begun, _)| continues && begun == path);
            let offset = same.map_or(offset, |(_, first)| *first);
            if from == 0 {
                self.control.forget_kept(self.slot);
            } else if same.is_none() && !is_durable {
                self.control.keep_write(self.slot);
            }
            self.control.publish_write(self.slot, Some((path, offset)));
            if same.is_none() {
                self.begun = Some((path.to_owned(), offset));
            }
        } else {
            self.control.publish_write(self.slot, None);
        }
        self.sink.write(lines, records, now)?;
        if is_durable {
            self.control.publish_committed(self.slot);
        }
        Ok(())
    }
}

/// A sink, and the thread that calls it. It has one job at a time.
pub enum Worker {
    Here { desk: Box<Desk>, answer: Option<Answer> },
    Thread { jobs: Sender<Job>, answers: Receiver<Answer>, cpu_nano: Arc<AtomicU64> },
}

impl Worker {
    /// Serves the sink on the caller's own thread.
    pub fn here(desk: Desk) -> Self {
        Self::Here { desk: Box::new(desk), answer: None }
    }

    /// Serves the sink on a thread that ends when this is dropped, after the job under way; `alive` is dropped then.
    /// The calling thread is unparked by each answer.
    pub fn start(desk: Desk, alive: Sender<()>) -> Self {
        let (jobs, todo) = channel();
        let (done, answers) = channel();
        let cpu_nano = Arc::new(AtomicU64::new(0));
        let (cpu, leader) = (Arc::clone(&cpu_nano), std::thread::current());
        // If the thread cannot be started, the desk is taken back out of this.
        let desk = Arc::new(std::sync::Mutex::new(Some(desk)));
        let theirs = Arc::clone(&desk);
        let thread = std::thread::Builder::new().name("inference-sink".into()).spawn(move || {
            let desk = theirs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            if let Some(desk) = desk {
                serve(desk, &todo, &done, &leader, &cpu);
            }
            drop(alive);
        });
        let left = if thread.is_err() { desk.lock().ok().and_then(|mut desk| desk.take()) } else { None };
        left.map_or(Self::Thread { jobs, answers, cpu_nano }, Self::here)
    }

    /// Hands over a job.
    pub fn submit(&mut self, job: Job) {
        match self {
            Self::Here { desk, answer } => *answer = Some(desk.work(job)),
            Self::Thread { jobs, .. } => {
                // The thread ends only when this is dropped.
                let _ = jobs.send(job);
            }
        }
    }

    /// Takes the answer, if it is there.
    pub fn poll(&mut self) -> Option<Answer> {
        match self {
            Self::Here { answer, .. } => answer.take(),
            Self::Thread { answers, .. } => answers.try_recv().ok(),
        }
    }

    /// Waits for the answer, at most `patience`.
    pub fn wait(&mut self, patience: Duration) -> Option<Answer> {
        match self {
            Self::Here { answer, .. } => answer.take(),
            Self::Thread { answers, .. } => answers.recv_timeout(patience).ok(),
        }
    }

    /// Does the periodic work, if no thread does.
    pub fn maintain(&mut self, now: Now) {
        if let Self::Here { desk, .. } = self {
            let _ = desk.sink.maintain(now);
        }
    }

    /// CPU time of the thread.
    pub fn cpu_nano(&self) -> u64 {
        match self {
            Self::Here { .. } => 0,
            Self::Thread { cpu_nano, .. } => cpu_nano.load(Ordering::Relaxed),
        }
    }
}

fn serve(mut desk: Desk, jobs: &Receiver<Job>, answers: &Sender<Answer>, leader: &Thread, cpu_nano: &AtomicU64) {
    loop {
        match jobs.recv_timeout(MAINTENANCE_INTERVAL) {
            Ok(job) => {
                let answer = catch_unwind(AssertUnwindSafe(|| desk.work(job))).unwrap_or(Answer::Panicked);
                cpu_nano.store(thread_cpu_nano(), Ordering::Relaxed);
                if answers.send(answer).is_err() {
                    return;
                }
                leader.unpark();
            }
            Err(RecvTimeoutError::Timeout) => {
                // An error here comes again in the next write, which counts it.
                let _ = catch_unwind(AssertUnwindSafe(|| desk.sink.maintain(Now::read())));
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
