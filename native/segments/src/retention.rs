//! Removes segments that are too old, or too many: the oldest first, and never one that has a writer.
//!
//! Invariants:
//!
//! * Only files of the inventory are removed (see [`crate::segment_store`]).
//! * A plain segment is removed while its lock is held, so a live one, of whatever process, stays, though it counts for
//!   the quota. An empty one may be about to begin, until it has been empty for [`BEGINNING`].
//! * Every removal is announced before, and is counted, by reason, whatever else fails.

use crate::segment::Form;
use crate::segment_account::{Span, spans_of};
use crate::segment_store::{Inventory, Store, Stored};
use queue::published::housekeeping::{REASONS, Reason};
use queue::system::{boot_id, now_boottime_nano, now_unix_nano};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
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

// Ages of files whose times come from a clock that may be set: a step forward makes none of them older.
//
// Beside the wall clock runs one that is never set and that continues while the machine sleeps. If the wall clock
// advances by more than that one, it was set; files from before the step are younger by the difference. The last
// moment and the steps so far are stored in the housekeeper's lock file, for the next housekeeper of the same boot.

/// More than the drift, and more than what passes between two readings of the clocks.
const TOLERANCE_NANO: u64 = 60_000_000_000;
/// If there are more steps, the oldest is forgotten.
const MOST_STEPS: usize = 16;
const MOST_BYTES: usize = 1024;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    pub unix_nano: u64,
    /// By the clock that is never set, since the machine began.
    pub boottime_nano: u64,
}

impl Moment {
    /// Now.
    #[must_use]
    pub fn read() -> Self {
        Self { unix_nano: now_unix_nano(), boottime_nano: now_boottime_nano() }
    }
}

/// The clock was set forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockStep {
    /// The time that it would have shown.
    before_unix_nano: u64,
    by_nano: u64,
}

/// The known steps of the wall clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockSteps {
    boot: String,
    last: Moment,
    steps: Vec<ClockStep>,
}

impl ClockSteps {
    /// Reads what the last housekeeper has left in `file`, unless the machine was restarted since.
    #[must_use]
    pub fn read(file: &File) -> Self {
        let mut bytes = vec![0; MOST_BYTES];
        let len = file.read_at(&mut bytes, 0).unwrap_or(0);
        let boot = boot_id();
        let known = std::str::from_utf8(&bytes[..len]).ok().and_then(Self::parse);
        known.filter(|known| known.boot == boot).unwrap_or(Self { boot, ..Self::default() })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let boot = words.next()?.to_owned();
        let numbers = words.map(|word| word.parse().ok()).collect::<Option<Vec<u64>>>()?;
        let (pairs, []) = numbers.as_chunks::<2>() else { return None };
        let ([unix_nano, boottime_nano], steps) = pairs.split_first()?;
        let last = Moment { unix_nano: *unix_nano, boottime_nano: *boottime_nano };
        let steps = steps
            .iter()
            .map(|[before_unix_nano, by_nano]| ClockStep { before_unix_nano: *before_unix_nano, by_nano: *by_nano });
        Some(Self { boot, last, steps: steps.take(MOST_STEPS).collect() })
    }

    /// Stores them for the next housekeeper. Without room for them, the next one begins without.
    pub fn write(&self, file: &File) {
        let mut text = format!("{} {} {}", self.boot, self.last.unix_nano, self.last.boottime_nano);
        for step in &self.steps {
            text += &format!(" {} {}", step.before_unix_nano, step.by_nano);
        }
        // Longer than any text before, so that nothing of the old one is left.
        let _ = file.write_all_at(format!("{text:MOST_BYTES$}").as_bytes(), 0);
    }

    /// Takes note of the clocks.
    pub fn see(&mut self, now: Moment) {
        let passed = now.boottime_nano.saturating_sub(self.last.boottime_nano);
        let expected = self.last.unix_nano.saturating_add(passed);
        if self.last != Moment::default() && now.unix_nano > expected.saturating_add(TOLERANCE_NANO) {
            self.steps.push(ClockStep { before_unix_nano: expected, by_nano: now.unix_nano - expected });
            let surplus = self.steps.len().saturating_sub(MOST_STEPS);
            self.steps.drain(..surplus);
        }
        // A step back undoes the last ones forward: files written in between have times in the future.
        while self
            .steps
            .last()
            .is_some_and(|step| now.unix_nano <= step.before_unix_nano.saturating_add(TOLERANCE_NANO))
        {
            self.steps.pop();
        }
        self.last = now;
    }

    /// The age of a file that was written at `unix_nano` by the clock of that moment.
    #[must_use]
    pub(crate) fn age_nano(&self, unix_nano: u64) -> u64 {
        let later = self.steps.iter().filter(|step| unix_nano <= step.before_unix_nano);
        let stepped = later.map(|step| step.by_nano).fold(0, u64::saturating_add);
        self.last.unix_nano.saturating_sub(unix_nano).saturating_sub(stepped)
    }
}
