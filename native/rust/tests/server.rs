//! A log in a folder of its own, a server of axum that has the layer, and clients over HTTP/1.1 and 2.

use axum::Router;
use axum::body::Body;
use axum::routing::get as on_get;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use inferlog::Log;
use inferlog::layer::RequestLayer;
use serde_json::{Map, Value, json};
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

pub const DEADLINE: Duration = Duration::from_secs(20);

/// A log, and the folder of its records.
pub struct Recorded {
    pub log: Log,
    folder: TempDir,
}

impl Recorded {
    /// Opens a log with parameters beside those of the folder.
    pub fn with(parameters: Value) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut configuration = json!({
            "version": 1,
            "directory": folder.path().join("records"),
            "queue_directory": folder.path().join("queue"),
        });
        let given: Map<String, Value> = serde_json::from_value(parameters).expect("an object");
        configuration.as_object_mut().expect("an object").extend(given);
        let log = Log::open(&configuration.to_string()).expect("a log");
        Self { log, folder }
    }

    pub fn new() -> Self {
        Self::with(json!({}))
    }

    /// The lines of the records of an event, once everything is written.
    pub fn of(&self, event: &str) -> Vec<Value> {
        assert!(self.log.flush(DEADLINE), "not everything was written");
        let mut lines = Vec::new();
        for entry in fs::read_dir(self.folder.path().join("records")).expect("the folder of the records") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|kind| kind == "jsonl") {
                let text = fs::read_to_string(path).expect("a segment");
                lines.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON")));
            }
        }
        lines.retain(|line| line["event_name"] == event);
        lines
    }

    /// The one request on record.
    pub fn request(&self) -> Value {
        let mut lines = self.of("request");
        assert_eq!(lines.len(), 1, "{lines:#?}");
        lines.remove(0)
    }

    /// The only request on record, as soon as it is there.
    pub async fn next_request(&self) -> Value {
        let end = std::time::Instant::now() + DEADLINE;
        while self.of("request").is_empty() && std::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.request()
    }

    /// Serves an application under the layer.
    pub async fn serve(&self, app: Router) -> SocketAddr {
        serve(app.layer(RequestLayer::new(self.log).expect("the layer"))).await
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = self.log.close(Duration::ZERO);
    }
}

/// Serves an application.
pub async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await.expect("a server");
    });
    address
}

/// Which version of HTTP a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    One,
    Two,
}

impl Http {
    /// Sends a request over a connection of its own.
    pub async fn send(self, address: SocketAddr, request: Request<Body>) -> Response<Incoming> {
        let io = TokioIo::new(TcpStream::connect(address).await.expect("a connection"));
        let (parts, body) = request.into_parts();
        let uri = parts.uri.to_string();
        let absolute = format!("http://{address}{uri}");
        let mut built = Request::builder().method(parts.method).uri(if self == Self::One { uri } else { absolute });
        let headers = built.headers_mut().expect("headers");
        if self == Self::One {
            headers.insert("host", address.to_string().parse().expect("a host"));
        }
        headers.extend(parts.headers);
        let request = built.body(body).expect("a request");
        match self {
            Self::One => {
                let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.expect("a handshake");
                tokio::spawn(connection);
                sender.send_request(request).await.expect("an answer")
            }
            Self::Two => {
                let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
                let (mut sender, connection) = builder.handshake(io).await.expect("a handshake");
                tokio::spawn(connection);
                sender.send_request(request).await.expect("an answer")
            }
        }
    }
}

/// A request without a body.
pub fn get(path: &str) -> Request<Body> {
    Request::builder().uri(path).body(Body::empty()).expect("a request")
}

/// A request with a body of JSON.
pub fn post(path: &str, body: &Value) -> Request<Body> {
    let request = Request::builder().method("POST").uri(path).header("content-type", "application/json");
    request.body(Body::from(body.to_string())).expect("a request")
}

/// Reads the body of an answer to its end.
pub async fn read(answer: Response<Incoming>) -> Bytes {
    answer.into_body().collect().await.expect("a body").to_bytes()
}

fn app() -> Router {
    Router::new().route("/health", on_get(|| async { "well" }))
}

#[tokio::test]
async fn the_health_routes_are_answered_and_not_recorded() {
    let recorded = Recorded::with(json!({"metrics_path": "/metrics/logging"}));
    let address = recorded.serve(app().fallback(|| async { "other" })).await;
    for path in ["/health/logging", "/health/logging/live"] {
        let answer = Http::One.send(address, get(path)).await;
        assert_eq!((answer.status().as_u16(), &answer.headers()["cache-control"]), (200, &"no-store".parse().unwrap()));
        let body: Value = serde_json::from_slice(&read(answer).await).expect("JSON");
        assert_eq!(body["status"], "ok", "{body:#}");
        let refused = Http::One.send(address, post(path, &json!({}))).await;
        assert_eq!((refused.status().as_u16(), &refused.headers()["allow"]), (405, &"GET, HEAD".parse().unwrap()));
    }
    let metrics = read(Http::Two.send(address, get("/metrics/logging")).await).await;
    assert!(String::from_utf8_lossy(&metrics).contains("inference_logging_records_accepted_total"), "{metrics:?}");
    assert_eq!(recorded.of("request"), Vec::<Value>::new());
}

#[tokio::test]
async fn the_servers_own_health_route_gets_the_state() {
    let recorded = Recorded::with(json!({"wrap_health_path": "/health"}));
    let address = recorded.serve(app()).await;
    let answer = Http::One.send(address, get("/health")).await;
    assert_eq!((answer.status().as_u16(), &answer.headers()["inference-logging-state"]), (200, &"ok".parse().unwrap()));
    assert_eq!(&read(answer).await[..], b"well");
}

#[tokio::test]
async fn a_backlog_makes_the_health_route_say_503() {
    let parameters = json!({"listener": "external", "health_backlog_records": 3, "wrap_health_path": "/health",
                            "wrap_health": "status"});
    let recorded = Recorded::with(parameters);
    let address = recorded.serve(app()).await;
    for _ in 0..4 {
        assert!(recorded.log.message(None, 9, "app", "waits for a listener", &[]));
    }
    let answer = Http::One.send(address, get("/health/logging")).await;
    assert_eq!(answer.status().as_u16(), 503);
    assert!(answer.headers().contains_key("retry-after"));
    let wrapped = Http::One.send(address, get("/health")).await;
    assert_eq!(
        (wrapped.status().as_u16(), &wrapped.headers()["inference-logging-state"]),
        (503, &"degraded".parse().unwrap())
    );
}
