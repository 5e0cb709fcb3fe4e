//! Connections to the server by HTTP/1.1, which run in the task of the request that uses them.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use inferlog::layer::RequestBody;
use std::fmt::{Display, Formatter, Result as Written};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
const BUFFER_BYTES: usize = 64 * 1024;
const MOST_IDLE: usize = 1024;
const IDLE_TIME: Duration = Duration::from_secs(60);
/// How often idle connections are checked.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The body of a request: none, or one that is observed or not.
pub type Sent = Either<Empty<Bytes>, Either<RequestBody<Incoming>, Incoming>>;

/// A connection.
pub struct Upstream {
    sender: SendRequest<Sent>,
    connection: Pin<Box<Connection<TokioIo<TcpStream>, Sent>>>,
    has_ended: bool,
    idle_since: Instant,
}

/// Why a request has no answer.
pub enum Unanswered {
    /// The server cannot be reached.
    Unreachable(io::Error),
    /// It has closed the connection before the whole head of an answer, or sent something else.
    Broken(hyper::Error),
}

impl Unanswered {
    /// The reason, in the words of the system.
    pub fn reason(&self) -> String {
        match self {
            Self::Unreachable(error) => reason(error),
            Self::Broken(error) => reason(error),
        }
    }
}

/// An error with what has caused it.
pub fn reason(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl Upstream {
    async fn connect(to: &Address) -> Result<Self, Unanswered> {
        let stream = stream(to).await.map_err(Unanswered::Unreachable)?;
        let (sender, connection) = builder().handshake(TokioIo::new(stream)).await.map_err(Unanswered::Broken)?;
        Ok(Self { sender, connection: Box::pin(connection), has_ended: false, idle_since: Instant::now() })
    }

    /// Runs the connection as far as it goes. What goes wrong, the body or the answer reports.
    pub fn run(&mut self, context: &mut Context<'_>) {
        if !self.has_ended {
            self.has_ended = self.connection.as_mut().poll(context).is_ready();
        }
    }

    /// Whether it can take a request.
    fn is_ready(&mut self) -> bool {
        self.run(&mut Context::from_waker(Waker::noop()));
        !self.has_ended && self.sender.is_ready()
    }

    /// Sends a request. A request that the connection has not begun to send comes back with the error.
    async fn send(
        &mut self,
        request: Request<Sent>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<Sent>>)> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let (connection, has_ended) = (&mut self.connection, &mut self.has_ended);
        poll_fn(|context| {
            if !*has_ended {
                *has_ended = connection.as_mut().poll(context).is_ready();
            }
            answer.as_mut().poll(context)
        })
        .await
        .map_err(|mut error| {
            let request = error.take_message();
            (error.into_error(), request)
        })
    }
}

/// Opens a connection for a protocol that replaces HTTP; it runs as a task of its own.
///
/// # Errors
/// As [`Pool::send`].
pub async fn shake_hands(to: &Address, request: Request<Sent>) -> Result<Response<Incoming>, Unanswered> {
    let stream = stream(to).await.map_err(Unanswered::Unreachable)?;
    let (mut sender, connection) = builder().handshake(TokioIo::new(stream)).await.map_err(Unanswered::Broken)?;
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request).await.map_err(Unanswered::Broken)
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.max_buf_size(BUFFER_BYTES).preserve_header_case(true).writev(false);
    builder
}

async fn stream(to: &Address) -> io::Result<TcpStream> {
    let connected = tokio::time::timeout(CONNECT_DEADLINE, TcpStream::connect((to.host(), to.port()))).await;
    let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A copy of a request without a body whose method is idempotent.
fn repeatable(request: &Request<Sent>) -> Option<Request<Sent>> {
    let Either::Left(empty) = request.body() else { return None };
    if !request.method().is_idempotent() {
        return None;
    }
    let mut copy = Request::new(Either::Left(*empty));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// The connections of one worker.
pub struct Pool {
    to: Address,
    /// Those that no request uses, the longest idle first.
    idle: Mutex<Vec<Upstream>>,
}

impl Pool {
    pub const fn new(to: Address) -> Self {
        Self { to, idle: Mutex::new(Vec::new()) }
    }

    /// Sends a request. If the server closes a connection that was idle, the request goes over another: one that was not
    /// sent, and one that may be sent twice (RFC 9110, section 9.2.2). Returns the answer, and the connection that its body
    /// comes from.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn send(&self, mut request: Request<Sent>) -> Result<(Response<Incoming>, Upstream), Unanswered> {
        loop {
            let (mut upstream, is_fresh) = match self.take() {
                Some(upstream) => (upstream, false),
                None => (Upstream::connect(&self.to).await?, true),
            };
            let again = if is_fresh { None } else { repeatable(&request) };
            match upstream.send(request).await {
                Ok(answer) => return Ok((answer, upstream)),
                Err((_, Some(unsent))) if !is_fresh => request = unsent,
                Err((error, _)) => match again.filter(|_| !error.is_parse()) {
                    Some(again) => request = again,
                    None => return Err(Unanswered::Broken(error)),
                },
            }
        }
    }

    fn take(&self) -> Option<Upstream> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(mut upstream) = idle.pop() {
            if upstream.is_ready() {
                return Some(upstream);
            }
        }
        None
    }

    /// Takes back a connection whose answer has ended.
    pub fn put(&self, mut upstream: Upstream) {
        if upstream.is_ready() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MOST_IDLE {
                upstream.idle_since = Instant::now();
                idle.push(upstream);
            }
        }
    }

    /// Closes connections that the server has closed, or that were idle for long.
    pub fn check(&self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain_mut(|upstream| upstream.idle_since.elapsed() < IDLE_TIME && upstream.is_ready());
    }
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// Reads `host:port`, `[address]:port` or one of them after `http://`.
    ///
    /// # Errors
    /// A sentence with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not host:port or http://host:port.");
        if text.starts_with("https://") {
            return Err(format!("'{text}' needs TLS, which this proxy does not speak."));
        }
        let authority = text.strip_prefix("http://").unwrap_or(text);
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '@', ' ', '[', ']']);
        if !is_host(bare.unwrap_or(host)) || (bare.is_none() && host.contains(':')) {
            return Err(wrong());
        }
        let port = port.parse().map_err(|_| wrong())?;
        Ok(Self { host: bare.unwrap_or(host).to_owned(), port })
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Display for Address {
    fn fmt(&self, to: &mut Formatter<'_>) -> Written {
        if self.host.contains(':') {
            return write!(to, "[{}]:{}", self.host, self.port);
        }
        write!(to, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for (text, shown) in [
            ("127.0.0.1:8000", "127.0.0.1:8000"),
            ("http://engine:80/", "engine:80"),
            ("[::1]:9", "[::1]:9"),
            ("http://[::1]:9", "[::1]:9"),
        ] {
            assert_eq!(Address::parse(text).map(|address| address.to_string()).as_deref(), Ok(shown));
        }
        for wrong in
            ["8000", ":8000", "host", "host:", "host:99999", "::1:9", "https://host:1", "http://a/b:1", "a b:1"]
        {
            let sentence = Address::parse(wrong).expect_err(wrong);
            assert!(sentence.contains(&format!("'{wrong}'")), "{sentence}");
        }
    }
}
