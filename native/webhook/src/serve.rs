//! HTTPS: reviews and probes.

use super::addition::Addition;
use super::certificate::Certificate;
use super::review::answer;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::convert::Infallible;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// A server keeps no object above 1.5 MiB, and a review may hold an old one beside the new one.
const MOST_BYTES: usize = 4 << 20;
/// The API server waits 10 s by default, and 30 at most.
const PATIENCE: Duration = Duration::from_secs(10);
/// What reviews that are being answered have when the program is asked to end.
const LAST: Duration = Duration::from_secs(5);
/// More wait: whatever is in the cluster may connect.
const MOST_CONNECTIONS: usize = 256;

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// The port is taken.
pub fn run(port: u16, addition: Addition, certificate: Certificate) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(serve(port, addition, certificate))
}

async fn serve(port: u16, addition: Addition, certificate: Certificate) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("--port={port}: {error}");
    let mut signals = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    let [Ok(terminate), Ok(interrupt)] = &mut signals else { return Err("signals cannot be received".to_owned()) };
    // Both families, where the system has both.
    let socket = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(socket) => socket,
        Err(_) => TcpListener::bind(("0.0.0.0", port)).await.map_err(failed)?,
    };
    eprintln!("inference-logging-webhook: listens on {}", socket.local_addr().map_err(failed)?);
    let (addition, graceful) = (Arc::new(addition), GracefulShutdown::new());
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let (permit, stream) = tokio::select! {
            accepted = accept(&socket, &room) => accepted,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        };
        let acceptor = TlsAcceptor::from(certificate.current());
        let (addition, watcher) = (Arc::clone(&addition), graceful.watcher());
        tokio::spawn(async move {
            let _permit = permit;
            let Ok(Ok(stream)) = timeout(PATIENCE, acceptor.accept(stream)).await else { return };
            let service = service_fn(|request| handle(request, Arc::clone(&addition)));
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
            let _ = watcher.watch(builder.serve_connection(TokioIo::new(stream), service)).await;
        });
    }
    drop(socket);
    let _ = timeout(LAST, graceful.shutdown()).await;
    Ok(())
}

async fn accept(socket: &TcpListener, room: &Arc<Semaphore>) -> (OwnedSemaphorePermit, TcpStream) {
    loop {
        let Ok(permit) = Arc::clone(room).acquire_owned().await else { continue };
        match socket.accept().await {
            Ok((stream, _)) => return (permit, stream),
            // No file descriptor is left, or the client is gone: another look, later.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn handle(request: Request<Incoming>, addition: Arc<Addition>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let (status, kind, text) = match (method, path.as_str()) {
        (Method::GET, "/live") => (StatusCode::OK, "text/plain", "ok\n".to_owned()),
        (Method::POST, "/mutate") => match timeout(PATIENCE, Limited::new(request, MOST_BYTES).collect()).await {
            Ok(Ok(body)) => reviewed(&body.to_bytes(), &addition),
            Ok(Err(error)) => (StatusCode::BAD_REQUEST, "text/plain", format!("{error}\n")),
            Err(_) => (StatusCode::REQUEST_TIMEOUT, "text/plain", "the body did not come\n".to_owned()),
        },
        (_, "/live" | "/mutate") => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "wrong method\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "text/plain", "POST /mutate, GET /live\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    Ok(response)
}

fn reviewed(body: &[u8], addition: &Addition) -> (StatusCode, &'static str, String) {
    match answer(body, addition) {
        Ok((text, left)) => {
            if let Some(sentence) = left {
                eprintln!("inference-logging-webhook: {sentence}");
            }
            (StatusCode::OK, "application/json", text)
        }
        Err(sentence) => (StatusCode::BAD_REQUEST, "text/plain", format!("{sentence}\n")),
    }
}
