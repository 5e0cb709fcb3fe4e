//! The thread of a process whose records another process writes (`listener: external`): from time to time it checks
//! that the process's queue is still where the listener finds it.
//!
//! A process with a listener's thread checks in that thread. The request path does not: each check is a system call.

use crate::producer::Producer;
use crate::system::mask_signals;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// How often a process checks that its queue is still where listeners find it.
pub const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Of the thread: much more than it uses, and less than the 2 MiB that it would have.
const STACK_BYTES: usize = 256 << 10;

/// The running thread; ends some time after this is dropped, and is not waited for.
pub struct QueueCheck {
    ended: Arc<AtomicBool>,
    thread: Thread,
}

impl QueueCheck {
    /// Starts the thread, which calls `look` until it returns that nothing is left to check.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(look: impl Fn() -> bool + Send + 'static) -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ended);
        let handle =
            std::thread::Builder::new().name("inference-look".into()).stack_size(STACK_BYTES).spawn(move || {
                mask_signals();
                while !is_over.load(Ordering::Acquire) && look() {
                    std::thread::park_timeout(CHECK_INTERVAL);
                }
            })?;
        Ok(Self { ended, thread: handle.thread().clone() })
    }
}

impl Drop for QueueCheck {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Checks the queues of a producer whose listener is elsewhere. Returns whether there is anything to check later.
pub fn check_queue(producer: &Producer) -> bool {
    // First the queues that were replaced before the last check: a thread that was committing a record then has done so.
    let _ = producer.save_replaced();
    producer.look_after_queue()
}
