//! One thread of the proxy: an event loop that accepts connections and serves them.

use super::forward::Forward;
use super::upgrade::{Recorded, Unrecorded};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use inferlog::layer::{ClientAddress, RequestLayer};
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener as Socket};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tower_service::Service;

/// The largest number of bytes that a connection buffers.
const BUFFER_BYTES: usize = 64 * 1024;
/// How long a client may take for the headers of a request.
const HEADERS_DEADLINE: Duration = Duration::from_secs(30);
/// The delay after a failed accept: usually there are no more file descriptors.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// What a thread serves.
pub struct Worker {
    pub socket: Socket,
    pub forward: Forward,
    /// None: nothing is recorded.
    pub layer: Option<RequestLayer>,
    /// When requests have to end, once the proxy stops.
    pub ends: watch::Receiver<Option<Instant>>,
}

impl Worker {
    /// Serves until the proxy stops, and then until the requests have ended or their time is over.
    pub fn run(self) {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return super::say(&format!("no event loop: {error}")),
        };
        let Self { socket, forward, layer, ends } = self;
        runtime.block_on(async {
            tokio::spawn(forward.clone().look_after_connections());
            let served = match &layer {
                Some(layer) => serve(socket, Recorded::new(forward, layer.clone()), ends).await,
                None => serve(socket, Unrecorded(forward), ends).await,
            };
            if let Err(error) = served {
                super::say(&format!("the listening socket: {error}"));
            }
            // What has not ended by now is dropped with the event loop.
            if let Some(layer) = &layer {
                layer.stop();
            }
        });
    }
}

async fn serve<S, B>(socket: Socket, service: S, mut ends: watch::Receiver<Option<Instant>>) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    socket.set_nonblocking(true)?;
    let listener = TcpListener::from_std(socket)?;
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS_DEADLINE);
    server.http1().max_buf_size(BUFFER_BYTES).preserve_header_case(true).writev(false);
    server.http2().timer(TokioTimer::new()).max_send_buf_size(BUFFER_BYTES);
    let graceful = GracefulShutdown::new();
    while ends.borrow_and_update().is_none() {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            changed = ends.changed() => match changed {
                Ok(()) => continue,
                Err(_) => break,
            },
        };
        let Ok((stream, client)) = accepted else {
            tokio::time::sleep(ACCEPT_DELAY).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(Addressed { inner: service.clone(), client });
        let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
        // What goes wrong on a connection stands in the records of its requests.
        tokio::spawn(graceful.watch(connection));
    }
    drop(listener);
    let end = ends.borrow().unwrap_or_else(Instant::now);
    let _ = tokio::time::timeout_at(end.into(), graceful.shutdown()).await;
    Ok(())
}

/// Adds the client's address to each request of a connection.
#[derive(Clone)]
struct Addressed<S> {
    inner: S,
    client: SocketAddr,
}

impl<S: Service<Request<Incoming>>> Service<Request<Incoming>> for Addressed<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> S::Future {
        request.extensions_mut().insert(ClientAddress(self.client.ip().to_canonical()));
        self.inner.call(request)
    }
}
