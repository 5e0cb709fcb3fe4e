//! A layer of tower that does for servers on axum or hyper what the ASGI middleware does for those
//! in Python: one record for each request, with its ids, status, times, chunks and outcome. Bodies pass unchanged.
//!
//! Mount it as the outermost layer, since it sees what it surrounds:
//!
//! ```no_run
//! # #[cfg(feature = "axum")] fn mounted() -> Result<axum::Router, inferlog::Error> {
//! let log = inferlog::Log::from_environment()?;
//! let app = axum::Router::new().route("/", axum::routing::get(|| async { "hello" }));
//! let app: axum::Router = app.layer(inferlog::layer::RequestLayer::new(log)?);
//! # Ok(app) }
//! ```
//!
//! With the feature `axum`, the record has the route (`MatchedPath`) and the client's address (`ConnectInfo<SocketAddr>`).
//! A server without axum gives the address as the extension [`ClientAddress`].
//!
//! A request that the server drops before it is answered whole is recorded as `client_disconnect`: that is when hyper drops
//! one. A panic of the handler is an `error`. At the end of the server, [`Log::close`](crate::Log::close) ends requests that
//! are under way as `server_shutdown`; a server that drops them before calls [`RequestLayer::stop`].

mod answer;
mod head;

use crate::Error;
use crate::log::Log;
use bytes::Bytes;
use head::Head;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use listen::settings::Lane as Which;
use listen::sink::Now;
use listen::status::health::{Answer, HealthWatch, Watched, liveness, readiness};
use listen::status::lane::Lane;
use listen::status::metrics::Metrics;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

pub use answer::{AnswerBody, Answering, RequestBody};
pub use head::CurrentRequest;

/// The address of the client, as an extension of the request, from a server that knows it.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub IpAddr);

/// Records the requests of the services that it surrounds.
#[derive(Clone)]
pub struct RequestLayer(Arc<Shared>);

/// What all requests of a layer share.
struct Shared {
    log: Log,
    probes: Probes,
    /// The header that carries a request id in answers.
    response_header: Option<HeaderName>,
    /// The header with which a client forbids the capture of its texts.
    opt_out_header: Option<HeaderName>,
    /// Whether the service gets trace and request id in headers, if the client sent none.
    forwards: (bool, bool),
    stops: Arc<AtomicBool>,
}

impl RequestLayer {
    /// Makes the layer; its requests are recorded in `log`. The parameters are those of the ASGI middleware.
    ///
    /// # Errors
    /// A parameter names a header that HTTP does not allow.
    pub fn new(log: Log) -> Result<Self, Error> {
        let settings = &log.settings;
        let header = |parameter: &str, name: Option<&str>| {
            let wrong = |name: &str| Error::new(format!("{parameter}='{name}': must be the name of a header"));
            name.map(|name| HeaderName::try_from(name).map_err(|_| wrong(name))).transpose()
        };
        Ok(Self(Arc::new(Shared {
            log,
            probes: Probes::new(log)?,
            response_header: header("response_header", settings.values.response_header.as_deref())?,
            opt_out_header: header("capture_opt_out_header", settings.values.capture_opt_out_header.as_deref())?,
            forwards: settings.forwards(false),
            stops: Arc::default(),
        })))
    }

    /// Requests that are dropped from now on were not given up by their clients: the server ends.
    pub fn stop(&self) {
        self.0.stops.store(true, Ordering::Relaxed);
    }

    /// The log of the records.
    #[must_use]
    pub fn log(&self) -> Log {
        self.0.log
    }
}

impl<S> Layer<S> for RequestLayer {
    type Service = RequestService<S>;

    fn layer(&self, inner: S) -> RequestService<S> {
        RequestService { inner, shared: Arc::clone(&self.0) }
    }
}

/// A service whose requests are recorded.
#[derive(Clone)]
pub struct RequestService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S, B, R> Service<Request<B>> for RequestService<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    type Response = Response<AnswerBody<R>>;
    type Error = S::Error;
    type Future = Answering<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        if let Some(answer) = self.shared.probes.answer(&parts) {
            return Answering::given(answer);
        }
        let wraps = self.shared.probes.wraps(parts.uri.path()).then(|| Arc::clone(&self.shared));
        let head = Head::read(&parts, self.shared.opt_out_header.as_ref());
        let Some(begun) = head.begin(self.shared.log, &parts) else {
            let future = self.inner.call(Request::from_parts(parts, RequestBody::unobserved(body)));
            return Answering::unobserved(future, wraps);
        };
        let id = self.shared.response_header.clone().and_then(|name| Some((name, Head::answered_id(&begun)?)));
        head.forward(self.shared.forwards, &begun, &mut parts.headers);
        let (is_call, has_answer_body) = (head.is_call, parts.method != http::Method::HEAD);
        let current = CurrentRequest::new(begun, Arc::clone(&self.shared.stops));
        parts.extensions.insert(current.clone());
        let body = RequestBody::observed(body, current.clone());
        let future = self.inner.call(Request::from_parts(parts, body));
        Answering::observed(future, current, wraps, id, is_call, has_answer_body)
    }
}

// The messages of a call over gRPC: five bytes of length before each (gRPC over HTTP/2, "Length-Prefixed-Message").

const PREFIX_BYTES: usize = 5;

/// Finds where messages end, in pieces of any size.
#[derive(Debug, Default)]
struct Messages {
    prefix: [u8; PREFIX_BYTES],
    filled: usize,
    /// Bytes of the message that have not come.
    left: usize,
}

impl Messages {
    /// Splits the next bytes where messages end: each part, and whether a message ends with it.
    pub fn split<'a>(&mut self, mut bytes: &'a [u8], mut visit: impl FnMut(&'a [u8], bool)) {
        while !bytes.is_empty() {
            let mut at = 0;
            while self.filled < PREFIX_BYTES && at < bytes.len() {
                self.prefix[self.filled] = bytes[at];
                (self.filled, at) = (self.filled + 1, at + 1);
                if self.filled == PREFIX_BYTES {
                    let [_, length @ ..] = self.prefix;
                    self.left = u32::from_be_bytes(length) as usize;
                }
            }
            let taken = self.left.min(bytes.len() - at);
            self.left -= taken;
            let is_end = self.filled == PREFIX_BYTES && self.left == 0;
            if is_end {
                self.filled = 0;
            }
            let (part, rest) = bytes.split_at(at + taken);
            visit(part, is_end);
            bytes = rest;
        }
    }
}

// Routes that the layer answers itself: health and metrics; and the header on the server's own health route.

const STATE: HeaderName = HeaderName::from_static("inference-logging-state");
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// The routes, and what they report.
struct Probes {
    watch: Arc<HealthWatch>,
    metrics: Metrics,
    health_path: Option<String>,
    liveness_path: Option<String>,
    metrics_path: Option<String>,
    wrapped_path: Option<String>,
    /// The server's own health route says 503 while readiness does.
    changes_status: bool,
}

impl Probes {
    pub fn new(log: Log) -> Result<Self, Error> {
        let (service, settings) = (&log.service, &log.settings);
        let control = service.control().ok_or_else(|| Error::new("the queue directory has no control page"))?;
        let directory = settings.resolved_queue_directory();
        let source = Lane { service: Arc::clone(service), directory, control };
        let (limits, listens) = (settings.health_limits(Which::Fast), settings.listens());
        let watch = Arc::new(HealthWatch::new(Watched { source, limits, listens }, None, Now::read()));
        let path = |parameter: &str| settings.route(parameter).map(str::to_owned);
        Ok(Self {
            metrics: Metrics::new(Arc::clone(&watch), None),
            watch,
            health_path: path("health_path"),
            liveness_path: path("liveness_path"),
            metrics_path: path("metrics_path"),
            wrapped_path: path("wrap_health_path"),
            changes_status: settings.wraps_status(),
        })
    }

    /// The answer to a request for one of the routes.
    pub fn answer(&self, parts: &Parts) -> Option<Response<Bytes>> {
        let path = Some(parts.uri.path());
        let is_metrics = path == self.metrics_path.as_deref();
        let probe: Option<fn(&_) -> Answer> = match path {
            _ if path == self.health_path.as_deref() => Some(readiness),
            _ if path == self.liveness_path.as_deref() => Some(liveness),
            _ => None,
        };
        if probe.is_none() && !is_metrics {
            return None;
        }
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            let mut answer = answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, Bytes::from_static(b"Method Not Allowed"));
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Some(answer);
        }
        let mut answer = match probe {
            Some(probe) => health(probe(&self.watch.recent(Now::read()))),
            None => self.metrics(parts),
        };
        if parts.method == Method::HEAD {
            *answer.body_mut() = Bytes::new();
        }
        Some(answer)
    }

    /// Whether the path is the server's own health route, to whose answers the state is added.
    pub fn wraps(&self, path: &str) -> bool {
        self.wrapped_path.as_deref() == Some(path)
    }

    /// Adds the state to an answer of the server's own health route.
    pub fn wrap<R>(&self, answer: &mut Response<R>) {
        let health = self.watch.recent(Now::read());
        answer.headers_mut().insert(STATE, HeaderValue::from_static(health.state().name()));
        let ready = readiness(&health);
        if self.changes_status && answer.status().is_success() && ready.status == 503 {
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            answer.headers_mut().insert(RETRY_AFTER, ready.retry_after_s.into());
        }
    }

    fn metrics(&self, parts: &Parts) -> Response<Bytes> {
        let accept = parts.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match self.metrics.render(accept, Now::read()) {
            Ok((text, kind)) => answer(StatusCode::OK, &kind, Bytes::copy_from_slice(&text)),
            Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, error.to_string().into()),
        }
    }
}

fn health(found: Answer) -> Response<Bytes> {
    let status = StatusCode::from_u16(found.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let mut answer = answer(status, JSON, found.body.into());
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if found.status == 503 {
        answer.headers_mut().insert(RETRY_AFTER, found.retry_after_s.into());
    }
    answer
}

fn answer(status: StatusCode, kind: &str, body: Bytes) -> Response<Bytes> {
    let length = body.len();
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_LENGTH, length.into());
    if let Ok(kind) = HeaderValue::from_str(kind) {
        headers.insert(CONTENT_TYPE, kind);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::Messages;

    #[test]
    fn messages_end_where_their_lengths_say() {
        let message = |length: usize| [&[0][..], &(length as u32).to_be_bytes(), &vec![7; length]].concat();
        let lengths = [3, 0, 300, 1];
        let stream: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
        for piece in [1, 2, 4, 5, 9, 64, stream.len()] {
            let (mut messages, mut seen, mut found, mut bytes) = (Messages::default(), Vec::new(), Vec::new(), 0);
            for part in stream.chunks(piece) {
                messages.split(part, |part, is_end| {
                    seen.extend_from_slice(part);
                    bytes += part.len();
                    if is_end {
                        found.push(std::mem::take(&mut bytes) - 5);
                    }
                });
            }
            assert_eq!((&found[..], &seen), (&lengths[..], &stream), "pieces of {piece}");
        }
    }
}
