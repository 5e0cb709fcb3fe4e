//! Passes a request on to the server, and its answer back.

use super::gate::Asked;
use super::upstream::{self, CHECK_INTERVAL, Pool, Sent, reason};
use super::{heads, upgrade};
use crate::upgrade::{Answered, Driven, Passed};
use crate::upstream::Address;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, FORWARDED, HOST, HeaderMap, HeaderName, UPGRADE};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body::Body;
use http_body_util::{Either, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use inferlog::layer::{ClientAddress, CurrentRequest, RequestBody};
use inferlog::severity::ERROR;
use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

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
    forwarded: Forwarded,
}

impl Forward {
    /// # Errors
    /// The address is no authority of a URI.
    pub fn new(to: &Address, is_http2: bool, forwarded: Forwarded) -> Result<Self, String> {
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
            forwarded,
        })
    }

    /// Closes connections that are of no use any more, now and then.
    pub async fn look_after_connections(self) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            self.pool.check();
        }
    }

    async fn pass(self, request: Request<Sent>) -> Response<Passed> {
        let headers = request.headers();
        let is_call = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let current = request.extensions().get::<CurrentRequest>().cloned();
        let answer = if is_call || self.is_http2 {
            let answer = self.http2.request(self.by_http2(request)).await;
            answer.map(|answer| answer.map(Passed::Server)).map_err(|error| reason(&error))
        } else {
            let driven = |body, upstream| Passed::Driven(Driven::new(body, upstream, Arc::clone(&self.pool)));
            let answer = self.pool.send(heads::by_http1(request)).await;
            answer.map(|(answer, upstream)| answer.map(|body| driven(body, upstream))).map_err(|error| error.reason())
        };
        match answer {
            Ok(mut answer) => {
                heads::remove_connection_headers(answer.headers_mut());
                answer
            }
            Err(reason) => {
                self.note(current, &reason);
                if is_call { unavailable() } else { bad_gateway() }
            }
        }
    }

    /// Answers a request: what HTTP does not allow is refused, a handshake may end in another protocol.
    fn answer(self, mut request: Request<Sent>) -> AnswerFuture<Answered> {
        let asked = request.extensions().get::<Asked>().cloned();
        if let Some(status) = heads::refusal(&request) {
            return Box::pin(async move { Ok(own(status).map(|body| Answered { body, _asked: asked })) });
        }
        let is_handshake = upgrade::is_handshake(&request);
        // First: a client must not be able to name what is added as an option of its connection.
        heads::remove_connection_headers(request.headers_mut());
        if let Some(client) = request.extensions().get::<ClientAddress>().map(|client| client.0) {
            self.forwarded.apply(request.headers_mut(), client);
        }
        Box::pin(async move {
            let answer = if is_handshake { self.pass_handshake(request).await } else { self.pass(request).await };
            Ok(answer.map(|body| Answered { body, _asked: asked }))
        })
    }

    /// Passes a handshake on: a request whose connection headers the server is to see.
    async fn pass_handshake(&self, mut request: Request<Sent>) -> Response<Passed> {
        let current = request.extensions().get::<CurrentRequest>().cloned();
        let asking = upgrade::Asking::of(&mut request);
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        request.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        match upstream::shake_hands(&self.to, heads::by_http1(request)).await {
            Ok(mut answer) => {
                if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
                    heads::remove_connection_headers(answer.headers_mut());
                }
                asking.answered(answer)
            }
            Err(error) => {
                self.note(current, &error.reason());
                bad_gateway()
            }
        }
    }

    /// Notes why a request has no answer.
    fn note(&self, current: Option<CurrentRequest>, reason: &str) {
        if let Some(current) = current {
            let attributes = [("server.address", self.authority.as_str().into()), ("reason", reason.into())];
            current.message(ERROR, LOGGER, "the server gave no answer", &attributes);
        }
    }

    fn by_http2(&self, request: Request<Sent>) -> Request<Sent> {
        let (mut parts, body) = request.into_parts();
        let path = heads::path_of(&mut parts.uri).0;
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(self.authority.clone()).path_and_query(path);
        parts.uri = uri.build().unwrap_or_default();
        parts.version = Version::HTTP_2;
        // HTTP/2 names the host in the URI; a header that says otherwise makes the request malformed.
        parts.headers.remove(HOST);
        Request::from_parts(parts, body)
    }
}

fn bad_gateway() -> Response<Passed> {
    let mut answer = Response::new(Passed::Own(Some(Bytes::from_static(NO_ANSWER_JSON))));
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer.headers_mut().insert(CONTENT_LENGTH, NO_ANSWER_JSON.len().into());
    answer
}

/// An answer without a body, of the proxy itself.
fn own(status: StatusCode) -> Response<Passed> {
    let mut answer = Response::new(Passed::Own(None));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_LENGTH, 0.into());
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

/// A future of an answer; the service itself never fails.
pub type AnswerFuture<B> = Pin<Box<dyn Future<Output = Result<Response<B>, Infallible>> + Send>>;

impl Service<Request<RequestBody<Incoming>>> for Forward {
    type Response = Response<Answered>;
    type Error = Infallible;
    type Future = AnswerFuture<Answered>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody<Incoming>>) -> AnswerFuture<Answered> {
        self.clone().answer(request.map(|body| sent(Either::Left(body))))
    }
}

impl Service<Request<Incoming>> for Forward {
    type Response = Response<Answered>;
    type Error = Infallible;
    type Future = AnswerFuture<Answered>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> AnswerFuture<Answered> {
        self.clone().answer(request.map(|body| sent(Either::Right(body))))
    }
}

// What a request says of the client in front of the proxy: `X-Forwarded-For`, `X-Forwarded-Proto` and `Forwarded`.

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const PREFIX: &str = "x-forwarded-";
const REAL: HeaderName = HeaderName::from_static("x-real-ip");

/// What becomes of these headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    /// The client's are removed, and the proxy writes its own: nobody in front of it is believed.
    Replace,
    /// The client's address is added behind those that are there: what is in front of the proxy is believed.
    Append,
    /// They pass unchanged.
    Keep,
}

impl FromStr for Forwarded {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "replace" => Ok(Self::Replace),
            "append" => Ok(Self::Append),
            "keep" => Ok(Self::Keep),
            _ => Err(format!("'{name}' is not one of 'replace', 'append', 'keep'.")),
        }
    }
}

impl Forwarded {
    /// Changes the headers of a request of `client`.
    pub fn apply(self, headers: &mut HeaderMap, client: IpAddr) {
        match self {
            Self::Keep => return,
            Self::Replace => {
                let is_said =
                    |name: &&HeaderName| name.as_str().starts_with(PREFIX) || [FORWARDED, REAL].contains(name);
                let said: Vec<HeaderName> = headers.keys().filter(is_said).cloned().collect();
                for name in said {
                    headers.remove(name);
                }
            }
            Self::Append => {}
        }
        if headers.contains_key(FORWARDED) {
            // An address of IPv6 is in brackets and quotes (RFC 7239, section 6).
            let node = if client.is_ipv6() { format!("for=\"[{client}]\"") } else { format!("for={client}") };
            append(headers, FORWARDED, &node);
        }
        append(headers, FOR, &client.to_string());
        headers.entry(PROTO).or_insert(HeaderValue::from_static("http"));
    }
}

/// Adds to the list in a header; several lines become one.
fn append(headers: &mut HeaderMap, name: HeaderName, last: &str) {
    let mut list: Vec<u8> = Vec::new();
    for one in headers.get_all(&name) {
        list.extend_from_slice(one.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(last.as_bytes());
    if let Ok(list) = HeaderValue::from_bytes(&list) {
        headers.insert(name, list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(what: Forwarded, before: &[(&'static str, &'static str)]) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        for (name, value) in before {
            headers.append(*name, HeaderValue::from_static(value));
        }
        what.apply(&mut headers, IpAddr::from([192, 0, 2, 1]));
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let mut found: Vec<_> = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        found.sort();
        found
    }

    fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
        of.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    const SENT: [(&str, &str); 5] = [
        ("forwarded", "for=10.0.0.1"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-for", "10.0.0.2"),
        ("x-forwarded-prefix", "/a"),
        ("x-forwarded-proto", "https"),
    ];

    #[test]
    fn what_clients_say_is_replaced_added_to_or_kept() {
        let own = pairs(&[("x-forwarded-for", "192.0.2.1"), ("x-forwarded-proto", "http")]);
        assert_eq!(after(Forwarded::Replace, &SENT), own);
        assert_eq!(after(Forwarded::Append, &[]), own);
        let added = [
            ("forwarded", "for=10.0.0.1, for=192.0.2.1"),
            ("x-forwarded-for", "10.0.0.1, 10.0.0.2, 192.0.2.1"),
            ("x-forwarded-prefix", "/a"),
            ("x-forwarded-proto", "https"),
        ];
        assert_eq!(after(Forwarded::Append, &SENT), pairs(&added));
        assert_eq!(after(Forwarded::Keep, &SENT), pairs(&SENT));
    }
}
