//! Connections that change their protocol: a WebSocket is counted, any other passes as bytes.

use super::forward::{AnswerFuture, Forward};
use super::passed::Passed;
use http::header::{HeaderMap, HeaderName, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{Request, Response, StatusCode, Version};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::upgrade::{self, Upgraded};
use hyper_util::rt::TokioIo;
use inferlog::layer::{AnswerBody, RequestLayer, RequestService};
use inferlog::websocket::{Connection, Side};
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tower_layer::Layer;
use tower_service::Service;

const BUFFER_BYTES: usize = 16 * 1024;

/// The body of an answer: of a handshake, or of a request.
pub type AnyBody = Either<Passed, AnswerBody<Passed>>;

/// Passes requests on, recorded if there is a layer, and handshakes.
#[derive(Clone)]
pub struct Recorded {
    forward: Forward,
    layer: RequestLayer,
    requests: RequestService<Forward>,
}

impl Recorded {
    pub fn new(forward: Forward, layer: RequestLayer) -> Self {
        Self { requests: layer.layer(forward.clone()), forward, layer }
    }
}

impl Service<Request<Incoming>> for Recorded {
    type Response = Response<AnyBody>;
    type Error = Infallible;
    type Future = AnswerFuture<AnyBody>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> AnswerFuture<AnyBody> {
        if !asks_for_websocket(request.version(), request.headers()) {
            let answer = self.requests.call(request);
            return Box::pin(async { answer.await.map(|answer| answer.map(Either::Right)) });
        }
        let (parts, body) = request.into_parts();
        let connection = self.layer.connect(&parts);
        let (forward, request) = (self.forward.clone(), Request::from_parts(parts, body));
        Box::pin(async move { Ok(shake_hands(&forward, request, connection).await.map(Either::Left)) })
    }
}

/// Passes handshakes and requests on without a record.
#[derive(Clone)]
pub struct Unrecorded(pub Forward);

impl Service<Request<Incoming>> for Unrecorded {
    type Response = Response<Passed>;
    type Error = Infallible;
    type Future = AnswerFuture<Passed>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> AnswerFuture<Passed> {
        let mut forward = self.0.clone();
        if !asks_for_websocket(request.version(), request.headers()) {
            return forward.call(request);
        }
        Box::pin(async move { Ok(shake_hands(&forward, request, None).await) })
    }
}

fn asks_for_websocket(version: Version, headers: &HeaderMap) -> bool {
    const KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
    let asks = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"websocket");
    version == Version::HTTP_11 && headers.get(UPGRADE).is_some_and(asks) && headers.contains_key(KEY)
}

/// Passes a handshake on. If the server agrees, bytes pass both ways from then on.
async fn shake_hands(
    forward: &Forward,
    mut request: Request<Incoming>,
    mut connection: Option<Connection>,
) -> Response<Passed> {
    let client = upgrade::on(&mut request);
    let mut answer = match forward.pass_handshake(request).await {
        Ok(answer) => answer,
        Err(answer) => {
            if let Some(connection) = &mut connection {
                connection.answer(answer.status().as_u16(), "");
            }
            return answer;
        }
    };
    let protocol = answer.headers().get(SEC_WEBSOCKET_PROTOCOL).and_then(|name| name.to_str().ok()).unwrap_or_default();
    if let Some(connection) = &mut connection {
        connection.answer(answer.status().as_u16(), protocol);
    }
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let server = upgrade::on(&mut answer);
        tokio::spawn(async move {
            if let (Ok(client), Ok(server)) = (client.await, server.await) {
                pass_bytes(client, server, connection).await;
            }
        });
    }
    answer.map(Passed::Server)
}

/// Passes bytes both ways until both sides have ended.
async fn pass_bytes(client: Upgraded, server: Upgraded, connection: Option<Connection>) {
    let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
    let (from_server, to_server) = tokio::io::split(TokioIo::new(server));
    let connection = Mutex::new(connection);
    tokio::join!(
        copy(from_client, to_server, Side::Client, &connection),
        copy(from_server, to_client, Side::Server, &connection),
    );
}

type Half = TokioIo<Upgraded>;

async fn copy(mut from: ReadHalf<Half>, mut to: WriteHalf<Half>, side: Side, connection: &Mutex<Option<Connection>>) {
    let with = |observe: &dyn Fn(&mut Connection)| {
        connection.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(observe);
    };
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let bytes = match from.read(&mut buffer).await {
            Ok(count @ 1..) => &buffer[..count],
            _ => break with(&|connection| connection.end(side)),
        };
        with(&|connection| connection.pass(side, bytes));
        if to.write_all(bytes).await.is_err() {
            let other = if side == Side::Client { Side::Server } else { Side::Client };
            break with(&|connection| connection.end(other));
        }
    }
    let _ = to.shutdown().await;
}
