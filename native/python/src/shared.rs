//! The state that all requests of a middleware share, for the code that begins them and the code that observes them.

use super::asgi::{Keys, first, item, text_of};
use super::engine::{EngineReader, ForwardIds};
use super::foreign::{ACTIVE_SPAN, CORRELATION_ID};
use super::headers::is_private;
use super::held::Held;
use super::hot_path::Turns;
use super::scope::ScopeKeys;
use listen::service::Service;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use request::capture::Content;
use request::ids::IdSource;
use request::requests::Requests;
use request::sampler::Sampler;
use std::sync::Arc;

/// Makes the observers of a middleware's requests: configuration, and a source of ids.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct RequestFactory {
    pub shared: MiddlewareShared,
}

/// The state that all requests of a middleware share.
pub struct MiddlewareShared {
    pub requests: Requests,
    pub service: Arc<Service>,
    /// The key that a scope has while its request is on record by this service.
    pub mark: Py<PyString>,
    pub ids: IdSource,
    pub keys: Keys,
    pub scope_keys: ScopeKeys,
    pub turns: Turns,
    /// `async def observed_receive(receive, observer)`.
    pub observed_receive: Held,
    /// The name of the header that carries a request id in answers.
    pub response_header: Option<Py<PyBytes>>,
    /// The name of the header with which a client forbids the capture of its texts.
    pub opt_out_header: Option<String>,
    /// Functions that look for other libraries in the process; None: they are not called.
    pub span_reader: Held,
    pub correlation_reader: Held,
    /// The engine behind the server, if one is known.
    pub engine: Held<EngineReader>,
    pub forward_ids: ForwardIds,
    pub kinds: MessageKinds,
    /// Requests to these paths begin only on demand.
    pub special_paths: Box<[String]>,
}

/// The texts with which the last answer named its messages: constants of the framework, so that most answers have the
/// same objects. Each is exactly a `str`, which is in no cycle.
pub struct MessageKinds {
    pub start: Held,
    pub body: Held,
}

impl MessageKinds {
    pub const fn new() -> Self {
        Self { start: Held::maybe(None), body: Held::maybe(None) }
    }
}

impl MiddlewareShared {
    /// Whether any part of a body with this content may be captured.
    #[inline]
    pub fn captures(&self, content: Content<'_>) -> bool {
        content.has_facts() || self.requests.settings.texts.is_on()
    }

    /// Whether the client forbids the capture of its texts, where they would be captured.
    #[inline]
    pub fn is_private(&self, scope: &Bound<'_, PyDict>) -> bool {
        let settings = &self.requests.settings;
        (settings.texts.is_on() || !settings.recorded.of_bodies().is_empty())
            && self.opts_out(item(scope, &self.keys.headers))
    }

    /// Whether the client forbids storing texts of its request.
    pub fn opts_out(&self, headers: Option<Borrowed<'_, '_, PyAny>>) -> bool {
        self.opt_out_header.as_deref().is_some_and(|header| is_private(headers, header.as_bytes()))
    }

    #[inline]
    pub fn is_special(&self, path: &str, prefix: usize) -> bool {
        let names = |path: &str| self.special_paths.iter().any(|special| special == path);
        names(path) || (prefix > 0 && path.get(prefix..).is_some_and(names))
    }

    /// Takes note in the scope that its request is on record here; returns false if it says so already, since a
    /// middleware around this one has noted it. The scope says so and not the functions, which other middlewares wrap.
    #[inline]
    pub fn note_on_record(&self, scope: &Bound<'_, PyDict>) -> bool {
        // SAFETY: live objects, the GIL is held; a failure leaves the scope as it was.
        unsafe {
            // To compare the sizes costs a quarter of a look-up.
            let before = ffi::PyDict_Size(scope.as_ptr());
            if ffi::PyDict_SetItem(scope.as_ptr(), self.mark.as_ptr(), ffi::Py_True()) != 0 {
                ffi::PyErr_Clear();
                return true;
            }
            ffi::PyDict_Size(scope.as_ptr()) != before
        }
    }

    /// Takes the note back: the request has ended.
    #[inline]
    pub fn forget_on_record(&self, scope: &Bound<'_, PyDict>) {
        // SAFETY: as above; the note may be gone.
        unsafe {
            if ffi::PyDict_DelItem(scope.as_ptr(), self.mark.as_ptr()) != 0 {
                ffi::PyErr_Clear();
            }
        }
    }

    /// Looks for newly imported libraries that know the ids of a request.
    #[cold]
    #[inline(never)]
    pub fn look_for_others(&self, py: Python<'_>) {
        for (reader, find) in [(&ACTIVE_SPAN, &self.span_reader), (&CORRELATION_ID, &self.correlation_reader)] {
            if let Some(find) = find.get(py).filter(|_| reader.is_missing()) {
                reader.find(&find);
            }
        }
    }

    /// Whether the request's caller may decide on its trace.
    pub fn trusts(&self, sampler: &Sampler, scope: &Bound<'_, PyDict>) -> bool {
        let client = item(scope, &self.keys.client).map(Borrowed::to_owned).and_then(|client| first(&client));
        sampler.trusts(text_of(&client))
    }
}
