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
//! error                        what went wrong, in words
//! ```

mod error;
pub mod event;
#[cfg(feature = "tower")]
pub mod layer;
mod log;
pub mod message;
#[cfg(feature = "requests")]
mod model;
#[cfg(not(feature = "listener"))]
mod producing;
mod registered;
#[cfg(feature = "requests")]
mod request;
#[cfg(feature = "requests")]
pub mod websocket;

#[cfg(feature = "requests")]
pub use ::request::capture::Content;
pub use ::request::capture::Encoding;
pub use ::request::capture::Plain;
pub use ::request::ids::RequestIds;
#[cfg(feature = "requests")]
pub use ::request::outcome::Ending;
#[cfg(feature = "requests")]
pub use ::request::rpc::RpcStatus;
pub use error::Error;
pub use event::{Event, Value};
pub use log::{Log, Stats};
#[cfg(feature = "requests")]
pub use model::{Model, Tensor};
pub use queue::severity;
#[cfg(feature = "requests")]
pub use request::{Request, RequestStart};

/// The programs of `docs/rust.md` are compiled with the tests.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../docs/rust.md")]
mod pages {}
