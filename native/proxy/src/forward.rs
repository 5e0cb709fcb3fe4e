//! Passes a request on to the server, and its answer back.

use super::address::Address;
use super::passed::{Driven, Passed};
use super::upstream::{self, CHECK_INTERVAL, Pool, Sent, reason};
use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body::Body;
use http_body_util::{Either, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use inferlog::layer::{CurrentRequest, RequestBody};
use inferlog::severity::ERROR;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
/// Headers of one connection (RFC 9110, section 7.6.1). `te` and `trailer` go on, as gRPC needs them.
const OF_CONNECTION: [HeaderName; 5] = [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, TRANSFER_ENCODING, UPGRADE];
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const NO_ANSWER: &str = "The server behind this proxy gave no answer.";
const NO_ANSWER_JSON: &[u8] = b"{\"detail\": \"The server behind this proxy gave no answer.\"}";
const LOGGER: &str = "inference_logging.proxy";

/// A body, or none if it has ended before it began.
fn sent(body: Either<RequestBody<Incoming>, Incoming>) -> Sent {
    if body.is_end_stream() { Either::Left(Empty::new()) } else { Either::Right(body) }
}

/// The way to the server.
#[derive(Clone)]
pub struct Forward {
    pool: Arc<Pool>,
    http2: Client<HttpConnector, Sent>,
    to: Address,
    authority: Authority,
    /// Every request goes by HTTP/2.
    is_http2: bool,
}

impl Forward {
    /// # Errors
    /// The address is no authority of a URI.
    pub fn new(to: &Address, is_http2: bool) -> Result<Self, String> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Ok(Self {
            pool: Arc::new(Pool::new(to.clone())),
            http2: Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .http2_only(true)
                .build(connector),
            to: to.clone(),
            authority: Authority::try_from(to.to_string()).map_err(|error| format!("--to {to}: {error}"))?,
            is_http2,
        })
    }

    /// Closes connections that are of no use any more, now and then.
    pub async fn look_after_connections(self) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            self.pool.check();
        }
    }

    async fn pass(self, mut request: Request<Sent>) -> Response<Passed> {
        let headers = request.headers_mut();
        let is_call = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        remove_connection_headers(headers);
        let current = request.extensions().get::<CurrentRequest>().cloned();
        let answer = if is_call || self.is_http2 {
            let answer = self.http2.request(self.by_http2(request)).await;
            answer.map(|answer| answer.map(Passed::Server)).map_err(|error| reason(&error))
        } else {
            let driven = |body, upstream| Passed::Driven(Driven::new(body, upstream, Arc::clone(&self.pool)));
            let answer = self.pool.send(by_http1(request)).await;
            answer.map(|(answer, upstream)| answer.map(|body| driven(body, upstream))).map_err(|error| error.reason())
        };
        match answer {
            Ok(mut answer) => {
                remove_connection_headers(answer.headers_mut());
                answer
            }
            Err(reason) => {
                if let Some(current) = current {
                    let address = self.authority.as_str();
                    let attributes = [("server.address", address.into()), ("reason", reason.as_str().into())];
                    current.message(ERROR, LOGGER, "the server gave no answer", &attributes);
                }
                if is_call { unavailable() } else { bad_gateway() }
            }
        }
    }

    /// Passes a handshake on: a request whose connection headers the server is to see.
    pub async fn pass_handshake(&self, request: Request<Incoming>) -> Result<Response<Incoming>, Response<Passed>> {
        let answer = upstream::shake_hands(&self.to, by_http1(request.map(|body| sent(Either::Right(body))))).await;
        answer.map_err(|_| bad_gateway())
    }

    fn by_http2(&self, request: Request<Sent>) -> Request<Sent> {
        let (mut parts, body) = request.into_parts();
        let path = path_of(&mut parts.uri).0;
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(self.authority.clone()).path_and_query(path);
        parts.uri = uri.build().unwrap_or_default();
        parts.version = Version::HTTP_2;
        // HTTP/2 names the host in the URI; a header that says otherwise makes the request malformed.
        parts.headers.remove(HOST);
        Request::from_parts(parts, body)
    }
}

fn by_http1(request: Request<Sent>) -> Request<Sent> {
    let (mut parts, body) = request.into_parts();
    let (path, host) = path_of(&mut parts.uri);
    if !parts.headers.contains_key(HOST)
        && let Some(host) = host.and_then(|host| HeaderValue::from_str(host.as_str()).ok())
    {
        // A client over HTTP/2 names the host beside the headers.
        parts.headers.insert(HOST, host);
    }
    parts.uri = path.into();
    parts.version = Version::HTTP_11;
    Request::from_parts(parts, body)
}

/// Takes the path, and the host if there is one, out of an URI.
fn path_of(uri: &mut Uri) -> (PathAndQuery, Option<Authority>) {
    let asked = std::mem::take(uri).into_parts();
    (asked.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/")), asked.authority)
}

fn bad_gateway() -> Response<Passed> {
    let mut answer = Response::new(Passed::Own(Some(Bytes::from_static(NO_ANSWER_JSON))));
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer.headers_mut().insert(CONTENT_LENGTH, NO_ANSWER_JSON.len().into());
    answer
}

/// The answer to a call over gRPC, which has its status in a header if it has no body.
fn unavailable() -> Response<Passed> {
    let mut answer = Response::new(Passed::Own(None));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(GRPC_STATUS, HeaderValue::from_static("14"));
    headers.insert(GRPC_MESSAGE, HeaderValue::from_static(NO_ANSWER));
    answer
}

/// Removes what belongs to one connection and not to the message.
fn remove_connection_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_CONNECTION).filter(|name| **name != TE) {
        headers.remove(name);
    }
}

/// A future of an answer; the service itself never fails.
pub type AnswerFuture<B> = Pin<Box<dyn Future<Output = Result<Response<B>, Infallible>> + Send>>;

impl Service<Request<RequestBody<Incoming>>> for Forward {
    type Response = Response<Passed>;
    type Error = Infallible;
    type Future = AnswerFuture<Passed>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody<Incoming>>) -> AnswerFuture<Passed> {
        let forward = self.clone();
        Box::pin(async move { Ok(forward.pass(request.map(|body| sent(Either::Left(body)))).await) })
    }
}

impl Service<Request<Incoming>> for Forward {
    type Response = Response<Passed>;
    type Error = Infallible;
    type Future = AnswerFuture<Passed>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> AnswerFuture<Passed> {
        let forward = self.clone();
        Box::pin(async move { Ok(forward.pass(request.map(|body| sent(Either::Right(body)))).await) })
    }
}
