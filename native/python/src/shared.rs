//! The state that all requests of a middleware share, for the code that begins them and the code that observes them.

use super::asgi::{Keys, first, item, text_of};
use super::engine::{EngineReader, ForwardIds};
use super::foreign::{ACTIVE_SPAN, CORRELATION_ID};
use super::headers::is_private;
use super::held::Held;
use super::hot_path::Turns;
use listen::service::Service;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
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
    pub ids: IdSource,
    pub keys: Keys,
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
    /// The text with which the last stream called its chunks: a constant of the framework, so that most chunks have the
    /// same object. It is exactly a `str`, which is in no cycle.
    pub body_kind: Held,
    /// Requests to these paths begin only on demand.
    pub special_paths: Box<[String]>,
}

impl MiddlewareShared {
    /// Whether any part of a body with this content may be captured.
    #[inline]
    pub fn captures(&self, content: Content<'_>) -> bool {
        content == Content::Json || self.requests.settings.texts.is_on()
    }

    /// Whether the client forbids the capture of its texts, where they would be captured.
    #[inline]
    pub fn is_private(&self, headers: Option<Borrowed<'_, '_, PyAny>>) -> bool {
        let settings = &self.requests.settings;
        (settings.texts.is_on() || !settings.recorded.of_bodies().is_empty()) && self.opts_out(headers)
    }

    /// Whether the client forbids storing texts of its request.
    pub fn opts_out(&self, headers: Option<Borrowed<'_, '_, PyAny>>) -> bool {
        self.opt_out_header.as_deref().is_some_and(|header| is_private(headers, header.as_bytes()))
    }

    #[inline]
    pub fn is_special(&self, path: &str) -> bool {
        self.special_paths.iter().any(|special| special == path)
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
