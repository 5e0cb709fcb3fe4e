//! Removes segments that are too old, or too many: the oldest first, and never one that has a writer.
//!
//! Invariants:
//!
//! * Only files of the inventory are removed (see [`crate::segment_store`]).
//! * A plain segment is removed while its lock is held, so a live one, of whatever process, stays, though it counts for
//!   the quota. An empty one may be about to begin, until it has been empty for [`BEGINNING`].
//! * Every removal is announced before, and is counted, by reason, whatever else fails.

use crate::clock_steps::ClockSteps;
use crate::segment::Form;
use crate::segment_spans::spans_of;
use crate::segment_store::{Inventory, Store, Stored};
use crate::spans::Span;
use queue::published::housekeeping::{REASONS, Reason};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

/// An empty segment may be one whose writer is about to lock it.
const BEGINNING: Duration = Duration::from_secs(60);

/// Segments that are announced together, and locked until they are gone.
const GROUP: usize = 32;

/// How long and how much segments are kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Time since the last line; zero: no limit.
    pub retention: Duration,
    /// Bytes of all segments of the prefix; 0: no limit.
    pub quota_bytes: u64,
}

impl Limits {
    /// Why `stored` must be removed, if the segments have `total` bytes; None: it may stay. It waits for the shippers
    /// of these names, as long as the quota allows.
    fn exceeded_by(&self, stored: &Stored, total: u64, clock: &ClockSteps, waits_for: &[String]) -> Option<Reason> {
        let age_nano = clock.age_nano(stored.last_written_unix_nano());
        let shipped = waits_for.iter().all(|name| stored.shipped.contains(name));
        if !self.retention.is_zero() && age_nano > self.retention.as_nanos() as u64 && shipped {
            return Some(Reason::Age);
        }
        let reason = if shipped { Reason::Quota } else { Reason::Unshipped };
        (self.quota_bytes != 0 && total > self.quota_bytes).then_some(reason)
    }
}

/// Segments that were removed for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    pub segments: u64,
    pub bytes: u64,
    /// Names of the first and the last of them.
    pub oldest: String,
    pub newest: String,
    /// The records in them, as far as they could be read.
    pub spans: Vec<Span>,
}

impl From<(u64, u64)> for Removed {
    /// From segments and bytes whose names are not known.
    fn from((segments, bytes): (u64, u64)) -> Self {
        Self { segments, bytes, ..Self::default() }
    }
}

impl Removed {
    /// Adds `later`, which was removed after this.
    pub fn add(&mut self, later: Self) {
        if later.segments == 0 {
            return;
        }
        if self.oldest.is_empty() {
            self.oldest = later.oldest;
        }
        self.newest = later.newest;
        self.segments += later.segments;
        self.bytes += later.bytes;
        for span in later.spans {
            let known = self.spans.iter_mut().rfind(|known| known.boot_id == span.boot_id);
            match known.filter(|known| known.last.checked_add(1) == Some(span.first)) {
                Some(known) => known.add(&span),
                None => self.spans.push(span),
            }
        }
    }

    /// Takes out what fits into one report: everything, or the first `spans` of more; then only spans are left.
    #[must_use]
    pub fn take(&mut self, spans: usize) -> Self {
        let more = self.spans.split_off(self.spans.len().min(spans));
        std::mem::replace(self, Self { spans: more, ..Self::default() })
    }

    /// Whether there is nothing to report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments == 0 && self.spans.is_empty()
    }
}

/// How much a round removed, by [`Reason`], and the error that ended it early.
#[derive(Debug, Default)]
pub struct Outcome {
    pub segments: [u64; REASONS.len()],
    pub bytes: [u64; REASONS.len()],
    pub error: Option<io::Error>,
}

/// A segment that is about to be removed.
struct Doomed {
    stored: Stored,
    reason: Reason,
    _dead: Dead,
}

/// Removes segments beyond the limits from `dir`, and from the inventory, while `goes_on`; a segment that a shipper of
/// `waits_for` has not shipped is removed for the quota alone. Removals are announced first: a process that dies in
/// between has reported segments that are still there, rather than kept silent about missing ones. A segment that could
/// not be announced is removed too while the work goes on: the removal does not wait for a report on a full disk.
pub fn enforce(
    store: &mut impl Store,
    dir: &Path,
    inventory: &mut Inventory,
    (limits, waits_for): (Limits, &[String]),
    (now_unix_nano, clock): (u64, &ClockSteps),
    goes_on: &mut dyn FnMut() -> bool,
    announce: &mut dyn FnMut(Vec<(Reason, Removed)>) -> bool,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut total = inventory.bytes();
    let mut left = std::mem::take(&mut inventory.segments).into_iter();
    while !left.as_slice().is_empty() {
        let (mut group, mut announced) = (Vec::new(), Vec::new());
        for stored in left.by_ref() {
            let reason = limits.exceeded_by(&stored, total, clock, waits_for);
            let Some(reason) = reason.filter(|_| outcome.error.is_none() && goes_on()) else {
                inventory.segments.push(stored);
                continue;
            };
            match lock_dead(store, dir, &stored, now_unix_nano) {
                Ok(Some(dead)) => {
                    total -= stored.bytes();
                    announced.push((reason, what_goes(store, dir, &stored, &dead)));
                    group.push(Doomed { stored, reason, _dead: dead });
                }
                other => {
                    outcome.error = other.err();
                    inventory.segments.push(stored);
                }
            }
            if group.len() == GROUP {
                break;
            }
        }
        if announce(announced) || goes_on() {
            group.into_iter().for_each(|doomed| remove(store, dir, inventory, doomed, &mut outcome));
        } else {
            inventory.segments.extend(group.into_iter().map(|doomed| doomed.stored));
        }
    }
    outcome
}

fn what_goes(store: &mut impl Store, dir: &Path, stored: &Stored, dead: &Dead) -> Removed {
    // A segment that cannot be read is removed too: it must not keep a disk full.
    let spans = spans_of(store, dir, stored, dead.0.as_ref()).unwrap_or_default();
    let name = stored.name.to_string();
    Removed { segments: 1, bytes: stored.bytes(), oldest: name.clone(), newest: name, spans }
}

/// Removes a segment's files and counts it. If that fails it stays in the inventory, and the round ends.
fn remove(store: &mut impl Store, dir: &Path, inventory: &mut Inventory, doomed: Doomed, outcome: &mut Outcome) {
    let Doomed { stored, reason, .. } = doomed;
    if outcome.error.is_some() {
        return inventory.segments.push(stored);
    }
    let mut any = false;
    for (form, _) in stored.files() {
        match store.remove(&dir.join(stored.name.file_name(form))) {
            Ok(()) => any = true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => outcome.error = Some(error),
        }
    }
    if outcome.error.is_some() {
        return inventory.segments.push(stored);
    }
    for name in &stored.shipped {
        // A mark that stays is a leftover for the next round.
        let _ = store.remove(&dir.join(stored.name.marker(name)));
    }
    if any {
        outcome.segments[reason as usize] += 1;
        outcome.bytes[reason as usize] += stored.bytes();
    }
}

/// Keeps a writer away from a segment while this lives. A compressed one has no writer.
pub struct Dead(pub Option<File>);

/// Locks a segment that has no writer, or returns None. A segment that may not be opened belongs to another user, and
/// is left alone.
///
/// # Errors
/// It cannot be opened, or the file system has no locks: then it is unknown whether it has a writer.
pub fn lock_dead(store: &mut impl Store, dir: &Path, stored: &Stored, now_unix_nano: u64) -> io::Result<Option<Dead>> {
    let Some(facts) = stored.plain else { return Ok(Some(Dead(None))) };
    let is_new = now_unix_nano.saturating_sub(stored.last_written_unix_nano()) < BEGINNING.as_nanos() as u64;
    if facts.bytes == 0 && is_new {
        return Ok(None);
    }
    let file = match store.open(&dir.join(stored.name.file_name(Form::Plain))) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            return Ok(None);
        }
        other => other?,
    };
    Ok(store.try_lock(&file)?.then_some(Dead(Some(file))))
}
