//! Connections that change their protocol: a WebSocket is counted, any other passes as bytes.

use super::gate::Asked;
use super::passed::Passed;
use http::header::{CONNECTION, HeaderMap, HeaderName, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::{self, OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use inferlog::layer::CurrentRequest;
use inferlog::websocket::{Connection, Side};
use std::sync::{Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

const BUFFER_BYTES: usize = 16 * 1024;

/// Whether a request is the handshake of a WebSocket (RFC 6455, section 4.1). Any other asks for no other protocol here.
pub fn is_handshake<B>(request: &Request<B>) -> bool {
    const KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
    let headers = request.headers();
    request.version() == Version::HTTP_11
        && request.method() == Method::GET
        && headers.contains_key(KEY)
        && lists(headers, &UPGRADE, "websocket")
        && lists(headers, &CONNECTION, "upgrade")
}

/// Whether a header that is a list has a name, in letters of either case.
fn lists(headers: &HeaderMap, header: &HeaderName, name: &str) -> bool {
    let values = headers.get_all(header).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(name))
}

/// A client that has asked for a WebSocket.
pub struct Asking {
    client: OnUpgrade,
    current: Option<CurrentRequest>,
    /// The bytes that pass count as the client's connection.
    asked: Option<Asked>,
}

impl Asking {
    /// Takes what belongs to the client from a handshake that is about to be passed on.
    pub fn of<B>(request: &mut Request<B>) -> Self {
        let client = upgrade::on(&mut *request);
        let extensions = request.extensions_mut();
        Self { client, current: extensions.remove(), asked: extensions.remove() }
    }

    /// The server has answered. If it agrees, bytes pass both ways from then on, and the request is a connection; if it
    /// does not, the request is one like others.
    pub fn answered(self, mut answer: Response<Incoming>) -> Response<Passed> {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let subprotocol = answer.headers().get(SEC_WEBSOCKET_PROTOCOL).and_then(|name| name.to_str().ok());
            let connection = self.current.and_then(|current| current.into_connection(subprotocol.unwrap_or_default()));
            let (client, server) = (self.client, upgrade::on(&mut answer));
            let asked = self.asked;
            tokio::spawn(async move {
                if let (Ok(client), Ok(server)) = (client.await, server.await) {
                    pass_bytes(client, server, connection).await;
                }
                drop(asked);
            });
        }
        answer.map(Passed::Server)
    }
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
