//! The first work of a leader, before its first batch: it releases the records that the last leader had written.

use super::Leader;
use crate::attached;
use crate::sink::Now;
use crate::takeover::{self, Findings, Inquiry, Standing};
use queue::control::{FALLBACK_SLOT, PRIMARY_SLOT};

impl Leader {
    /// Releases what the last leader had written. Returns whether that is done.
    pub(super) fn settle_predecessor(&mut self, now: Now) -> bool {
        while let Some(slot) = self.unsettled.last().copied() {
            // Asked once: the last leader may still be ending, and withdraw the place.
            if let Some(inquiry) = self.settling.take().or_else(|| self.inquiry(slot)) {
                let Some(findings) = self.delivery.read(slot, &inquiry, now) else {
                    self.settling = Some(inquiry);
                    return false;
                };
                self.leave_to_others(&findings);
                let standing = &findings.standing;
                self.delivered.find(slot, takeover::read_written(standing, &mut self.queues, &mut self.encoder));
                self.pass_over(standing);
            }
            self.unsettled.pop();
            if self.unsettled.is_empty() {
                self.conclude();
            }
        }
        true
    }

    /// All sinks have answered: releases everything at once, since the next leader would not find a part that is
    /// released, if this one dies.
    fn conclude(&mut self) {
        let settled = self.delivered.count_found();
        if !settled.is_empty() {
            attached::release_all(&mut self.queues, &mut self.encoder);
            settled.into_iter().for_each(|slot| self.control.publish_write(slot, None));
        }
        let obsolete = std::mem::take(&mut self.obsolete);
        self.queues.retain(|queue| !obsolete.contains(&queue.file.path));
        obsolete.iter().for_each(|path| drop(std::fs::remove_file(path)));
        // A queue that was left is for a later leader, which must know that it is a copy.
        if self.left_to_others.is_empty() {
            self.control.adopt();
        }
    }

    fn inquiry(&self, slot: usize) -> Option<Inquiry> {
        let place = self.control.published_write(slot);
        let is_copy = self.is_copy;
        // In a copied directory every sink is asked, once: the records can be in any of them.
        let is_sink = slot == PRIMARY_SLOT || (slot == FALLBACK_SLOT && self.delivery.has_fallback());
        let is_asked = if is_copy { is_sink } else { place.is_some() };
        let held = || self.queues.iter().map(attached::QueueReader::held).collect();
        is_asked.then(|| Inquiry { place, held: held(), is_copy })
    }

    /// The original of a copied queue still has a listener, which writes its records.
    fn leave_to_others(&mut self, findings: &Findings) {
        if !self.is_copy {
            return;
        }
        let (kept, gone) = (&self.delivery, &mut self.left_to_others);
        self.queues.retain(|queue| {
            let header = queue.file.header();
            let is_left = findings.written_elsewhere.contains(&header.boot_id);
            if is_left {
                kept.keep(format!(
                    "{} is left as it is: it is a copy, and a listener still writes the records of process {}",
                    queue.file.path.display(),
                    header.pid
                ));
                gone.push(queue.file.path.clone());
            }
            !is_left
        });
    }

    /// A copied queue whose process went on, or has ended, as segments show: its counts are there.
    fn pass_over(&mut self, standing: &Standing) {
        if !self.is_copy {
            return;
        }
        for queue in &mut self.queues {
            let held = queue.held();
            let Some(left) = standing.get(&held.boot_id) else { continue };
            if left.ended || left.last.is_some_and(|last| last >= held.end) {
                queue.pass_over();
                self.obsolete.push(queue.file.path.clone());
            }
        }
    }
}
