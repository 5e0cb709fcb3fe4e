//! The body of an answer: the server's, or that of an answer of the proxy itself.

use super::gate::Asked;
use super::upstream::{Pool, Upstream};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::fmt::{Display, Formatter, Result as Written};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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
    /// Of a server that is reached by HTTP/1.1.
    Driven(Driven),
    /// Of a server whose connection is a task of its own.
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
