//! How a leader begins and ends: the last writes of its dead predecessor, and the end of every sink's output.

use super::Delivery;
use super::outlet::Written;
use super::worker::{Answer, Job};
use crate::sink::Now;
use crate::takeover::{Findings, Inquiry};
use queue::control::{FALLBACK_SLOT, PRIMARY_SLOT};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Delivery {
    /// Finds the result of a dead leader's last write, by the sink to which it belongs. None: not yet.
    pub fn read(&mut self, slot: usize, inquiry: &Inquiry, now: Now) -> Option<Findings> {
        let delay = self.fallback_delay;
        let elsewhere = self.fallback.is_some();
        let outlet = match &mut self.fallback {
            Some(fallback) if slot % 2 == FALLBACK_SLOT => fallback,
            _ => &mut self.primary,
        };
        if outlet.is_free() {
            outlet.submit(Job::Read(inquiry.clone()), now);
        }
        match outlet.answer() {
            // A segment that cannot be read (removed, another mount) has no records to compare with.
            Some(Answer::Read(findings, unreported)) => {
                if let Some(torn) = unreported {
                    self.notices.repaired(&torn, now.unix_nano);
                }
                match findings {
                    // Somebody still writes there, or just did: it is asked again, as long as below.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        let since = *self.asked_since.get_or_insert(now.monotonic);
                        let is_late = elsewhere && now.monotonic.saturating_sub(since) >= delay;
                        is_late.then(Findings::default)
                    }
                    findings => {
                        self.asked_since = None;
                        let findings = findings.unwrap_or_default();
                        if let Some(kept) = &findings.kept {
                            self.notices.kept(kept, now);
                            self.keep(kept.clone());
                        }
                        Some(findings)
                    }
                }
            }
            Some(_) => Some(Findings::default()),
            // With a fallback, a record is rather written twice than late.
            None if elsewhere && outlet.busy_for(now) >= delay => {
                outlet.hang(now);
                outlet.abandon();
                Some(Findings::default())
            }
            None => {
                outlet.check_worker(now);
                None
            }
        }
    }

    /// Notes, for the operator, damage that was left as it is.
    pub fn keep(&self, what: String) {
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(what);
    }

    /// Waits for the sink at work, at most `patience`; returns whether the batch is done.
    pub fn wait_written(&mut self, now: Now, patience: Duration) -> bool {
        self.ending.store(true, Ordering::Relaxed);
        let Some(batch) = self.batch.clone() else { return true };
        let Some(outlet) = self.outlet_at() else { return false };
        match outlet.wait_written(now, patience) {
            Some(Written::All) => {
                self.finish(batch, now);
                true
            }
            Some(Written::Part(error)) => {
                self.written += error.written;
                self.failed(now);
                false
            }
            None => false,
        }
    }

    /// Ends the output of every sink that answers within `patience`.
    pub fn close(&mut self, now: Now, footer: &[u8], patience: Duration) {
        self.ending.store(true, Ordering::Relaxed);
        let outlets = [(PRIMARY_SLOT, Some(&mut self.primary)), (FALLBACK_SLOT, self.fallback.as_mut())];
        for (slot, outlet) in outlets.into_iter().filter_map(|(slot, outlet)| Some((slot, outlet?))) {
            if !outlet.is_free() {
                // It hangs. The place where its write began stays published: the next leader looks there.
                continue;
            }
            outlet.submit(Job::Close { now, footer: footer.to_vec() }, now);
            match outlet.worker.wait(patience) {
                Some(Answer::Closed(Ok(()))) => self.control.publish_write(slot, None),
                answer => {
                    self.control.page().sink_errors.fetch_add(1, Ordering::Relaxed);
                    if answer.is_some() {
                        self.control.publish_write(slot, None);
                    }
                }
            }
        }
        let end = Now::read().monotonic + patience;
        self.copies.iter().for_each(|copies| copies.begin_end(end));
        self.copies.drain(..).for_each(|copies| copies.end(end));
    }
}
