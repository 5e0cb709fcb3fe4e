//! Passes a request on to the server, and its answer back.

use super::address::Address;
use super::passed::Passed;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use inferlog::layer::{CurrentRequest, RequestBody};
use inferlog::severity::ERROR;
use std::convert::Infallible;
use std::error::Error as _;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
const IDLE_CONNECTIONS: usize = 1024;
const BUFFER_BYTES: usize = 64 * 1024;
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
/// Headers of one connection (RFC 9110, section 7.6.1). `te` and `trailer` go on, as gRPC needs them.
const OF_CONNECTION: [HeaderName; 5] = [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, TRANSFER_ENCODING, UPGRADE];
const UNREACHABLE: &[u8] = b"{\"detail\": \"The server behind this proxy cannot be reached.\"}";
const LOGGER: &str = "inference_logging.proxy";

/// The body of a request, observed or not.
pub type Sent = Either<RequestBody<Incoming>, Incoming>;

/// The way to the server.
#[derive(Clone)]
pub struct Forward {
    http1: Client<HttpConnector, Sent>,
    http2: Client<HttpConnector, Sent>,
    to: Authority,
    /// Every request goes by HTTP/2.
    is_http2: bool,
}

impl Forward {
    /// # Errors
    /// The address is no authority of a URI.
    pub fn new(to: &Address, is_http2: bool) -> Result<Self, String> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_DEADLINE));
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_timer(TokioTimer::new()).pool_max_idle_per_host(IDLE_CONNECTIONS);
        client.http1_max_buf_size(BUFFER_BYTES).http1_preserve_header_case(true);
        let mut client2 = client.clone();
        Ok(Self {
            http1: client.build(connector.clone()),
            http2: client2.http2_only(true).build(connector),
            to: Authority::try_from(to.to_string()).map_err(|error| format!("--to {to}: {error}"))?,
            is_http2,
        })
    }

    async fn pass(self, mut request: Request<Sent>) -> Response<Passed> {
        let headers = request.headers_mut();
        let is_call = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        remove_connection_headers(headers);
        let current = request.extensions().get::<CurrentRequest>().cloned();
        let answer = match is_call || self.is_http2 {
            true => self.http2.request(self.addressed(request, Version::HTTP_2)).await,
            false => self.http1.request(self.addressed(request, Version::HTTP_11)).await,
        };
        match answer {
            Ok(mut answer) => {
                remove_connection_headers(answer.headers_mut());
                answer.map(Passed::Server)
            }
            Err(error) => self.unreachable(&error, current.as_ref()),
        }
    }

    /// Passes a handshake on: a request whose connection headers the server is to see.
    pub async fn pass_handshake(&self, request: Request<Incoming>) -> Result<Response<Incoming>, Response<Passed>> {
        let request = self.addressed(request.map(Either::Right), Version::HTTP_11);
        self.http1.request(request).await.map_err(|error| self.unreachable(&error, None))
    }

    /// Directs a request to the server.
    fn addressed(&self, request: Request<Sent>, version: Version) -> Request<Sent> {
        let (mut parts, body) = request.into_parts();
        let asked = std::mem::take(&mut parts.uri).into_parts();
        if version != Version::HTTP_2
            && !parts.headers.contains_key(HOST)
            && let Some(host) = asked.authority.and_then(|host| HeaderValue::from_str(host.as_str()).ok())
        {
            // A client over HTTP/2 names the host beside the headers.
            parts.headers.insert(HOST, host);
        }
        let path = asked.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(self.to.clone()).path_and_query(path);
        parts.uri = uri.build().unwrap_or_default();
        parts.version = version;
        Request::from_parts(parts, body)
    }

    fn unreachable(&self, error: &Error, current: Option<&CurrentRequest>) -> Response<Passed> {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            reason += &format!(": {error}");
            source = error.source();
        }
        if let Some(current) = current {
            let attributes = [("server.address", self.to.as_str().into()), ("reason", reason.as_str().into())];
            current.message(ERROR, LOGGER, "the server cannot be reached", &attributes);
        }
        let mut answer = Response::new(Passed::Own(Some(Bytes::from_static(UNREACHABLE))));
        *answer.status_mut() = StatusCode::BAD_GATEWAY;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        answer.headers_mut().insert(CONTENT_LENGTH, UNREACHABLE.len().into());
        answer
    }
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
pub type Answering<B> = Pin<Box<dyn Future<Output = Result<Response<B>, Infallible>> + Send>>;

impl Service<Request<RequestBody<Incoming>>> for Forward {
    type Response = Response<Passed>;
    type Error = Infallible;
    type Future = Answering<Passed>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody<Incoming>>) -> Answering<Passed> {
        let forward = self.clone();
        Box::pin(async move { Ok(forward.pass(request.map(Either::Left)).await) })
    }
}

impl Service<Request<Incoming>> for Forward {
    type Response = Response<Passed>;
    type Error = Infallible;
    type Future = Answering<Passed>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Answering<Passed> {
        let forward = self.clone();
        Box::pin(async move { Ok(forward.pass(request.map(Either::Right)).await) })
    }
}
