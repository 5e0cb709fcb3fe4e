//! Waits that a signal ends: what came before a wait began is not lost.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator;
use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// What asks a process to end.
pub const ENDING: [i32; 2] = [SIGTERM, SIGINT];

/// Signals, in the order in which they come.
pub struct Signals {
    came: Receiver<i32>,
}

impl Signals {
    /// Takes `numbers` from now on.
    ///
    /// # Errors
    /// No handler or no thread can be had.
    pub fn take(numbers: &[i32]) -> io::Result<Self> {
        let mut taken = iterator::Signals::new(numbers)?;
        let (tell, came) = channel();
        let pass_on = move || {
            for number in taken.forever() {
                if tell.send(number).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(pass_on)?;
        Ok(Self { came })
    }

    /// The next signal; None: none came within `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<i32> {
        self.came.recv_timeout(timeout).ok()
    }
}
