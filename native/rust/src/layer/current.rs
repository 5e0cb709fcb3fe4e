//! A request under way, shared by its body, its answer and the application.

use crate::event::{Event, Value};
use crate::request::Request;
use crate::websocket::Connection;
use request::ids::RequestIds;
use request::outcome::Ending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The request that a handler serves, among the extensions of its `http::Request`. Its records carry the request's ids.
#[derive(Clone)]
pub struct CurrentRequest {
    /// None: it has ended.
    request: Arc<Mutex<Option<Request>>>,
    ids: Arc<RequestIds>,
    /// The server ends; see [`RequestLayer::stop`](super::RequestLayer::stop).
    stops: Arc<AtomicBool>,
}

impl CurrentRequest {
    pub(super) fn new(request: Request, stops: Arc<AtomicBool>) -> Self {
        let ids = Arc::new(request.ids().clone());
        Self { request: Arc::new(Mutex::new(Some(request))), ids, stops }
    }

    /// Its ids.
    #[must_use]
    pub fn ids(&self) -> &RequestIds {
        &self.ids
    }

    /// As [`Log::emit`](crate::Log::emit), with the ids of the request where the event is registered with `in_request`.
    /// Returns false after the end of the request.
    pub fn emit(&self, event: Event, severity: u8, values: &[Value<'_>]) -> bool {
        self.with(|request| request.emit(event, severity, values)).unwrap_or(false)
    }

    /// As [`Log::message`](crate::Log::message), with the ids of the request. Returns false after the end of the request.
    pub fn message(&self, severity: u8, logger: &str, message: &str, attributes: &[(&str, Value<'_>)]) -> bool {
        let offer = |request: &mut Request| request.log().message(Some(request), severity, logger, message, attributes);
        self.with(offer).unwrap_or(false)
    }

    /// Makes the request a WebSocket connection, to which the server has agreed (status 101) with a subprotocol or an empty
    /// text. The server passes the bytes on itself. None if the request has ended.
    #[must_use]
    pub fn into_connection(self, subprotocol: &str) -> Option<Connection> {
        let request = self.request.lock().unwrap_or_else(PoisonError::into_inner).take();
        request.map(|request| request.into_connection(subprotocol))
    }

    /// Calls `observe` unless the request has ended.
    pub(super) fn with<T>(&self, observe: impl FnOnce(&mut Request) -> T) -> Option<T> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(observe)
    }

    /// Ends the request with its record, unless it has ended.
    pub(super) fn end(&self, ending: Ending<'_>) {
        let request = self.request.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(request) = request {
            request.end(ending);
        }
    }

    /// Ends the request of a future or body that is dropped. Its answer is complete, or nobody waits for it any more.
    pub(super) fn give_up(&self) {
        let is_complete = self.with(|request| request.is_complete()).unwrap_or(true);
        self.end(match is_complete {
            true => Ending::Returned,
            false if std::thread::panicking() => Ending::Raised("panic"),
            false if self.stops.load(Ordering::Relaxed) => Ending::Cancelled(""),
            false => Ending::Disconnected(""),
        });
    }
}
