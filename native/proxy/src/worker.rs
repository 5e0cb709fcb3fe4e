//! One thread of the proxy: an event loop that accepts connections and serves them.

use super::forward::Forward;
use super::gate::{Admitted, Gate};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use inferlog::layer::{ClientAddress, RequestLayer};
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener as Socket};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tower_layer::Layer;
use tower_service::Service;

/// The largest number of bytes that a connection buffers.
const BUFFER_BYTES: usize = 64 * 1024;
/// The delay after a failed accept: usually there are no more file descriptors.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// What a thread serves.
pub struct Worker {
    pub socket: Socket,
    pub forward: Forward,
    /// None: nothing is recorded.
    pub layer: Option<RequestLayer>,
    pub gate: Arc<Gate>,
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
        let Self { socket, forward, layer, gate, ends } = self;
        runtime.block_on(async {
            tokio::spawn(forward.clone().look_after_connections());
            let served = match &layer {
                Some(layer) => serve(socket, layer.layer(forward), gate, ends).await,
                None => serve(socket, forward, gate, ends).await,
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

async fn serve<S, B>(
    socket: Socket,
    service: S,
    gate: Arc<Gate>,
    mut ends: watch::Receiver<Option<Instant>>,
) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    socket.set_nonblocking(true)?;
    let listener = TcpListener::from_std(socket)?;
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(gate.head_deadline());
    server.http1().max_buf_size(BUFFER_BYTES).preserve_header_case(true).writev(false);
    server.http2().timer(TokioTimer::new()).max_send_buf_size(BUFFER_BYTES);
    // Closed once the last connection has ended.
    let (alive, mut all_ended) = mpsc::channel::<()>(1);
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
        let Some(admitted) = gate.admit() else { continue };
        let _ = stream.set_nodelay(true);
        let (gate, inner) = (Arc::clone(&gate), service.clone());
        let service = TowerToHyperService::new(Addressed { inner, client, admitted: admitted.clone() });
        let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
        let (mut ends, alive) = (ends.clone(), alive.clone());
        tokio::spawn(async move {
            let (mut connection, mut is_ending) = (pin!(connection), false);
            loop {
                tokio::select! {
                    biased;
                    // What goes wrong on a connection stands in the records of its requests.
                    _ = connection.as_mut() => break,
                    // hyper has no deadline for the first bytes, which show the version of HTTP, and none for HTTP/2.
                    () = gate.wait_idle(&admitted) => if is_ending || !admitted.has_request() { break },
                    _ = ends.changed(), if !is_ending => {},
                }
                connection.as_mut().graceful_shutdown();
                is_ending = true;
            }
            drop(alive);
        });
    }
    drop((listener, alive));
    let end = ends.borrow().unwrap_or_else(Instant::now);
    let _ = tokio::time::timeout_at(end.into(), all_ended.recv()).await;
    Ok(())
}

/// Adds the client's address to each request of a connection.
#[derive(Clone)]
struct Addressed<S> {
    inner: S,
    client: SocketAddr,
    admitted: Admitted,
}

impl<S: Service<Request<Incoming>>> Service<Request<Incoming>> for Addressed<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> S::Future {
        request.extensions_mut().insert(self.admitted.begin_request());
        request.extensions_mut().insert(ClientAddress(self.client.ip().to_canonical()));
        self.inner.call(request)
    }
}
