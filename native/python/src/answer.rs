//! The answer of a request while its messages pass: its beginning and the parts of its body.

use super::asgi::{BodyPart, Message, content, copied, dict, exact_bytes, is_true, item, text, whole_number};
use super::foreign::with_correlation_id;
use super::headers::{Lengths, content_of_headers, for_each_header};
use super::held::Held;
use super::middleware::RequestObserver;
use super::request_ids::IdsCell;
use super::scope::Route;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PySequence, PyString, PyTuple};
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

/// What a message of an extension does.
enum Extension {
    Path,
    ZeroCopy,
    Trailers,
    Other,
}

impl Extension {
    fn of(kind: &str) -> Self {
        match kind {
            "http.response.pathsend" => Self::Path,
            "http.response.zerocopysend" => Self::ZeroCopy,
            "http.response.trailers" => Self::Trailers,
            _ => Self::Other,
        }
    }
}

impl RequestObserver {
    /// The application sends a message of an extension.
    #[cold]
    pub(super) fn observe_extension(&self, py: Python<'_>, kind: &str, message: &Bound<'_, PyDict>) {
        let (keys, settings, now) = (&self.shared().keys, &self.shared().requests.settings, now_monotonic_nano());
        let is_set = |key| item(message, key).is_some_and(is_true);
        match Extension::of(kind) {
            Extension::Path => {
                let bytes = self.is_head.then_some(0);
                self.state.with(py, |state| state.response_file(bytes, false, now, settings));
            }
            Extension::ZeroCopy => {
                let more = is_set(&keys.more_body);
                let bytes = item(message, &keys.count).and_then(whole_number);
                let bytes = if self.is_head { Some(0) } else { bytes };
                self.state.with(py, |state| state.response_file(bytes, more, now, settings));
            }
            Extension::Trailers => {
                let more = is_set(&keys.more_trailers);
                self.state.with(py, |state| state.response_trailers(more, now));
            }
            Extension::Other => (),
        }
    }

    /// Whether the server sends trailers: for another one the answer is whole without them.
    #[cold]
    pub(super) fn takes_trailers(&self, py: Python<'_>) -> bool {
        let (scope, keys) = (self.scope(py), &self.shared().keys);
        let extensions = item(&scope, &keys.extensions).map(Borrowed::to_owned);
        let extensions = extensions.as_ref().and_then(|extensions| extensions.cast::<PyDict>().ok());
        extensions.is_some_and(|extensions| item(extensions, &keys.trailers_extension).is_some())
    }
}

/// Returns a copy of an `http.response.start` with the request id in the header `name`: the client's, or ours if it
/// sent none. The application's message stays as it is.
///
/// None, if the application (or asgi-correlation-id, around us or inside) sends such a header itself, or if the headers
/// cannot be copied without changing them.
#[cold]
#[inline(never)]
pub fn with_request_id(
    message: &Bound<'_, PyDict>,
    headers_key: &Py<PyString>,
    name: &Py<PyBytes>,
    ids: &IdsCell,
) -> Option<Py<PyDict>> {
    let py = message.py();
    let headers = item(message, headers_key).map(Borrowed::to_owned);
    let headers = headers.as_ref().map(Bound::as_borrowed);
    let is_sequence =
        |headers: &Bound<'_, PyAny>| headers.is_instance_of::<PyList>() || headers.is_instance_of::<PyTuple>();
    if headers.as_ref().is_some_and(|headers| !is_sequence(headers)) || is_sent_anyway(py, headers, name) {
        return None;
    }
    let id = ids.with(py, |ids| ids.client().map_or_else(|| ids.request_id().to_vec(), <[u8]>::to_vec));
    let added = PyTuple::new(py, [name.bind(py).clone(), PyBytes::new(py, &id)]).ok()?;
    let list = headers
        .map_or_else(|| PyResult::Ok(PyList::empty(py)), |headers| headers.cast::<PySequence>()?.to_list())
        .ok()?;
    list.append(added).ok()?;
    let copy = message.copy().ok()?;
    copy.set_item(headers_key, list).ok()?;
    Some(copy.unbind())
}

fn is_sent_anyway(py: Python<'_>, headers: Option<Borrowed<'_, '_, PyAny>>, name: &Py<PyBytes>) -> bool {
    let name = name.bind(py).as_bytes();
    let mut is_there = false;
    for_each_header(headers, Lengths::ALL, |known| {
        is_there |= known.name.eq_ignore_ascii_case(name) && known.value().is_some();
    });
    // An asgi-correlation-id inside of us has put its header there; one around us will do so.
    let mut by_others = false;
    with_correlation_id(py, |id| {
        by_others = true;
        for_each_header(headers, Lengths::ALL, |other| by_others &= other.value().is_none_or(|value| value != id));
    });
    is_there || by_others
}
