//! The thread of a process whose records another process writes (`listener: external`): from time to time it checks
//! that the process's queue is still where the listener finds it.
//!
//! A process with a listener's thread checks in that thread. The request path does not: each check is a system call.

use crate::lock::ForkSafe;
use crate::producer::Producer;
use crate::system::mask_signals;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::Duration;

/// How often a process checks that its queue is still where listeners find it.
pub const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Of the thread: much more than it uses, and less than the 2 MiB that it would have.
const STACK_BYTES: usize = 256 << 10;

/// The thread of a process, if it has one.
#[derive(Default)]
pub struct QueueCheck(ForkSafe<Option<Running>>);

/// The running thread; ends some time after this is dropped, and is not waited for.
struct Running {
    ended: Arc<AtomicBool>,
    thread: Thread,
}

impl QueueCheck {
    /// Starts the thread, unless it runs. It checks the queues of `producer` until nothing is left to check.
    ///
    /// # Errors
    /// A sentence: no thread can be started.
    pub fn start(&self, producer: &Arc<Producer>) -> Result<(), String> {
        self.0.with(|running| {
            if running.is_none() {
                let started = Running::start(Arc::downgrade(producer));
                *running = Some(started.map_err(|error| format!("no thread can be started: {error}"))?);
            }
            Ok(())
        })
    }

    /// Lets the thread end.
    pub fn stop(&self) {
        drop(self.0.with(Option::take));
    }

    /// Begins again in a forked child, which has no such thread.
    pub fn after_fork_in_child(&self) {
        self.0.with(|running| std::mem::forget(running.take()));
    }
}

impl Running {
    fn start(producer: Weak<Producer>) -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ended);
        let look = move || producer.upgrade().is_some_and(|producer| check_queue(&producer));
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

impl Drop for Running {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Checks the queues of a producer whose listener is elsewhere. Returns whether there is anything to check later.
fn check_queue(producer: &Producer) -> bool {
    // First the queues that were replaced before the last check: a thread that was committing a record then has done so.
    let _ = producer.save_replaced();
    producer.look_after_queue()
}
