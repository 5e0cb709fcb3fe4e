//! The answer to a request: the future that makes it, and its body while the server sends it.

use super::head::{CurrentRequest, content_of_answer};
use super::{Messages, Shared};
use crate::request::Request;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use request::outcome::{Ending, RpcStatus};
use std::any::type_name;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// A request that is not over. When it is dropped, it ends.
struct Open(CurrentRequest);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// What is done with an answer when its headers are there.
struct Expected {
    /// None: the request is not observed.
    open: Option<Open>,
    /// The answer belongs to the server's own health route.
    wraps: Option<Arc<Shared>>,
    /// The header with a request id.
    id: Option<(HeaderName, HeaderValue)>,
    is_call: bool,
    /// The request's method allows a body of the answer.
    has_body: bool,
}

pin_project! {
    /// The future of an answer.
    pub struct Answering<F> {
        #[pin]
        future: Option<F>,
        given: Option<Response<Bytes>>,
        expected: Option<Expected>,
    }
}

impl<F> Answering<F> {
    /// An answer that is there already.
    pub(super) const fn given(answer: Response<Bytes>) -> Self {
        Self { future: None, given: Some(answer), expected: None }
    }

    pub(super) fn unobserved(future: F, wraps: Option<Arc<Shared>>) -> Self {
        let expected = Expected { open: None, wraps, id: None, is_call: false, has_body: true };
        Self { future: Some(future), given: None, expected: Some(expected) }
    }

    pub(super) fn observed(
        future: F,
        current: CurrentRequest,
        wraps: Option<Arc<Shared>>,
        id: Option<(HeaderName, HeaderValue)>,
        is_call: bool,
        has_body: bool,
    ) -> Self {
        let expected = Expected { open: Some(Open(current)), wraps, id, is_call, has_body };
        Self { future: Some(future), given: None, expected: Some(expected) }
    }
}

impl<F, R, E> Future for Answering<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body<Data = Bytes>,
{
    type Output = Result<Response<AnswerBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(future) = this.future.as_pin_mut() else {
            let given = this.given.take().expect("polled after its end");
            return Poll::Ready(Ok(given.map(AnswerBody::given)));
        };
        let answer = ready!(future.poll(context));
        let expected = this.expected.take().expect("polled after its end");
        Poll::Ready(match answer {
            Ok(answer) => Ok(expected.meet(answer)),
            Err(error) => {
                if let Some(open) = &expected.open {
                    open.0.end(Ending::Raised(type_name::<E>()));
                }
                Err(error)
            }
        })
    }
}

impl Expected {
    fn meet<R: Body<Data = Bytes>>(self, mut answer: Response<R>) -> Response<AnswerBody<R>> {
        if let Some(shared) = self.wraps {
            shared.probes.wrap(&mut answer);
        }
        if let Some((name, id)) = self.id
            && !answer.headers().contains_key(&name)
        {
            answer.headers_mut().insert(name, id);
        }
        let Some(open) = self.open else { return answer.map(AnswerBody::unobserved) };
        let (status, headers) = (answer.status(), answer.headers());
        open.0.with(|request| request.answer(status.as_u16(), || content_of_answer(headers)));
        if self.is_call {
            take_status(&open, headers);
        }
        let is_bare = !self.has_body
            || status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || answer.body().is_end_stream();
        if is_bare {
            open.0.with(|request| request.chunk(b"", false));
            open.0.end(Ending::Returned);
            return answer.map(AnswerBody::unobserved);
        }
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        answer.map(|inner| AnswerBody {
            inner: Some(inner),
            given: None,
            open: Some(open),
            length,
            messages: self.is_call.then(Messages::default),
        })
    }
}

/// Reads the status of a call over gRPC: from trailers, or from headers if the answer has nothing else.
fn take_status(open: &Open, headers: &HeaderMap) {
    if let Some(value) = headers.get(GRPC_STATUS) {
        open.0.with(|request| request.call(RpcStatus::from_trailer(value.as_bytes())));
    }
}

pin_project! {
    /// The body of an answer while the server sends it. It passes unchanged.
    pub struct AnswerBody<R> {
        #[pin]
        inner: Option<R>,
        given: Option<Bytes>,
        open: Option<Open>,
        // Bytes that are left, where the answer says how many it has: then a server need not ask for an end.
        length: Option<u64>,
        // Of a call over gRPC.
        messages: Option<Messages>,
    }
}

impl<R> AnswerBody<R> {
    fn given(bytes: Bytes) -> Self {
        Self {
            inner: None,
            given: Some(bytes).filter(|bytes| !bytes.is_empty()),
            open: None,
            length: None,
            messages: None,
        }
    }

    const fn unobserved(inner: R) -> Self {
        Self { inner: Some(inner), given: None, open: None, length: None, messages: None }
    }
}

impl<R: Body<Data = Bytes>> Body for AnswerBody<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, R::Error>>> {
        let mut this = self.project();
        let Some(mut inner) = this.inner.as_mut().as_pin_mut() else {
            return Poll::Ready(this.given.take().map(|bytes| Ok(Frame::data(bytes))));
        };
        let frame = ready!(inner.as_mut().poll_frame(context));
        let Some(open) = this.open.as_ref() else { return Poll::Ready(frame) };
        let mut has_ended = inner.is_end_stream();
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    if let Some(length) = this.length {
                        *length = length.saturating_sub(data.len() as u64);
                    }
                    let more = !has_ended && *this.length != Some(0);
                    match this.messages.as_mut() {
                        None => open.0.with(|request| request.chunk(data, more)),
                        Some(messages) => open.0.with(|request| {
                            messages.split(data, |part, is_end| match is_end {
                                true => request.chunk(part, true),
                                false => request.part(part, true),
                            });
                        }),
                    };
                } else if let Some(trailers) = frame.trailers_ref() {
                    if this.messages.is_some() {
                        take_status(open, trailers);
                    }
                    has_ended = true;
                }
            }
            Some(Err(_)) => open.0.end(Ending::Raised(type_name::<R::Error>())),
            None => has_ended = true,
        }
        if has_ended {
            open.0.with(|request| request.chunk(b"", false));
            open.0.end(Ending::Returned);
            *this.open = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Some(inner) => inner.is_end_stream(),
            None => self.given.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Some(inner) => inner.size_hint(),
            None => SizeHint::with_exact(self.given.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}

// The body of a request while the service reads it.

pin_project! {
    /// The body of a request while the service reads it. It passes unchanged.
    pub struct RequestBody<B> {
        #[pin]
        inner: B,
        current: Option<CurrentRequest>,
    }
}

impl<B> RequestBody<B> {
    pub(super) const fn observed(inner: B, current: CurrentRequest) -> Self {
        Self { inner, current: Some(current) }
    }

    pub(super) const fn unobserved(inner: B) -> Self {
        Self { inner, current: None }
    }
}

impl<B: Default> Default for RequestBody<B> {
    fn default() -> Self {
        Self::unobserved(B::default())
    }
}

impl<B: Body<Data = Bytes>> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.inner.poll_frame(context));
        if let Some(current) = this.current {
            match &frame {
                Some(Ok(frame)) => frame.data_ref().and_then(|data| current.with(|request| request.body(data))),
                Some(Err(_)) => current.with(Request::disconnect),
                None => None,
            };
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
