//! The agreement between a sink that begins another segment and the housekeeper of its directory: the sink waits until
//! the housekeeper has kept the quota, so that a directory never holds more than the quota and one segment.

use queue::lock::ForkSafe;
use queue::platform::{self, Scope};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a sink waits at most: a directory above its quota is better than records that are not written.
const PATIENCE: Duration = Duration::from_secs(2);

type ByDirectory = Vec<(PathBuf, Arc<Rotation>)>;

/// The directories of one configuration.
#[derive(Clone, Default)]
pub struct Rotations(Arc<ForkSafe<ByDirectory>>);

impl std::fmt::Debug for Rotations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rotations")
    }
}

impl Rotations {
    /// The shared state of the sink and the housekeeper of `directory`.
    #[must_use]
    pub fn of(&self, directory: &Path) -> Arc<Rotation> {
        self.0.with(|all| {
            if let Some((_, known)) = all.iter().find(|(known, _)| known == directory) {
                return Arc::clone(known);
            }
            let new = Arc::new(Rotation::default());
            all.push((directory.to_owned(), Arc::clone(&new)));
            new
        })
    }
}

/// Two futex words, because the threads of the sinks and of the housekeeper do not exist in a forked child.
#[derive(Debug, Default)]
pub struct Rotation {
    asked: AtomicU32,
    answered: AtomicU32,
    /// The process whose housekeeper answers; 0: none does.
    keeper_pid: AtomicU32,
}

impl Rotation {
    /// A segment was sealed: waits until the housekeeper has removed what is above the quota, if there is one.
    pub fn keep_quota(&self) {
        if !self.has_keeper() {
            return;
        }
        let mine = self.ask();
        let end = Instant::now() + PATIENCE;
        loop {
            let answered = self.answered.load(Ordering::SeqCst);
            let left = end.saturating_duration_since(Instant::now());
            if answered.wrapping_sub(mine).cast_signed() >= 0 || left.is_zero() || !self.has_keeper() {
                return;
            }
            platform::wait(&self.answered, Scope::Process, answered, left);
        }
    }

    /// Whether a housekeeper of this process answers.
    #[must_use]
    pub fn has_keeper(&self) -> bool {
        self.keeper_pid.load(Ordering::SeqCst) == std::process::id()
    }

    /// Wakes the housekeeper; returns the number of the question.
    pub fn ask(&self) -> u32 {
        let mine = self.asked.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        platform::wake_all(&self.asked, Scope::Process);
        mine
    }

    /// The housekeeper begins.
    pub fn begin(&self) {
        self.answered.store(self.asked.load(Ordering::SeqCst), Ordering::SeqCst);
        self.keeper_pid.store(std::process::id(), Ordering::SeqCst);
    }

    /// The housekeeper ends: no sink waits for it any more.
    pub fn end(&self) {
        self.keeper_pid.store(0, Ordering::SeqCst);
        self.answer(self.asked());
    }

    /// The number of the last question.
    #[must_use]
    pub fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }

    /// The quota was kept after the question of this number.
    pub fn answer(&self, asked: u32) {
        self.answered.store(asked, Ordering::SeqCst);
        platform::wake_all(&self.answered, Scope::Process);
    }

    /// Waits until a sink asks more than the question of this number, at most `pause`.
    pub fn wait(&self, asked: u32, pause: Duration) {
        platform::wait(&self.asked, Scope::Process, asked, pause);
    }
}
