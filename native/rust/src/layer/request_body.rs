//! The body of a request while the service reads it.

use super::current::CurrentRequest;
use crate::request::Request;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

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
