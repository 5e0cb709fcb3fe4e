//! One request of the ASGI middleware: reads scope and messages, never changes, delays or refuses them.
//!
//! Every value is taken out of the message before the state is borrowed, since only that step can run foreign code (a key
//! with its own `__eq__`).

use super::asgi::{Message, content, copied, exact_bytes, first, is_true, item, text, text_of, whole_number};
use super::gil_cell::GilCell;
use super::headers::content_of_headers;
use super::held::{Held, ended};
use super::hot_path::Stopwatch;
use super::request_ids::{IdsCell, PyRequestIds};
use super::response_header::with_request_id;
use super::route::Route;
use super::shared::{MiddlewareShared, RequestFactory};
use super::timed_send;
use super::value::utf8;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use queue::system::now_monotonic_nano;
use request::observer::{Chunks, ExceptionTexts, Observer, RequestSource, RequestTexts};
use request::outcome::Ending;
use request::sampler::Sampler;
use std::sync::OnceLock;

/// One request under way.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct RequestObserver {
    pub(super) factory: Py<RequestFactory>,
    pub(super) receive: Held,
    pub(super) send: Held,
    pub(super) scope: Held<PyDict>,
    /// The path from the server; inner applications may change the scope.
    pub(super) path: Held,
    pub(super) own_ids: IdsCell,
    /// The ids as an object, once somebody has asked for it; they replace those above.
    pub(super) ids_object: OnceLock<Py<PyRequestIds>>,
    pub(super) state: GilCell<Observer>,
    /// The generation of processes in which the request began.
    pub(super) generation: u32,
    pub(super) stopwatch: Stopwatch,
}

#[pymethods]
impl RequestObserver {
    /// The ids of the request.
    #[getter(ids)]
    fn ids_for_others(&self, py: Python<'_>) -> PyResult<Py<PyRequestIds>> {
        self.ids_as_object(py)
    }

    /// Whether the answer has begun.
    #[getter]
    fn started(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.has_started())
    }

    /// Whether the whole answer has passed.
    #[getter]
    fn complete(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.is_complete())
    }

    /// The server's own `send`; None, once the garbage collector has cleared it.
    #[getter]
    fn server_send<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.send.get(py).and_then(timed_send::server_send)
    }

    /// Take note that the server did not take the last part of the answer.
    fn take_back_end(&self, py: Python<'_>) {
        self.state.with(py, Observer::take_back_end);
    }

    /// Emit the terminal record of an application that did not return; further calls do nothing.
    ///
    /// `ending` is one of `raised`, `timed_out`, `cancelled`, `disconnected`; `error_type` the exception's class name;
    /// `texts` returns type, message and stack of the exception, where they are to be recorded.
    #[pyo3(signature = (ending, error_type, texts = None))]
    fn fail(
        &self,
        py: Python<'_>,
        ending: &str,
        error_type: &Bound<'_, PyAny>,
        texts: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let now = now_monotonic_nano();
        let error_type = text(error_type.as_borrowed());
        let ending = match ending {
            "raised" => Ending::Raised(error_type),
            "timed_out" => Ending::TimedOut(error_type),
            "cancelled" => Ending::Cancelled(error_type),
            "disconnected" => Ending::Disconnected(error_type),
            other => return Err(PyValueError::new_err(format!("ending={other:?}: unknown"))),
        };
        let taken = self.take_exception(py, texts);
        self.finish_with(py, ending, now);
        taken
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.factory)?;
        self.receive.visit(&visit)?;
        self.send.visit(&visit)?;
        self.scope.visit(&visit)?;
        self.path.visit(&visit)
    }

    fn __clear__(&self, py: Python<'_>) {
        self.receive.clear(py);
        self.send.clear(py);
        self.scope.clear(py);
        self.path.clear(py);
    }
}

impl RequestObserver {
    #[inline]
    pub(super) fn shared(&self) -> &MiddlewareShared {
        &self.factory.get().shared
    }

    #[inline]
    fn ids(&self) -> &IdsCell {
        self.ids_object.get().map_or(&self.own_ids, |ids| ids.get())
    }

    fn ids_as_object(&self, py: Python<'_>) -> PyResult<Py<PyRequestIds>> {
        if self.ids_object.get().is_none() {
            let _ = self.ids_object.set(self.own_ids.object(py)?);
        }
        self.ids_object.get().map(|ids| ids.clone_ref(py)).ok_or_else(ended)
    }

    /// The scope; an empty one, once the garbage collector has cleared it.
    #[inline]
    fn scope<'py>(&self, py: Python<'py>) -> Bound<'py, PyDict> {
        self.scope.get(py).unwrap_or_else(|| PyDict::new(py))
    }

    /// Whether the request belongs to the parent: a forked child that continues it must leave the record to its parent.
    #[inline]
    fn is_inherited(&self) -> bool {
        self.generation != self.shared().requests.producer.generation()
    }

    fn take_exception(&self, py: Python<'_>, texts: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(texts) = texts.filter(|_| !self.is_inherited()) else { return Ok(()) };
        let mut exception = exception_texts(&texts.call0()?)?;
        if self.shared().opts_out(item(&self.scope(py), &self.shared().keys.headers)) {
            exception.withhold();
        }
        self.state.with(py, |state| state.raise(exception));
        Ok(())
    }

    /// The application returned at `now`.
    #[inline]
    pub(super) fn finish(&self, py: Python<'_>, now: u64) {
        if self.is_inherited() {
            return;
        }
        self.settle(py);
        let (shared, ids) = (self.shared(), self.ids());
        let (producer, settings) = (&shared.requests.producer, &shared.requests.settings);
        let may_be_plain = !ids.is_forced() && shared.engine.is_none(py);
        if may_be_plain && let Some(fields) = ids.take_fields(py) {
            self.state.with(py, |state| state.add(fields));
        }
        let plain =
            |state: &mut Observer| may_be_plain && ids.with(py, |ids| state.finish_plain(ids, now, producer, settings));
        if self.state.with(py, plain) {
            self.end_ids();
            self.stopwatch.finish(py, now, producer);
        } else {
            self.finish_with(py, Ending::Returned, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn finish_with(&self, py: Python<'_>, ending: Ending<'_>, now: u64) {
        if self.is_inherited() {
            return;
        }
        self.settle(py);
        let shared = self.shared();
        let (keys, producer, settings) = (&shared.keys, &shared.requests.producer, &shared.requests.settings);
        let scope = &self.scope(py);
        // The values are owned, since each look-up can run foreign code that empties the scope.
        let own = |key| item(scope, key).map(Borrowed::to_owned);
        let route = Route::of(scope, keys);
        let client = own(&keys.client).and_then(|client| first(&client));
        let (method, version) = (own(&keys.method), own(&keys.http_version));
        let path = self.path.get(py);
        let path = path.as_ref().and_then(|path| {
            // SAFETY: a live object, which is held here; the result is a text or None.
            unsafe { if ffi::PyUnicode_Check(path.as_ptr()) != 0 { utf8(path.as_ptr()) } else { None } }
        });
        let texts = RequestTexts {
            method: text_of(&method),
            path: path.unwrap_or("<path that cannot be encoded>").as_bytes(),
            route_prefix: route.prefix(),
            route: route.template(),
            protocol_version: text_of(&version),
            client_address: text_of(&client),
        };
        let engine = shared.engine.get(py).and_then(|engine| engine.get().read(scope, || self.ids_as_object(py)));
        let engine = engine.as_ref().map(|report| report.facts());
        let source = RequestSource::Http { texts, engine: engine.as_ref() };
        // The engine's reader may have asked for the object.
        let ids = self.ids();
        if ids.is_special() {
            self.take_wishes(py);
        }
        self.state.with(py, |state| {
            ids.with(py, |ids| state.finish(ids, ending, &source, now, producer, settings));
        });
        self.end_ids();
        self.stopwatch.finish(py, now, producer);
    }

    /// Takes over what the application wants of the record.
    #[cold]
    #[inline(never)]
    fn take_wishes(&self, py: Python<'_>) {
        let ids = self.ids();
        let (forced, fields) = (ids.is_forced(), ids.take_fields(py));
        self.state.with(py, |state| {
            if forced {
                state.force();
            }
            if let Some(fields) = fields {
                state.add(fields);
            }
        });
    }

    /// Takes note, as the answer begins, of what the application wants so far.
    #[inline(never)]
    fn announce_wishes(&self, py: Python<'_>) {
        let ids = self.ids();
        self.state.with(py, |state| {
            if ids.is_forced() {
                state.force();
            }
            ids.with_fields(py, |fields| state.announce(&fields.members));
        });
    }

    /// The record is made.
    #[inline]
    fn end_ids(&self) {
        if let Some(ids) = self.ids_object.get() {
            ids.get().end();
        }
    }

    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub(super) fn observe_sent(&self, py: Python<'_>, message: Borrowed<'_, '_, PyAny>) -> Option<Py<PyDict>> {
        let Ok(message) = message.cast::<PyDict>() else { return None };
        let (keys, mut kept) = (&self.shared().keys, [None, None]);
        let seen = Message::read(&message, keys).unwrap_or_else(|| Message::look_up(&message, keys, &mut kept));
        if seen.kind.is_some_and(|kind| kind.as_ptr() == self.shared().body_kind.as_ptr(py)) {
            self.observe_body(py, &seen);
            return None;
        }
        match seen.kind.map_or("", text) {
            "http.response.body" => {
                if let Some(kind) = seen.kind.filter(|kind| seen.more_body && kind.is_exact_instance_of::<PyString>()) {
                    self.shared().body_kind.set(py, kind.to_owned().unbind());
                }
                self.observe_body(py, &seen);
            }
            "http.response.start" => return self.observe_start(py, &seen, &message),
            kind if kind.starts_with("http.response.") => self.observe_extension(py, kind_of_extension(kind), &message),
            _ => (),
        }
        None
    }

    #[inline]
    fn observe_body(&self, py: Python<'_>, message: &Message<'_, '_>) {
        match message.body.and_then(exact_bytes) {
            Some(bytes) => self.observe_bytes(py, bytes, message.more_body),
            None => self.observe_other_body(py, message),
        }
    }

    #[cold]
    #[inline(never)]
    fn observe_other_body(&self, py: Python<'_>, message: &Message<'_, '_>) {
        let copy = message.body.and_then(copied);
        let bytes = copy.as_ref().map(Bound::as_borrowed).or(message.body).map_or(&b""[..], content);
        self.observe_bytes(py, bytes, message.more_body);
    }

    /// A part of the answer's body passes.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    fn observe_bytes(&self, py: Python<'_>, bytes: &[u8], more: bool) {
        let settings = &self.shared().requests.settings;
        let now = now_monotonic_nano();
        self.state.with(py, |state| {
            let is_chunk = state.response_body(bytes, more, now, settings);
            if is_chunk && state.chunks(settings) == Chunks::Events {
                self.emit_chunk(py, state, bytes.len());
            }
        });
    }

    #[cold]
    #[inline(never)]
    fn emit_chunk(&self, py: Python<'_>, state: &Observer, bytes: usize) {
        if !self.is_inherited() {
            let producer = &self.shared().requests.producer;
            self.ids().with(py, |ids| state.emit_chunk(ids, producer, Some(bytes)));
        }
    }

    /// Looks at the beginning of the answer; returns a message to send in its place, if there is one.
    #[inline]
    fn observe_start(&self, py: Python<'_>, seen: &Message<'_, '_>, message: &Bound<'_, PyDict>) -> Option<Py<PyDict>> {
        let (shared, ids) = (self.shared(), self.ids());
        let keys = &shared.keys;
        let status = seen.status.and_then(whole_number).and_then(|status| status.try_into().ok());
        let with_trailers = seen.trailers;
        // A tracer inside of us has begun its span by now.
        ids.look_for_span(py, false);
        self.settle(py);
        if ids.is_special() {
            self.announce_wishes(py);
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

    /// Takes over what other libraries know about the request by now.
    #[inline]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    fn settle(&self, py: Python<'_>) {
        let ids = self.ids();
        ids.take_correlation_id(py);
        if ids.take_moved(py) {
            self.decide_again(py);
        }
    }

    /// The request belongs to another trace than it seemed to at its beginning.
    #[cold]
    #[inline(never)]
    fn decide_again(&self, py: Python<'_>) {
        let (path, shared) = (self.path.get(py), self.shared());
        let path = text_of(&path).as_bytes();
        self.state.with(py, |state| shared.requests.settings.sampler.take_back(state.head(), path));
        // This is a copy, since the look at the scope can run foreign code.
        let (mut copy, scope) = (self.ids().with(py, |ids| ids.clone()), self.scope(py));
        let trusts = |sampler: &Sampler| shared.trusts(sampler, &scope);
        let (head, overrides) = shared.requests.decide(&mut copy, path, now_monotonic_nano(), trusts);
        self.state.with(py, |state| {
            state.decide(head);
            if let Some(overrides) = &overrides {
                state.apply(overrides, shared.requests.runtime);
            }
        });
    }

    #[cold]
    fn observe_extension(&self, py: Python<'_>, extension: Extension, message: &Bound<'_, PyDict>) {
        let (keys, settings, now) = (&self.shared().keys, &self.shared().requests.settings, now_monotonic_nano());
        let is_set = |key| item(message, key).is_some_and(is_true);
        match extension {
            Extension::Path => self.state.with(py, |state| state.response_file(None, false, now, settings)),
            Extension::ZeroCopy => {
                let more = is_set(&keys.more_body);
                let bytes = item(message, &keys.count).and_then(whole_number);
                self.state.with(py, |state| state.response_file(bytes, more, now, settings));
            }
            Extension::Trailers => {
                let more = is_set(&keys.more_trailers);
                self.state.with(py, |state| state.response_trailers(more, now));
            }
            Extension::Other => (),
        }
    }

    #[inline]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub(super) fn observe_received(&self, py: Python<'_>, message: Borrowed<'_, '_, PyAny>) {
        let Ok(message) = message.cast::<PyDict>() else { return };
        self.ids().look_for_span(py, true);
        let keys = &self.shared().keys;
        match item(&message, &keys.kind).map_or("", text) {
            "http.request" => {
                let body = item(&message, &keys.body);
                let copy = body.and_then(copied);
                let bytes = copy.as_ref().map(Bound::as_borrowed).or(body).map_or(&b""[..], content);
                self.state.with(py, |state| state.request_bytes(bytes));
            }
            "http.disconnect" => self.state.with(py, |state| state.disconnect()),
            _ => (),
        }
    }
}

/// Takes type, message and stack of an exception. A lone surrogate in them becomes the replacement character.
pub(super) fn exception_texts(texts: &Bound<'_, PyAny>) -> PyResult<ExceptionTexts> {
    let (kind, message, stacktrace): (Bound<'_, PyString>, Bound<'_, PyString>, Bound<'_, PyString>) =
        texts.extract()?;
    let owned = |text: &Bound<'_, PyString>| text.to_string_lossy().into_owned();
    Ok(ExceptionTexts { kind: owned(&kind), message: owned(&message), stacktrace: owned(&stacktrace) })
}

/// Messages of ASGI extensions that concern the answer.
enum Extension {
    Path,
    ZeroCopy,
    Trailers,
    Other,
}

fn kind_of_extension(kind: &str) -> Extension {
    match kind {
        "http.response.pathsend" => Extension::Path,
        "http.response.zerocopysend" => Extension::ZeroCopy,
        "http.response.trailers" => Extension::Trailers,
        _ => Extension::Other,
    }
}
