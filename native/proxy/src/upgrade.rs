//! Connections that change their protocol: a WebSocket is counted, any other passes as bytes.

use super::gate::Asked;
use crate::upstream::{Pool, Upstream};
use bytes::Bytes;
use http::header::{CONNECTION, HeaderMap, HeaderName, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::upgrade::{self, OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use inferlog::layer::CurrentRequest;
use inferlog::websocket::{Connection, Side};
use std::fmt::{Display, Formatter, Result as Written};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

const BUFFER_BYTES: usize = 16 * 1024;

/// Whether a request is the handshake of a WebSocket (RFC 6455, section 4.1). Any other asks for no other protocol here.
pub fn is_handshake<B>(request: &Request<B>) -> bool {
    const KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
    let headers = request.headers();
    request.version() == Version::HTTP_11
        && request.method() == Method::GET
        && headers.contains_key(KEY)
        && lists(headers, &UPGRADE, "websocket")
        && lists(headers, &CONNECTION, "upgrade")
}

/// Whether a header that is a list has a name, in letters of either case.
fn lists(headers: &HeaderMap, header: &HeaderName, name: &str) -> bool {
    let values = headers.get_all(header).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(name))
}

/// A client that has asked for a WebSocket.
pub struct Asking {
    client: OnUpgrade,
    current: Option<CurrentRequest>,
    /// The bytes that pass count as the client's connection.
    asked: Option<Asked>,
}

impl Asking {
    /// Takes what belongs to the client from a handshake that is about to be passed on.
    pub fn of<B>(request: &mut Request<B>) -> Self {
        let client = upgrade::on(&mut *request);
        let extensions = request.extensions_mut();
        Self { client, current: extensions.remove(), asked: extensions.remove() }
    }

    /// The server has answered. If it agrees, bytes pass both ways from then on, and the request is a connection; if it
    /// does not, the request is one like others.
    pub fn answered(self, mut answer: Response<Incoming>) -> Response<Passed> {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let subprotocol = answer.headers().get(SEC_WEBSOCKET_PROTOCOL).and_then(|name| name.to_str().ok());
            let connection = self.current.and_then(|current| current.into_connection(subprotocol.unwrap_or_default()));
            let (client, server) = (self.client, upgrade::on(&mut answer));
            let asked = self.asked;
            tokio::spawn(async move {
                if let (Ok(client), Ok(server)) = (client.await, server.await) {
                    pass_bytes(client, server, connection).await;
                }
                drop(asked);
            });
        }
        answer.map(Passed::Server)
    }
}

/// Passes bytes both ways until both sides have ended.
async fn pass_bytes(client: Upgraded, server: Upgraded, connection: Option<Connection>) {
    let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
    let (from_server, to_server) = tokio::io::split(TokioIo::new(server));
    let connection = Mutex::new(connection);
    tokio::join!(
        copy(from_client, to_server, Side::Client, &connection),
        copy(from_server, to_client, Side::Server, &connection),
    );
}

type Half = TokioIo<Upgraded>;

async fn copy(mut from: ReadHalf<Half>, mut to: WriteHalf<Half>, side: Side, connection: &Mutex<Option<Connection>>) {
    let with = |observe: &dyn Fn(&mut Connection)| {
        connection.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(observe);
    };
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let bytes = match from.read(&mut buffer).await {
            Ok(count @ 1..) => &buffer[..count],
            _ => break with(&|connection| connection.end(side)),
        };
        with(&|connection| connection.pass(side, bytes));
        if to.write_all(bytes).await.is_err() {
            let other = if side == Side::Client { Side::Server } else { Side::Client };
            break with(&|connection| connection.end(other));
        }
    }
    let _ = to.shutdown().await;
}

// The body of an answer: the server's, or that of an answer of the proxy itself.

/// The connection to the server was lost in the middle of an answer.
#[derive(Debug)]
pub struct ServerLost(hyper::Error);

impl Display for ServerLost {
    fn fmt(&self, to: &mut Formatter<'_>) -> Written {
        write!(to, "the server's answer broke off: {}", self.0)
    }
}

impl std::error::Error for ServerLost {}

/// The body of an answer.
pub enum Passed {
    /// The server is reached by HTTP/1.1.
    Driven(Driven),
    /// The connection to the server is a task of its own.
    Server(Incoming),
    Own(Option<Bytes>),
}

/// A body together with the connection that it comes from, which runs while the body is read. So a client's connection
/// and the server's need not wake each other for each chunk, and the chunks of one packet go on in one.
pub struct Driven {
    body: Incoming,
    /// None: it has gone back to the pool.
    upstream: Option<Upstream>,
    pool: Arc<Pool>,
}

impl Driven {
    pub const fn new(body: Incoming, upstream: Upstream, pool: Arc<Pool>) -> Self {
        Self { body, upstream: Some(upstream), pool }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut next = Pin::new(&mut self.body).poll_frame(context);
        if next.is_pending()
            && let Some(upstream) = &mut self.upstream
        {
            upstream.run(context);
            next = Pin::new(&mut self.body).poll_frame(context);
        }
        if matches!(next, Poll::Ready(None)) {
            self.give_back();
        }
        next
    }

    /// The body has ended: its connection can serve another request.
    fn give_back(&mut self) {
        if let Some(upstream) = self.upstream.take() {
            self.pool.put(upstream);
        }
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        // A server of a body that has its length is not asked for the end. A connection in the middle of one is closed, so
        // that the server notices that nobody reads.
        if self.body.is_end_stream() {
            self.give_back();
        }
    }
}

impl Body for Passed {
    type Data = Bytes;
    type Error = ServerLost;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ServerLost>>> {
        let lost = |next: Option<Result<_, _>>| next.map(|frame| frame.map_err(ServerLost));
        match self.get_mut() {
            Self::Driven(driven) => driven.poll_next(context).map(lost),
            Self::Server(body) => Pin::new(body).poll_frame(context).map(lost),
            Self::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Driven(Driven { body, .. }) | Self::Server(body) => body.is_end_stream(),
            Self::Own(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Driven(Driven { body, .. }) | Self::Server(body) => body.size_hint(),
            Self::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}

/// The body of an answer, and the request that it belongs to until it has ended.
pub struct Answered {
    pub body: Passed,
    pub _asked: Option<Asked>,
}

impl Body for Answered {
    type Data = Bytes;
    type Error = ServerLost;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ServerLost>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
