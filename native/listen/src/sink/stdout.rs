//! The stdout sink: lines to standard output, for platforms that collect it; and the console sink.
//!
//! What went into a pipe cannot be taken back. So when a write stops inside a line, the sink keeps a copy of the part
//! that is out (`torn`), and the next write decides: if it begins with that part, as the listener's retry does, only
//! the rest is sent; otherwise the part is ended with `\n` first, so that it damages no other line. Readers see every
//! line at most once, and a broken one only if the listener gave a line up.
//!
//! A write to a stream waits at most [`STALL`] for room, and is no larger than what a pipe with room takes at once: a
//! reader that stops causes an error, not a hung listener. Standard output is shared: other writers of the process can
//! write between two writes, never inside one.
//!
//! There are no segments here: no header, no footer, no rotation.

use super::os::{Os, RealOs};
use super::{Now, OpenError, Sink, SinkStats, WriteError, count_lines, whole_lines};
use lines::terminal::{Look, Record};
use queue::system;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long one write waits for a reader.
pub const STALL: Duration = Duration::from_secs(1);
/// How often a wait checks whether the end has come.
const LOOK: Duration = Duration::from_millis(50);
/// PIPE_BUF: a pipe that polls as writable takes this much at once, undivided.
const STREAM_CHUNK: usize = 4096;

/// Writes lines to standard output, or to any open file.
#[derive(Debug)]
pub struct StdoutSink<O: Os = RealOs> {
    os: O,
    file: File,
    is_stream: bool,
    /// The beginning of a line that is out while its end is not.
    torn: Vec<u8>,
    ending: Arc<AtomicBool>,
    stats: SinkStats,
}

impl StdoutSink {
    /// Take a second descriptor of standard output, so that closing the first does no harm.
    pub fn open() -> Result<Self, OpenError> {
        Self::take(io::stdout().as_fd())
    }

    /// Take a second descriptor of standard error.
    pub fn stderr() -> Result<Self, OpenError> {
        Self::take(io::stderr().as_fd())
    }

    fn take(stream: BorrowedFd<'_>) -> Result<Self, OpenError> {
        match stream.try_clone_to_owned() {
            Ok(fd) => Self::open_with(File::from(fd), RealOs),
            Err(source) => Err(unavailable(source)),
        }
    }
}

impl<O: Os> StdoutSink<O> {
    /// Write to `file` on a given operating system.
    pub fn open_with(file: File, mut os: O) -> Result<Self, OpenError> {
        let is_stream = os.status(&file).map_err(unavailable)?.is_stream;
        Ok(Self { os, file, is_stream, torn: Vec::new(), ending: Arc::default(), stats: SinkStats::default() })
    }

    /// Return the stream.
    pub(super) fn stream(&self) -> &File {
        &self.file
    }

    /// Send `bytes`; on an error, also return how many of them are out.
    fn send(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.send_some(&bytes[sent..]) {
                Ok(0) => return Err((sent, io::ErrorKind::WriteZero.into())),
                Ok(n) => sent += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((sent, error)),
            }
        }
        Ok(())
    }

    fn send_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_stream {
            return self.os.write(&self.file, bytes);
        }
        if !wait_writable(&mut self.os, &self.file, &self.ending)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.os.write(&self.file, &bytes[..chunk(bytes)])
    }

    /// End a line that will not be continued.
    fn end_torn_line(&mut self) -> io::Result<()> {
        if !self.torn.is_empty() {
            self.send(b"\n").map_err(|(_, error)| error)?;
            self.torn.clear();
        }
        Ok(())
    }

    fn count(&mut self, records: u64, bytes: usize) {
        self.stats.records += records;
        self.stats.bytes += bytes as u64;
    }
}

impl<O: Os> Sink for StdoutSink<O> {
    fn name(&self) -> &'static str {
        "stdout"
    }

    fn write(&mut self, lines: &[u8], records: u64, _now: Now) -> Result<(), WriteError> {
        if lines.is_empty() {
            return Ok(());
        }
        if !lines.starts_with(&self.torn) {
            self.end_torn_line().map_err(WriteError::nothing_written)?;
        }
        let out = self.torn.len();
        let sent = self.send(&lines[out..]);
        self.torn.clear();
        let Err((sent, source)) = sent else {
            self.count(records, lines.len());
            return Ok(());
        };
        let taken = &lines[..out + sent];
        let (whole, torn) = taken.split_at(whole_lines(taken));
        self.torn.extend_from_slice(torn);
        let error = WriteError::after(whole, source);
        self.count(error.records, error.written);
        Err(error)
    }

    fn close(&mut self, _now: Now, _footer: &[u8]) -> io::Result<()> {
        self.end_torn_line()
    }

    fn heed(&mut self, ending: &Arc<AtomicBool>) {
        self.ending = Arc::clone(ending);
    }

    fn stats(&self) -> SinkStats {
        self.stats
    }
}

/// Wait at most [`STALL`] for room, or until the flag is up.
pub(super) fn wait_writable(os: &mut impl Os, file: &File, ending: &AtomicBool) -> io::Result<bool> {
    let mut slices = STALL.as_millis() / LOOK.as_millis();
    while slices > 0 && !os.wait_writable(file, LOOK)? {
        slices = if ending.load(Ordering::Relaxed) { 0 } else { slices - 1 };
    }
    Ok(slices > 0)
}

/// Return how much to hand to a stream at once: whole lines if one fits, for the sake of other writers.
fn chunk(bytes: &[u8]) -> usize {
    let most = &bytes[..bytes.len().min(STREAM_CHUNK)];
    match whole_lines(most) {
        0 => most.len(),
        whole => whole,
    }
}

fn unavailable(source: io::Error) -> OpenError {
    OpenError::Unavailable { parameter: "sink", value: "a standard stream".into(), source }
}

// The console sink: what happens now, as text for the people at a terminal.
//
// It is an additional sink: it gets the same lines as all others, encoded and redacted, on a thread of its own. A
// terminal that is stopped (Ctrl-S) or a pipe without a reader makes it wait, and nothing else: what its buffer cannot
// hold is left out, and the line about that says how much it was. A terminal that is closed ends it for good.
//
// Text that is on its way counts as written: it is kept, and goes out before any other.

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
