//! The answer of a request while its messages pass: its beginning and the parts of its body.

use super::asgi::{BodyPart, Message, content, copied, dict, exact_bytes, item, text, whole_number};
use super::headers::content_of_headers;
use super::held::Held;
use super::middleware::RequestObserver;
use super::response_header::with_request_id;
use super::route::Route;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use queue::system::now_monotonic_nano;
use request::observer::{Chunks, Observer};

impl RequestObserver {
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub(super) fn observe_sent(&self, py: Python<'_>, message: Borrowed<'_, '_, PyAny>) -> Option<Py<PyDict>> {
        let message = dict(message)?;
        let shared = self.shared();
        if let Some(part) = BodyPart::read(&message, &shared.keys, shared.kinds.body.as_ptr(py))
            && let Some(bytes) = exact_bytes(part.body)
            && !self.is_head
        {
            let (now, settings) = (now_monotonic_nano(), &shared.requests.settings);
            if !self.state.with(py, |state| part.more_body && state.usual_part(bytes, now, settings)) {
                self.observe_bytes(py, bytes, part.more_body, now);
            }
            return None;
        }
        self.observe_message(py, &message)
    }

    /// Any message but most parts of a stream.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    fn observe_message(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> Option<Py<PyDict>> {
        let (keys, mut kept) = (&self.shared().keys, [None, None]);
        let seen = Message::read(message, keys).unwrap_or_else(|| Message::look_up(message, keys, &mut kept));
        let kinds = &self.shared().kinds;
        let kind = seen.kind.map_or(std::ptr::null_mut(), |kind| kind.as_ptr());
        if !kind.is_null() && kind == kinds.body.as_ptr(py) {
            self.observe_body(py, &seen);
            return None;
        }
        if !kind.is_null() && kind == kinds.start.as_ptr(py) {
            return self.observe_start(py, &seen, message);
        }
        self.observe_other(py, &seen, message)
    }

    /// A message of a kind that is not written as the last one of this kind was.
    #[cold]
    #[inline(never)]
    fn observe_other(&self, py: Python<'_>, seen: &Message<'_, '_>, message: &Bound<'_, PyDict>) -> Option<Py<PyDict>> {
        let kinds = &self.shared().kinds;
        let note = |of: &Held| {
            if let Some(kind) = seen.kind.filter(|kind| kind.is_exact_instance_of::<PyString>()) {
                of.set(py, kind.to_owned().unbind());
            }
        };
        match seen.kind.map_or("", text) {
            "http.response.body" => {
                note(&kinds.body);
                self.observe_body(py, seen);
            }
            "http.response.start" => {
                note(&kinds.start);
                return self.observe_start(py, seen, message);
            }
            kind if kind.starts_with("http.response.") => self.observe_extension(py, kind, message),
            _ => (),
        }
        None
    }

    #[inline]
    fn observe_body(&self, py: Python<'_>, message: &Message<'_, '_>) {
        let body = message.body.filter(|_| !self.is_head);
        let copy = body.and_then(copied);
        let bytes = copy.as_ref().map(Bound::as_borrowed).or(body).map_or(&b""[..], content);
        self.observe_bytes(py, bytes, message.more_body, now_monotonic_nano());
    }

    /// A part of the answer's body passes.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    fn observe_bytes(&self, py: Python<'_>, bytes: &[u8], more: bool, now: u64) {
        let settings = &self.shared().requests.settings;
        self.state.with(py, |state| {
            let chunks = state.any_part(bytes, more, now, settings);
            if chunks > 0 && state.chunks(settings) == Chunks::Events {
                self.emit_chunks(py, state, chunks, bytes.len());
            }
        });
    }

    #[cold]
    #[inline(never)]
    fn emit_chunks(&self, py: Python<'_>, state: &Observer, chunks: u32, bytes: usize) {
        if !self.is_inherited() {
            let producer = &self.shared().requests.producer;
            self.ids().with(py, |ids| state.emit_chunks(ids, producer, chunks, Some(bytes)));
        }
    }

    /// Looks at the beginning of the answer; returns a message to send in its place, if there is one.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    fn observe_start(&self, py: Python<'_>, seen: &Message<'_, '_>, message: &Bound<'_, PyDict>) -> Option<Py<PyDict>> {
        let (shared, ids) = (self.shared(), self.ids());
        let keys = &shared.keys;
        let status = seen.status.and_then(whole_number).and_then(|status| status.try_into().ok());
        let with_trailers = seen.trailers && self.takes_trailers(py);
        // A tracer inside of us has begun its span by now.
        ids.look_for_span(py, false);
        self.settle(py);
        if ids.is_special() {
            self.announce_application_fields(py);
        }
        let route = Route::of(&self.scope(py), keys);
        let wanted = self.state.with(py, |state| {
            if let Some(in_flight) = state.in_flight() {
                ids.with(py, |ids| in_flight.settle(ids, route.prefix(), route.template()));
            }
            state.wants_content_type(&shared.requests.settings)
        });
        let headers = if wanted { item(message, &keys.headers) } else { None };
        let content = headers.map(content_of_headers);
        self.state.with(py, |state| {
            state.response_start(status.unwrap_or(0), content, &shared.requests.settings);
            if with_trailers {
                state.expect_trailers();
            }
        });
        let name = shared.response_header.as_ref()?;
        with_request_id(message, &keys.headers, name, ids)
    }
}
