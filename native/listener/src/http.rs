//! A small HTTP/1.1 server that bounds the threads, bytes and seconds of its clients.
//!
//! Each connection serves one request. If all connections are taken, a new one ends the oldest, so a client that opens
//! many and sends nothing cannot keep probes or scrapes out.

use listen::sink::Now;
use listen::status::health::{Answer, HealthWatch, liveness, producers, readiness};
use listen::status::metrics::Metrics;
use parameters::keys::reason;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Connections that are open at one time, each with a thread.
const MOST_CONNECTIONS: usize = 32;
/// The time that a client has to send its request, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the server reads the rest of a refused request, so that the client reads the answer.
const REST_PATIENCE: Duration = Duration::from_secs(1);
/// The largest size of a request's head in bytes.
const MOST_HEAD_BYTES: usize = 16 << 10;
/// A look at many queues and a page of metrics need little stack.
const STACK_BYTES: usize = 256 << 10;
/// The pause before the next connection, if the system has no descriptor or thread for this one.
const PAUSE: Duration = Duration::from_millis(50);

/// A client's request.
pub struct Request {
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// The header `Accept`.
    pub accept: String,
}

/// The answer to a client.
pub struct Reply {
    status: u16,
    kind: String,
    content: Vec<u8>,
}

impl Reply {
    /// An answer with a content type.
    pub fn of(status: u16, kind: &str, content: &[u8]) -> Self {
        Self { status, kind: kind.to_owned(), content: content.to_owned() }
    }

    fn to_bytes(&self, with_content: bool) -> Vec<u8> {
        let mut bytes = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
             Connection: close\r\n\r\n",
            self.status,
            phrase(self.status),
            self.kind,
            self.content.len()
        )
        .into_bytes();
        if with_content {
            bytes.extend(&self.content);
        }
        bytes
    }
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

/// Answers the clients of `listener` in the background until the process ends.
///
/// # Errors
/// The system has no thread for the server.
pub fn serve(listener: TcpListener, answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> io::Result<()> {
    let answer: Arc<Answering> = Arc::new(answer);
    let connections = Arc::new(Connections::default());
    let accept = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                std::thread::sleep(PAUSE);
                continue;
            };
            let (taken, answer) = (Taken::of(&connections, stream), Arc::clone(&answer));
            let work = move || drop(talk(&taken.stream, &*answer));
            if Builder::new().name("http-client".to_owned()).stack_size(STACK_BYTES).spawn(work).is_err() {
                std::thread::sleep(PAUSE);
            }
        }
    };
    Builder::new().name("http".to_owned()).stack_size(STACK_BYTES).spawn(accept).map(drop)
}

type Answering = dyn Fn(&Request) -> Reply + Send + Sync;

/// The connections that are open.
#[derive(Default)]
struct Connections {
    open: Mutex<Open>,
    ended: Condvar,
}

#[derive(Default)]
struct Open {
    /// The connections that were not sent away, in the order of their arrival.
    streams: VecDeque<Arc<TcpStream>>,
    count: usize,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open connection, and its place among the others.
struct Taken {
    stream: Arc<TcpStream>,
    connections: Arc<Connections>,
}

impl Taken {
    /// Takes a place. If there is none, ends the oldest connection and waits for its place.
    fn of(connections: &Arc<Connections>, stream: TcpStream) -> Self {
        let stream = Arc::new(stream);
        let mut open = connections.lock();
        if open.count >= MOST_CONNECTIONS
            && let Some(oldest) = open.streams.pop_front()
        {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        while open.count >= MOST_CONNECTIONS {
            open = connections.ended.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        open.count += 1;
        open.streams.push_back(Arc::clone(&stream));
        drop(open);
        Self { stream, connections: Arc::clone(connections) }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut open = self.connections.lock();
        open.streams.retain(|other| !Arc::ptr_eq(other, &self.stream));
        open.count -= 1;
        self.connections.ended.notify_one();
    }
}

/// Reads one request and answers it.
fn talk(mut stream: &TcpStream, answer: &Answering) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let plain = |status: u16| Reply::of(status, "text/plain; charset=utf-8", phrase(status).as_bytes());
    let (reply, method) = match read_head(stream)? {
        None => return Ok(()),
        Some(head) if head.len() > MOST_HEAD_BYTES => (plain(431), String::new()),
        Some(head) => match parse(&String::from_utf8_lossy(&head)) {
            Some(request) => (answer(&request), request.method),
            None => (plain(400), String::new()),
        },
    };
    stream.write_all(&reply.to_bytes(method != "HEAD"))?;
    // Unread bytes would make the system reset the connection, perhaps before the client has the answer.
    if matches!(method.as_str(), "GET" | "HEAD") { Ok(()) } else { read_rest(stream) }
}

/// Reads up to the empty line; None: the client went away first. A head above the limit is returned unfinished.
fn read_head(mut stream: &TcpStream) -> io::Result<Option<Vec<u8>>> {
    let end = Instant::now() + PATIENCE;
    let (mut head, mut chunk) = (Vec::new(), [0; 4096]);
    while head.len() <= MOST_HEAD_BYTES {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left))?;
        let got = match stream.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if got == 0 {
            return Ok(None);
        }
        // The end mark may begin in an earlier read.
        let from = head.len().saturating_sub(3);
        head.extend(&chunk[..got]);
        let new = &head[from..];
        if new.windows(4).any(|end| end == b"\r\n\r\n") || new.windows(2).any(|end| end == b"\n\n") {
            break;
        }
    }
    Ok(Some(head))
}

fn read_rest(stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(REST_PATIENCE))?;
    io::copy(&mut stream.take(MOST_HEAD_BYTES as u64), &mut io::sink()).map(drop)
}

fn parse(head: &str) -> Option<Request> {
    let mut lines = head.lines();
    let mut words = lines.next()?.split_ascii_whitespace();
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if !version.starts_with("HTTP/1.") || words.next().is_some() {
        return None;
    }
    let headers = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':'));
    let accepted = headers.filter(|(name, _)| name.eq_ignore_ascii_case("accept")).map(|(_, value)| value.trim());
    Some(Request {
        method: method.to_owned(),
        path: target.split('?').next().unwrap_or_default().to_owned(),
        accept: accepted.collect::<Vec<_>>().join(","),
    })
}

// The endpoint of `listen`: metrics and health, for servers without such endpoints (Triton) or without HTTP.
//
// `/metrics`; `/health` (readiness), `/live` (liveness) and `/producers`. The last three answer 200 or 503.
// `/producers` answers 503 once a process that has a name, such as a model instance of Triton, has died and has not
// come back.

pub const TEXT: &str = "text/plain; charset=utf-8";
pub const JSON: &str = "application/json";

/// Serves what `watch` sees until the process ends. Returns the port, which the system chooses for 0.
///
/// # Errors
/// A sentence: the port is not available.
pub fn open(watch: HealthWatch, address: &str, port: u16) -> Result<u16, String> {
    let watch = Arc::new(watch);
    let metrics = Metrics::new(Arc::clone(&watch), None);
    serve_at(address, port, move |request| reply(request, &watch, &metrics))
}

/// Answers requests by `answer` until the process ends. Returns the port.
///
/// # Errors
/// As [`open`].
pub fn serve_at(
    address: &str,
    port: u16,
    answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
) -> Result<u16, String> {
    let refused = |error: &std::io::Error| format!("metrics_port={port}: {}", reason(error));
    let listener = TcpListener::bind((address, port)).map_err(|error| refused(&error))?;
    let port = listener.local_addr().map_err(|error| refused(&error))?.port();
    serve(listener, answer).map_err(|error| refused(&error))?;
    Ok(port)
}

fn reply(request: &Request, watch: &HealthWatch, metrics: &Metrics) -> Reply {
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        return Reply::of(405, TEXT, b"Method Not Allowed");
    }
    let probe = |answer: Answer| Reply::of(answer.status, JSON, answer.body.as_bytes());
    match request.path.as_str() {
        "/metrics" => match metrics.render(&request.accept, Now::read()) {
            Ok((text, kind)) => Reply::of(200, &kind, &text),
            Err(error) => Reply::of(500, TEXT, error.to_string().as_bytes()),
        },
        "/health" => probe(readiness(&watch.recent(Now::read()))),
        "/live" => probe(liveness(&watch.recent(Now::read()))),
        "/producers" => probe(producers(&watch.recent(Now::read()))),
        _ => Reply::of(404, TEXT, b"Not Found"),
    }
}
