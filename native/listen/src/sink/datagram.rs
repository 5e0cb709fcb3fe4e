//! The datagram sink: one line per datagram, over UDP or to a Unix socket, for a local aggregator.
//!
//! A datagram is sent or not, so no line is ever torn. Whether it is received is not known here, except that a closed
//! port of this machine answers, which the next write then reports. A line that is too long for a datagram is skipped
//! and counted as refused: trying again would never help.

use super::os::RealOs;
use super::stdout::wait_writable;
use super::{Now, Sink, StdoutSink, WriteError};
use queue::system;
use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Largest payload of a UDP datagram over IPv4.
const UDP_BYTES: usize = 65_507;

#[derive(Debug)]
enum DatagramTarget {
    Udp(String),
    Unix(PathBuf),
}

/// Sends each line as a datagram of its own, without its newline.
#[derive(Debug)]
pub struct DatagramSink {
    target: DatagramTarget,
    socket: Option<File>,
    refused: u64,
    ending: Arc<AtomicBool>,
}

impl DatagramSink {
    /// Return a sink for `host:port`; the name is looked up when the first line is sent, and after errors.
    pub fn udp(address: String) -> Self {
        Self { target: DatagramTarget::Udp(address), socket: None, refused: 0, ending: Arc::default() }
    }

    /// Return a sink for a Unix datagram socket.
    pub fn unix(path: PathBuf) -> Self {
        Self { target: DatagramTarget::Unix(path), socket: None, refused: 0, ending: Arc::default() }
    }

    fn connect(&self) -> io::Result<File> {
        match &self.target {
            DatagramTarget::Udp(address) => {
                let addresses = std::net::ToSocketAddrs::to_socket_addrs(address)?;
                let first = addresses.into_iter().next().ok_or(io::ErrorKind::NotFound)?;
                let any = if first.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(any)?;
                socket.connect(first)?;
                socket.set_nonblocking(true)?;
                Ok(File::from(OwnedFd::from(socket)))
            }
            DatagramTarget::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_nonblocking(true)?;
                Ok(File::from(OwnedFd::from(socket)))
            }
        }
    }

    /// Send one line; false: no datagram can hold it.
    fn send(&mut self, line: &[u8]) -> io::Result<bool> {
        if matches!(self.target, DatagramTarget::Udp(_)) && line.len() > UDP_BYTES {
            return Ok(false);
        }
        loop {
            let socket = match self.socket.take() {
                Some(socket) => socket,
                None => self.connect()?,
            };
            let result = system::send(&socket, line);
            match result {
                Ok(()) => {
                    self.socket = Some(socket);
                    return Ok(true);
                }
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                    self.socket = Some(socket);
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.socket = Some(socket),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let writable = wait_writable(&mut RealOs, &socket, &self.ending);
                    self.socket = Some(socket);
                    if !writable? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                // The socket is dropped: the next try connects again.
                Err(error) => return Err(error),
            }
        }
    }
}

impl Sink for DatagramSink {
    fn name(&self) -> &'static str {
        match self.target {
            DatagramTarget::Udp(_) => "udp",
            DatagramTarget::Unix(_) => "unix",
        }
    }

    fn write(&mut self, lines: &[u8], _records: u64, _now: Now) -> Result<(), WriteError> {
        let mut sent = 0;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            match self.send(text) {
                Ok(whole) => self.refused += u64::from(!whole),
                Err(error) => return Err(WriteError::after(&lines[..sent], error)),
            }
            sent += line.len();
        }
        Ok(())
    }

    fn close(&mut self, _now: Now, _footer: &[u8]) -> io::Result<()> {
        self.socket = None;
        Ok(())
    }

    fn heed(&mut self, ending: &Arc<AtomicBool>) {
        self.ending = Arc::clone(ending);
    }

    fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }
}

// The Unix socket sink: a stream of lines to a local aggregator, or datagrams if the socket takes those.
//
// It connects when there is something to write, and again after the other end has gone. Each connection begins with a
// whole line: a line that was cut off by the end of a connection is sent again from its beginning. What the other end
// had not read when it closed is lost with it; the kernel reports it to no one.

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
