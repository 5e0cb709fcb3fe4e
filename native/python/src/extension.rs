//! Messages of ASGI extensions that concern the answer: files, and trailers.

use super::asgi::{is_true, item, whole_number};
use super::middleware::RequestObserver;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use queue::system::now_monotonic_nano;

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
