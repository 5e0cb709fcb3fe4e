//! What makes a running child one that has to be replaced: it does not answer, or it has too much memory.

use super::super::failure::Failure;
use super::super::options::Options;
use super::child::Child;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const MISSES: u32 = 6;
const PATIENCE: Duration = Duration::from_secs(3);
const EVERY_S: f64 = 10.0;

pub struct Limits {
    pub port: Option<u16>,
    every: Duration,
    memory_bytes: Option<u64>,
}

impl Limits {
    /// Reads the options of the command.
    ///
    /// # Errors
    /// One is out of its range.
    pub fn read(options: &Options) -> Result<Self, Failure> {
        let every = options.number("live-every", "float range", 0.01..=86_400.0)?.unwrap_or(EVERY_S);
        Ok(Self {
            port: options.number("live-port", "integer range", 1..=u16::MAX)?,
            every: Duration::from_secs_f64(every),
            memory_bytes: options.number("memory-bytes", "integer range", 1..=1 << 63)?,
        })
    }

    /// Begins to watch a child that has just started.
    pub fn watch(&self) -> Watched<'_> {
        Watched { limits: self, due: Instant::now() + self.every, misses: 0 }
    }
}

pub struct Watched<'a> {
    limits: &'a Limits,
    due: Instant,
    misses: u32,
}

impl Watched<'_> {
    /// Why the child has to be replaced, if it has.
    pub fn broken(&mut self, child: &Child) -> Option<String> {
        if self.limits.memory_bytes.is_some_and(|most| child.memory_bytes() > most) {
            return Some("has too much memory".to_owned());
        }
        let port = self.limits.port.filter(|_| Instant::now() >= self.due)?;
        self.due = Instant::now() + self.limits.every;
        self.misses = if status(port, "/live") == Some(200) { 0 } else { self.misses + 1 };
        (self.misses >= MISSES).then(|| format!("has not answered {MISSES} times"))
    }
}

/// The status of the child's answer; None: there is none in time.
pub fn status(port: u16, path: &str) -> Option<u16> {
    let ask = || -> std::io::Result<[u8; 12]> {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).map(|()| head)
    };
    let head = ask().ok()?;
    std::str::from_utf8(&head).ok()?.get(9..)?.parse().ok()
}
