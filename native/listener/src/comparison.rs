//! Recording compared with not recording on running servers: one comparison at a time in a queue directory, on record.
//!
//! The process that compares goes on with each slice several times a second. If it is killed, the servers record
//! everything within a second, and the listener puts the end of the comparison on record when its time is over.

use super::control::Control;
use listen::overrides::{self, Change};
use queue::lock::{Attempt, ProcessLock};
use queue::system::now_monotonic_nano;
use request::runtime::comparison::ArmCounts;
use request::runtime::settings::Until;
use std::path::Path;

/// A comparison under way; it ends when it is dropped.
pub struct Comparison {
    control: Control,
    has_ended: bool,
    _lock: ProcessLock,
}

impl Comparison {
    /// Begins a comparison of at most `for_s` seconds. Everything is recorded until the first slice.
    ///
    /// # Errors
    /// A sentence: the directory cannot be used, another process compares there, nothing is recorded at the moment, or
    /// the record of the beginning was refused.
    pub fn begin(directory: &Path, for_s: f64) -> Result<Self, String> {
        let place = directory.display();
        let control = Control::open(directory, "ab").map_err(|error| format!("queue_directory={place}: {error}"))?;
        let lock = ProcessLock::try_acquire(&directory.join("comparison.lock"), true);
        let lock = match lock.map_err(|error| format!("queue_directory={place}: {error}"))? {
            Attempt::Acquired(lock) => lock,
            Attempt::HeldElsewhere | Attempt::HeldByThisProcess => {
                return Err(format!("queue_directory={place}: another comparison is under way there"));
            }
        };
        // One whose command was killed ends before its counts do.
        let ended = control.end_comparison();
        control.runtime.begin_comparison();
        let begun = ended.and_then(|_| control.change(&Change::Compared, for_s));
        begun.map_err(|sentence| format!("queue_directory={place}: {sentence}"))?;
        Ok(Self { control, has_ended: false, _lock: lock })
    }

    /// Begins a slice, or goes on with it for at most a second: nothing is recorded while it `is_off`.
    ///
    /// # Errors
    /// A sentence: another command, or its time, has ended the comparison, or recording is switched off.
    pub fn hold(&self, is_off: bool) -> Result<(), String> {
        let (settings, now) = (self.control.runtime.settings(), overrides::now());
        let is_in_force = |until: Option<Until>| until.is_some_and(|at| !at.is_over(now));
        if !is_in_force(settings.compared) {
            return Err("`inference-logging ctl reset`, or its time, has ended the comparison".to_owned());
        }
        if is_in_force(settings.disabled) {
            return Err("`inference-logging ctl disable` has switched recording off".to_owned());
        }
        self.control.runtime.hold_slice(now_monotonic_nano(), is_off);
        Ok(())
    }

    /// The counts since the beginning, off and on.
    #[must_use]
    pub fn counts(&self) -> [ArmCounts; 2] {
        self.control.runtime.compared()
    }

    /// Ends the comparison: everything is recorded, and the end is on record. Further calls do nothing.
    ///
    /// # Errors
    /// A sentence: the record was refused, and the listener makes one when the time is over.
    pub fn end(&mut self) -> Result<(), String> {
        self.control.runtime.end_slices();
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        self.control.end_comparison().map(|_| ())
    }
}

impl Drop for Comparison {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
