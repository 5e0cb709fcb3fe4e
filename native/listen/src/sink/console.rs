//! The console sink: what happens now, as text for the people at a terminal.
//!
//! It is an additional sink: it gets the same lines as all others, encoded and redacted, on a thread of its own. A
//! terminal that is stopped (Ctrl-S) or a pipe without a reader makes it wait, and nothing else: what its buffer cannot
//! hold is left out, and the line about that says how much it was. A terminal that is closed ends it for good.
//!
//! Text that is on its way counts as written: it is kept, and goes out before any other.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::os::{Os, RealOs};
use super::stdout::StdoutSink;
use super::{Now, OpenError, Sink, WriteError, count_lines};
use lines::terminal::{Look, Record};
use queue::system;

/// Its name among the sinks; no sink of a configuration has it.
pub const NAME: &str = "console";
/// Text that is sent at once, so that little is on its way.
const BLOCK: usize = 4096;
/// Processes that are remembered; there are several anyway.
const MOST_PROCESSES: usize = 64;

/// Writes records as text to standard error, or to any open file.
#[derive(Debug)]
pub struct ConsoleSink<O: Os = RealOs> {
    out: StdoutSink<O>,
    colours: bool,
    /// The live processes whose records were shown.
    processes: HashSet<Vec<u8>>,
    /// Text that is not out yet.
    text: Vec<u8>,
    has_ended: bool,
    ending: Arc<AtomicBool>,
}

impl ConsoleSink {
    /// Take a second descriptor of standard error.
    pub fn open(colours: bool) -> Result<Self, OpenError> {
        Ok(Self::over(StdoutSink::stderr()?, colours))
    }
}

impl<O: Os> ConsoleSink<O> {
    /// Write to the terminal that `out` writes to.
    pub fn over(out: StdoutSink<O>, colours: bool) -> Self {
        let (processes, text) = (HashSet::new(), Vec::new());
        Self { out, colours, processes, text, has_ended: false, ending: Arc::default() }
    }

    /// Add the text of a record.
    fn show(&mut self, line: &[u8], look: Look) {
        let record = Record::read(line);
        if let Some(process) = record.process().filter(|_| self.processes.len() < MOST_PROCESSES) {
            self.processes.insert(process.to_vec());
        }
        look.push(&mut self.text, &record, self.processes.len() > 1);
        if let Some(process) = record.ended_process() {
            self.processes.remove(process);
        }
    }

    /// Send the text, however long the terminal takes; it stops only at the end of the listener.
    fn send(&mut self, now: Now) -> io::Result<()> {
        while !self.text.is_empty() {
            let Err(error) = self.out.write(&self.text, count_lines(&self.text), now) else {
                self.text.clear();
                break;
            };
            self.text.drain(..error.written);
            if is_closed(&error.source) {
                self.has_ended = true;
                self.text = Vec::new();
            }
            if error.source.kind() != io::ErrorKind::TimedOut || self.ending.load(Ordering::Relaxed) {
                return Err(error.source);
            }
        }
        Ok(())
    }
}

impl<O: Os> Sink for ConsoleSink<O> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn write(&mut self, lines: &[u8], _records: u64, now: Now) -> Result<(), WriteError> {
        if self.has_ended {
            return Err(WriteError::nothing_written(io::ErrorKind::BrokenPipe.into()));
        }
        self.send(now).map_err(WriteError::nothing_written)?;
        let columns = system::terminal_columns(self.out.stream());
        let look = Look { columns, colours: self.colours, is_whole: true };
        let (mut sent, mut taken) = (0, 0);
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            self.show(line, look);
            taken += line.len();
            if self.text.len() < BLOCK && taken < lines.len() {
                continue;
            }
            if let Err(source) = self.send(now) {
                // Text that waits for a terminal is not made again; text for a closed one is lost.
                return Err(WriteError::after(&lines[..if self.has_ended { sent } else { taken }], source));
            }
            sent = taken;
        }
        Ok(())
    }

    fn close(&mut self, now: Now, footer: &[u8]) -> io::Result<()> {
        self.out.close(now, footer)
    }

    fn heed(&mut self, ending: &Arc<AtomicBool>) {
        self.ending = Arc::clone(ending);
        self.out.heed(ending);
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }
}

/// Whether an error is that of a terminal that was closed, or of a pipe that nobody reads any more.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPIPE | libc::EIO | libc::ENXIO | libc::EBADF | libc::ECONNRESET))
}
