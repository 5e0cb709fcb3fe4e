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
mod current;
mod head;
mod messages;
mod probes;
mod request_body;

pub use answer::{AnswerBody, Answering};
pub use current::CurrentRequest;
pub use request_body::RequestBody;

use crate::error::Error;
use crate::log::Log;
use bytes::Bytes;
use head::Head;
use http::header::HeaderName;
use http::{Request, Response};
use http_body::Body;
use probes::Probes;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

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
