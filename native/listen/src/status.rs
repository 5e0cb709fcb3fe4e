//! The state of the logging and its counts, for every face: the grade of health, and the metrics as text.
//!
//! Nothing here takes part in the protocol, and nothing knows Python: a face asks for an answer and sends it. Times are
//! arguments, so that tests need no clock.

pub mod health;
pub mod lane;
pub mod metrics;
mod number;

use queue::lock::ForkSafe;
use std::sync::{Arc, Mutex, PoisonError};

/// One value for each process that has this object. A thread of the parent may hold the parent's lock at the fork, and
/// no thread of the child would ever release it.
struct PerProcess<T> {
    here: ForkSafe<(u32, Arc<Mutex<T>>)>,
}

impl<T: Default> PerProcess<T> {
    /// Begins with the default in every process.
    pub fn new() -> Self {
        Self { here: ForkSafe::new((std::process::id(), Arc::default())) }
    }

    /// Runs `work` alone in this process; another thread waits.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let value = self.here.with(|(pid, value)| {
            if *pid != std::process::id() {
                // The parent's value is left alone, locked or not.
                std::mem::forget(std::mem::take(value));
                *pid = std::process::id();
            }
            Arc::clone(value)
        });
        let mut value = value.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut value)
    }
}
