//! The thread of a process whose records another process writes (`listener: external`): from time to time it checks
//! that the process's queue is still where the listener finds it.
//!
//! A process with a listener's thread checks in that thread. The request path does not: each check is a system call.

use crate::listener::LOOK_AFTER_INTERVAL;
use queue::system::mask_signals;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

/// The running thread; ends some time after this is dropped, and is not waited for.
pub struct Caretaker {
    ended: Arc<AtomicBool>,
    thread: Thread,
}

impl Caretaker {
    /// Starts the thread, which calls `look` until it returns that nothing is left to check.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(look: impl Fn() -> bool + Send + 'static) -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ended);
        let handle = std::thread::Builder::new().name("inference-look".into()).spawn(move || {
            mask_signals();
            while !is_over.load(Ordering::Acquire) && look() {
                std::thread::park_timeout(LOOK_AFTER_INTERVAL);
            }
        })?;
        Ok(Self { ended, thread: handle.thread().clone() })
    }
}

impl Drop for Caretaker {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
