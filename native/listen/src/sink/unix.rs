//! The Unix socket sink: a stream of lines to a local aggregator, or datagrams if the socket takes those.
//!
//! It connects when there is something to write, and again after the other end has gone. Each connection begins with a
//! whole line: a line that was cut off by the end of a connection is sent again from its beginning. What the other end
//! had not read when it closed is lost with it; the kernel reports it to no one.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::datagram::DatagramSink;
use super::os::RealOs;
use super::{Now, Sink, StdoutSink, WriteError};

/// Writes to the socket at a path.
pub struct UnixSink {
    path: PathBuf,
    inner: Option<Box<dyn Sink>>,
    ending: Arc<AtomicBool>,
}

impl UnixSink {
    /// Return a sink that is not connected yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, inner: None, ending: Arc::default() }
    }

    fn connect(&self) -> io::Result<Box<dyn Sink>> {
        match UnixStream::connect(&self.path) {
            Ok(stream) => {
                stream.set_nonblocking(true)?;
                let file = File::from(OwnedFd::from(stream));
                Ok(Box::new(StdoutSink::open_with(file, RealOs).map_err(io::Error::other)?))
            }
            Err(error) if error.raw_os_error() == Some(libc::EPROTOTYPE) => {
                Ok(Box::new(DatagramSink::unix(self.path.clone())))
            }
            Err(error) => Err(error),
        }
    }
}

impl Sink for UnixSink {
    fn name(&self) -> &'static str {
        "unix"
    }

    fn write(&mut self, lines: &[u8], records: u64, now: Now) -> Result<(), WriteError> {
        let mut inner = match self.inner.take() {
            Some(inner) => inner,
            None => self.connect().map_err(WriteError::nothing_written)?,
        };
        inner.heed(&self.ending);
        let result = inner.write(lines, records, now);
        // A reader that is only slow has the beginning of a line: it gets the rest of it later.
        let keeps = match &result {
            Ok(()) => true,
            Err(error) => matches!(error.source.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock),
        };
        self.inner = Some(inner).filter(|_| keeps);
        result
    }

    fn close(&mut self, now: Now, footer: &[u8]) -> io::Result<()> {
        self.inner.take().map_or(Ok(()), |mut inner| inner.close(now, footer))
    }

    fn heed(&mut self, ending: &Arc<AtomicBool>) {
        self.ending = Arc::clone(ending);
    }

    fn take_refused(&mut self) -> u64 {
        self.inner.as_mut().map_or(0, |inner| inner.take_refused())
    }
}
