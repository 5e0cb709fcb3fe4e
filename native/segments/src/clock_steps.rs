//! Ages of files whose times come from a clock that may be set: a step forward makes none of them older.
//!
//! Beside the wall clock runs one that is never set and that continues while the machine sleeps. If the wall clock
//! advances by more than that one, it was set; files from before the step are younger by the difference. The last
//! moment and the steps so far are stored in the housekeeper's lock file, for the next housekeeper of the same boot.

use queue::system::{boot_id, now_boottime_nano, now_unix_nano};
use std::fs::File;
use std::os::unix::fs::FileExt;

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
