//! The body of an answer: the server's, or that of an answer of the proxy itself.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::fmt::{Display, Formatter, Result as Written};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

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
    Server(Incoming),
    Own(Option<Bytes>),
}

impl Body for Passed {
    type Data = Bytes;
    type Error = ServerLost;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ServerLost>>> {
        match self.get_mut() {
            Self::Server(body) => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                Poll::Ready(frame.map(|frame| frame.map_err(ServerLost)))
            }
            Self::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Server(body) => body.is_end_stream(),
            Self::Own(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Server(body) => body.size_hint(),
            Self::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}
