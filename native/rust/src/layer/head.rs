//! The beginning of a request: what its headers say about trace, ids and body.

use super::ClientAddress;
use crate::event::{Event, Value};
use crate::log::Log;
use crate::request::{Request, RequestStart};
use crate::websocket::Connection;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Version};
use request::capture::Content;
use request::ids::{RequestIds, traceparent};
use request::outcome::{Ending, RpcStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Values of the opt-out header that mean no.
const NO: [&[u8]; 4] = [b"0", b"false", b"no", b"off"];

/// The headers that matter, borrowed from the request.
pub struct Head {
    content: Option<HeaderValue>,
    encoding: Option<HeaderValue>,
    is_private: bool,
    /// The request is a call over gRPC.
    pub is_call: bool,
    sent_trace: bool,
    sent_request_id: bool,
}

impl Head {
    pub fn read(parts: &Parts, opt_out_header: Option<&HeaderName>) -> Self {
        let headers = &parts.headers;
        let content = headers.get(CONTENT_TYPE).cloned();
        let is_no = |value: &HeaderValue| NO.iter().any(|no| value.as_bytes().trim_ascii().eq_ignore_ascii_case(no));
        Self {
            encoding: headers.get(CONTENT_ENCODING).cloned(),
            is_private: opt_out_header.is_some_and(|name| headers.get_all(name).iter().any(|value| !is_no(value))),
            is_call: content.as_ref().is_some_and(|content| content.as_bytes().starts_with(b"application/grpc")),
            content,
            sent_trace: headers.contains_key(TRACEPARENT) || headers.contains_key(TRACESTATE),
            sent_request_id: headers.contains_key(REQUEST_ID),
        }
    }

    /// Begins the request; None if logging is switched off.
    pub fn begin(&self, log: Log, parts: &Parts) -> Option<Request> {
        let headers = &parts.headers;
        let tracestate: Vec<&[u8]> = headers.get_all(TRACESTATE).iter().map(HeaderValue::as_bytes).collect();
        let content = content_of(self.content.as_ref(), self.encoding.as_ref());
        let has_body = matches!(parts.method, Method::POST | Method::PUT | Method::PATCH);
        let address = client_address(parts);
        let mut begun = log.begin(&RequestStart {
            method: parts.method.as_str(),
            path: parts.uri.path().as_bytes(),
            route: &route(parts),
            protocol_version: version(parts.version),
            client_address: &address,
            traceparent: sent_trace(parts),
            tracestate: &tracestate,
            request_id: headers.get(REQUEST_ID).map(HeaderValue::as_bytes),
            headers: &recorded(log, headers),
            content: Some(content).filter(|_| has_body && !self.is_call),
            is_private: self.is_private,
            model: None,
        })?;
        if self.is_call {
            begun.call(RpcStatus::Missing);
        }
        Some(begun)
    }

    /// The id that an answer carries: the client's, or the one made here.
    pub fn answered_id(begun: &Request) -> Option<HeaderValue> {
        let ids = begun.ids();
        HeaderValue::from_bytes(ids.client().unwrap_or(&ids.request_id())).ok()
    }

    /// Adds the ids that the client did not send.
    pub fn forward(&self, (trace, request_id): (bool, bool), begun: &Request, headers: &mut HeaderMap) {
        let ids = begun.ids();
        if trace && !self.sent_trace {
            add(headers, TRACEPARENT, traceparent(&ids.trace).as_bytes());
            if let Some(state) = ids.outgoing_state() {
                add(headers, TRACESTATE, state.as_bytes());
            }
        }
        if request_id && !self.sent_request_id {
            add(headers, REQUEST_ID, &ids.request_id());
        }
    }
}

/// The headers of which some are recorded; none if none is.
fn recorded(log: Log, headers: &HeaderMap) -> Vec<(&[u8], &[u8])> {
    if !log.records_headers() {
        return Vec::new();
    }
    headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())).collect()
}

/// The caller's trace, unless it sent several.
fn sent_trace(parts: &Parts) -> Option<&[u8]> {
    let mut all = parts.headers.get_all(TRACEPARENT).iter();
    all.next().filter(|_| all.next().is_none()).map(HeaderValue::as_bytes)
}

/// The content of an answer's body, by its headers.
pub fn content_of_answer(headers: &HeaderMap) -> Option<Content<'_>> {
    Some(content_of(headers.get(CONTENT_TYPE), headers.get(CONTENT_ENCODING)))
}

fn content_of<'a>(kind: Option<&'a HeaderValue>, encoding: Option<&HeaderValue>) -> Content<'a> {
    let content = kind.map_or(Content::Media(b""), |kind| Content::of_type(kind.as_bytes()));
    encoding.map_or(content, |encoding| content.encoded(encoding.as_bytes()))
}

fn add(headers: &mut HeaderMap, name: HeaderName, value: &[u8]) {
    if let Ok(value) = HeaderValue::from_bytes(value) {
        headers.append(name, value);
    }
}

const fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

/// The template of the route, where the server's router is known.
#[cfg(feature = "axum")]
fn route(parts: &Parts) -> String {
    let matched = parts.extensions.get::<axum::extract::MatchedPath>();
    matched.map_or_else(String::new, |matched| matched.as_str().to_owned())
}

#[cfg(not(feature = "axum"))]
fn route(_: &Parts) -> String {
    String::new()
}

fn client_address(parts: &Parts) -> String {
    let address = parts.extensions.get::<ClientAddress>().map(|address| address.0);
    #[cfg(feature = "axum")]
    let address = address.or_else(|| {
        let info = parts.extensions.get::<axum::extract::ConnectInfo<std::net::SocketAddr>>();
        info.map(|info| info.0.ip())
    });
    address.map_or_else(String::new, |address| address.to_string())
}

/// The request that a handler serves, among the extensions of its `http::Request`. Its records carry the request's ids.
#[derive(Clone)]
pub struct CurrentRequest {
    /// None: it has ended.
    request: Arc<Mutex<Option<Request>>>,
    ids: Arc<RequestIds>,
    /// The server ends; see [`RequestLayer::stop`](crate::layer::RequestLayer::stop).
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
