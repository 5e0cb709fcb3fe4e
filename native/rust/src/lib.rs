//! Records of a Rust program, into the same queue, segments and books as those of a Python server.
//!
//! ```text
//! layer                        a layer of tower, with the feature `tower`
//! request                      a request under way: its ids, its bodies, its answer, its record
//! model                        a request that a model serves: the model, and its tensors
//! websocket                    a WebSocket connection whose bytes pass by
//! message                      messages of an application, as Python's `get_logger` records them
//! event                        records of a registered event: typed values
//! log                          an open log: its service, its listener, and what a forked child does with it
//! producing                    in place of the crate `listen`, without the feature `listener`
//! ```

pub mod event;
#[cfg(feature = "tower")]
pub mod layer;
mod log;
pub mod message;
#[cfg(not(feature = "listener"))]
mod producing;
#[cfg(feature = "requests")]
mod request;
#[cfg(feature = "requests")]
pub mod websocket;

use std::fmt::{Display, Formatter, Result};

#[cfg(feature = "requests")]
pub use ::request::capture::Content;
pub use ::request::capture::{Encoding, Plain};
pub use ::request::ids::RequestIds;
#[cfg(feature = "requests")]
pub use ::request::outcome::{Ending, RpcStatus};
#[cfg(feature = "requests")]
pub use event::{Event, Value};
pub use log::{Log, Stats};
#[cfg(feature = "requests")]
pub use request::{Model, Request, RequestStart, Tensor};

pub mod severity {
    //! OpenTelemetry's severity numbers.

    pub use queue::event::{ERROR, INFO, WARN};
}

/// The programs of `docs/rust.md` are compiled with the tests.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../docs/rust.md")]
mod pages {}

/// What went wrong: a sentence that names the parameter and its value, one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl Display for Error {
    fn fmt(&self, to: &mut Formatter<'_>) -> Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<String> for Error {
    fn from(sentence: String) -> Self {
        Self(sentence)
    }
}

impl From<Error> for String {
    fn from(error: Error) -> Self {
        error.0
    }
}
