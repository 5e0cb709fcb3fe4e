//! How a leader begins and ends: what its dead predecessor had written, and the end of every sink's output.

use super::outlet::Written;
use super::worker::{Answer, Job};
use super::{Delivery, read_now};
use crate::control::{FALLBACK_SLOT, PRIMARY_SLOT};
use crate::sink::Now;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Delivery {
    /// Reads what a dead leader's last write left, by the sink whose place that is. None: not yet.
    pub fn read(&mut self, slot: usize, place: &(PathBuf, u64), now: Now) -> Option<Vec<u8>> {
        let delay = self.fallback_delay;
        let elsewhere = self.fallback.is_some();
        let outlet = match &mut self.fallback {
            Some(fallback) if slot % 2 == FALLBACK_SLOT => fallback,
            _ => &mut self.primary,
        };
        if outlet.is_free() {
            outlet.submit(Job::Read { path: place.0.clone(), offset: place.1 }, now);
        }
        match outlet.answer() {
            // A segment that cannot be read (removed, another mount) has no records to compare with.
            Some(Answer::Read(lines, untold)) => {
                if let Some(torn) = untold {
                    self.notices.repaired(&torn, now.unix_nano);
                }
                Some(lines.unwrap_or_default())
            }
            Some(_) => Some(Vec::new()),
            // With a fallback, records are written rather once more than late.
            None if elsewhere && outlet.busy_for(now) >= delay => {
                outlet.hang(now);
                outlet.abandon();
                Some(Vec::new())
            }
            None => {
                outlet.look(now);
                None
            }
        }
    }

    /// Waits for the sink at work, at most `patience`; returns whether the batch is done.
    pub fn settle(&mut self, now: Now, patience: Duration) -> bool {
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
                // It hangs. Where its write began stays published: the next leader looks there.
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
        let end = read_now().monotonic + patience;
        self.copies.iter().for_each(|copies| copies.begin_end(end));
        self.copies.drain(..).for_each(|copies| copies.end(end));
    }
}
