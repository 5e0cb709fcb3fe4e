//! One record for each request, and no byte changed; of calls over gRPC, their method and the status in their trailers.

use super::server::{Http, Recorded, get, post, read, serve};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get as on_get, post as on_post};
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use inferlog::layer::{CurrentRequest, RequestLayer};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_stream as stream;

fn app() -> Router {
    let model = |body: axum::Json<serde_json::Value>| async move { axum::Json(json!({"model": body["model"]})) };
    let app = Router::new().route("/v1/chat/completions", on_post(model));
    let app = app.route("/items/{item}", on_get(|Path(item): Path<String>| async move { format!("item {item}") }));
    app.route("/nothing", on_get(|| async { StatusCode::NO_CONTENT }))
        .route("/upload", on_post(|body: bytes::Bytes| async move { body.len().to_string() }))
}

#[tokio::test]
async fn a_request_is_recorded_with_its_route_sizes_and_model() {
    for http in [Http::One, Http::Two] {
        let recorded = Recorded::new();
        let address = recorded.serve(app()).await;
        let body = json!({"model": "llama", "max_tokens": 7, "stream": false});
        let answer = http.send(address, post("/v1/chat/completions", &body)).await;
        assert_eq!(&read(answer).await[..], br#"{"model":"llama"}"#);
        let line = recorded.next_request().await;
        assert_eq!(line["outcome"], "ok", "{line:#}");
        assert_eq!(line["http.request.method"], "POST");
        assert_eq!(line["url.path"], "/v1/chat/completions");
        assert_eq!(line["http.route"], "/v1/chat/completions");
        assert_eq!(line["network.protocol.version"], if http == Http::One { "1.1" } else { "2" });
        assert_eq!(line["client.address"], "127.0.0.1");
        assert_eq!(line["http.response.status_code"], 200);
        assert_eq!(line["http.request.body.size"], body.to_string().len());
        assert_eq!(line["http.response.body.size"], br#"{"model":"llama"}"#.len());
        assert_eq!(line["gen_ai.request.model"], "llama");
        assert_eq!(line["gen_ai.request.max_tokens"], 7);
        assert_eq!(line["gen_ai.operation.name"], "chat");
        assert!(line.get("chunks").is_none(), "{line:#}");
        assert!(line.get("rpc.system.name").is_none());
    }
}

#[tokio::test]
async fn the_route_is_the_template_and_the_path_is_the_one_asked_for() {
    let recorded = Recorded::new();
    let address = recorded.serve(app()).await;
    read(Http::One.send(address, get("/items/7?secret=1")).await).await;
    let line = recorded.next_request().await;
    assert_eq!((&line["http.route"], &line["url.path"]), (&json!("/items/{item}"), &json!("/items/7")));
}

#[tokio::test]
async fn answers_without_a_body_are_complete() {
    for (request, status) in [(get("/nothing"), 204), (get("/missing"), 404)] {
        let recorded = Recorded::new();
        let address = recorded.serve(app()).await;
        let path = request.uri().path().to_owned();
        assert_eq!(Http::One.send(address, request).await.status(), status);
        let line = recorded.next_request().await;
        assert_eq!((&line["outcome"], &line["http.response.status_code"]), (&json!("ok"), &json!(status)), "{path}");
    }
    let recorded = Recorded::new();
    let address = recorded.serve(app()).await;
    let request = Request::builder().method("HEAD").uri("/items/1").body(Body::empty()).expect("a request");
    read(Http::One.send(address, request).await).await;
    let line = recorded.next_request().await;
    assert_eq!((&line["outcome"], &line["http.request.method"]), (&json!("ok"), &json!("HEAD")));
}

#[tokio::test]
async fn a_panic_is_an_error() {
    async fn fails() -> &'static str {
        panic!("as it must")
    }
    let recorded = Recorded::new();
    let address = recorded.serve(Router::new().route("/", on_get(fails))).await;
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("a request");
    let line = recorded.next_request().await;
    assert_eq!((&line["outcome"], &line["error.type"]), (&json!("error"), &json!("panic")), "{line:#}");
}

#[tokio::test]
async fn the_callers_trace_goes_on_and_its_request_id_is_kept() {
    let recorded = Recorded::new();
    let address = recorded.serve(app()).await;
    let mut request = get("/items/1");
    let headers = request.headers_mut();
    headers.insert("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().expect("a value"));
    headers.insert("x-request-id", "from-the-client".parse().expect("a value"));
    read(Http::Two.send(address, request).await).await;
    let line = recorded.next_request().await;
    assert_eq!(line["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(line["parent_span_id"], "b7ad6b7169203331");
    assert_eq!(line["client_request_id"], "from-the-client");
}

#[tokio::test]
async fn a_handler_adds_records_and_an_answer_carries_the_id_where_configured() {
    async fn handler(headers: HeaderMap, request: Request) -> impl IntoResponse {
        let current = request.extensions().get::<CurrentRequest>().expect("the request").clone();
        assert!(current.message(9, "app", "in the handler", &[("tokens", 3_u64.into())]));
        assert!(headers.contains_key("traceparent"));
        "done"
    }
    let recorded = Recorded::with(json!({"response_header": "X-Request-Id", "forward_ids": "on"}));
    let address = recorded.serve(Router::new().route("/", on_get(handler))).await;
    let answer = Http::One.send(address, get("/")).await;
    let id = answer.headers()["x-request-id"].to_str().expect("a text").to_owned();
    read(answer).await;
    let request = recorded.next_request().await;
    let message = recorded.of("log").remove(0);
    assert_eq!(message["message"], "in the handler", "{message:#}");
    assert_eq!(message["attributes"]["tokens"], 3);
    assert_eq!((&message["request_id"], &message["trace_id"]), (&request["request_id"], &request["trace_id"]));
    assert_eq!(request["request_id"], id.as_str());
}

/// Everything that a server sends until it closes the connection, but for the date.
async fn raw(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(request).await.expect("a request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("an answer");
    let text = String::from_utf8_lossy(&answer).into_owned();
    text.split("\r\n").filter(|line| !line.starts_with("date:")).collect::<Vec<_>>().join("\r\n")
}

#[tokio::test]
async fn no_byte_of_an_answer_changes() {
    let recorded = Recorded::new();
    let (observed, plain) = (recorded.serve(app()).await, serve(app()).await);
    let requests: [&[u8]; 5] = [
        b"GET /items/a%20b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"HEAD /items/1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"POST /upload HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"DELETE /items/1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    ];
    for request in requests {
        assert_eq!(raw(observed, request).await, raw(plain, request).await);
    }
    assert_eq!(recorded.of("request").len(), requests.len());
}

#[tokio::test]
async fn a_wrong_header_name_is_refused_by_parameter_and_value() {
    let recorded = Recorded::with(json!({"response_header": "X-Id"}));
    assert!(RequestLayer::new(recorded.log).is_ok());
    let wrong = inferlog::Log::open(r#"{"version": 1, "response_header": "not a header"}"#).err().expect("an error");
    assert!(wrong.to_string().contains("response_header=\"not a header\""), "{wrong}");
}

#[tokio::test]
async fn recorded_headers_and_members_of_the_body_say_whose_request_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, [7; 32]).expect("a key");
    let recorded = Recorded::with(json!({
        "record_headers": ["x-tenant=tenant.id", "X-Team", "authorization:hash=api_key.hash"],
        "record_body_fields": ["user"],
        "capture_hash_key_file": key,
    }));
    let address = recorded.serve(app()).await;
    let mut request = post("/v1/chat/completions", &json!({"model": "llama", "user": "user-7"}));
    for (name, value) in
        [("x-tenant", "acme"), ("x-team", "search"), ("x-other", "no"), ("authorization", "Bearer secret")]
    {
        request.headers_mut().insert(name, value.parse().expect("a value"));
    }
    read(Http::Two.send(address, request).await).await;
    let line = recorded.next_request().await;
    assert_eq!((&line["tenant.id"], &line["http.request.header.x-team"]), (&json!("acme"), &json!("search")));
    assert_eq!(line["openai.request.user"], "user-7");
    let hash = line["api_key.hash"].as_str().expect("a hash");
    assert!(hash.starts_with("blake3-keyed:"), "{line:#}");
    assert!(!line.to_string().contains("secret") && line.get("http.request.header.x-other").is_none(), "{line:#}");
}

const METHOD: &str = "inference.GRPCInferenceService/ModelInfer";

async fn called(trailer: Option<&'static str>, in_headers: bool) -> Value {
    let answer = move |_: Bytes| async move {
        let mut trailers = HeaderMap::new();
        trailer.map(|status| trailers.insert("grpc-status", status.parse().expect("a value")));
        let response = Response::builder().header("content-type", "application/grpc");
        if in_headers {
            return response.header("grpc-status", trailer.unwrap_or_default()).body(Body::empty()).expect("an answer");
        }
        let parts = [&b"\0\0\0\0\x03a"[..], b"bc\0\0\0", b"\0\x01d\0\0\0\0\0"];
        let data = parts.map(|part| Frame::data(Bytes::from_static(part)));
        let frames: Vec<_> = data.into_iter().chain([Frame::trailers(trailers)]).collect();
        let body = StreamBody::new(stream::iter(frames.into_iter().map(Ok::<_, Infallible>)));
        response.body(Body::new(body)).expect("an answer")
    };
    let recorded = Recorded::new();
    let address = recorded.serve(Router::new().route(&format!("/{METHOD}"), on_post(answer))).await;
    let request = Request::builder().method("POST").uri(format!("/{METHOD}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    let request = request.body(Body::from(&b"\0\0\0\0\x01a"[..])).expect("a request");
    let answer = Http::Two.send(address, request).await;
    let all = answer.into_body().collect().await.expect("a body");
    assert_eq!(all.trailers().and_then(|all| all.get("grpc-status")).is_some(), trailer.is_some() && !in_headers);
    recorded.next_request().await
}

#[tokio::test]
async fn a_call_is_recorded_with_method_status_and_bytes() {
    let line = called(Some("0"), false).await;
    assert_eq!((&line["outcome"], &line["rpc.response.status_code"]), (&json!("ok"), &json!("OK")), "{line:#}");
    assert_eq!((&line["rpc.system.name"], &line["rpc.method"]), (&json!("grpc"), &json!(METHOD)));
    assert_eq!((&line["http.request.body.size"], &line["http.response.body.size"]), (&json!(6), &json!(19)));
    assert_eq!(line["network.protocol.version"], "2");
    // Three messages, of which one came in two parts.
    assert_eq!(line["chunks"], 3);
}

#[tokio::test]
async fn the_status_decides_the_outcome_of_a_call() {
    let unavailable = called(Some("14"), false).await;
    assert_eq!((&unavailable["outcome"], &unavailable["error.type"]), (&json!("error"), &json!("UNAVAILABLE")));
    let late = called(Some("4"), true).await;
    assert_eq!((&late["outcome"], &late["rpc.response.status_code"]), (&json!("timeout"), &json!("DEADLINE_EXCEEDED")));
    let refused = called(Some("3"), true).await;
    assert_eq!((&refused["outcome"], &refused["rpc.response.status_code"]), (&json!("ok"), &json!("INVALID_ARGUMENT")));
    let missing = called(None, false).await;
    assert_eq!((&missing["outcome"], &missing["error.type"]), (&json!("error"), &json!("UNKNOWN")), "{missing:#}");
}
