//! Streams: each chunk is counted and timed, and the end decides the outcome.

use super::server::{DEADLINE, Http, Recorded, get, read};
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::{get as on_get, post as on_post};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::json;
use std::convert::Infallible;
use std::future::pending;
use std::io::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_stream as stream;
use tokio_stream::StreamExt;

fn events(count: usize) -> Response {
    let chunks = (0..count).map(|number| Ok::<_, Infallible>(Bytes::from(format!("data: {{\"n\": {number}}}\n\n"))));
    let body = Body::from_stream(stream::iter(chunks));
    Response::builder().header("content-type", "text/event-stream").body(body).expect("an answer")
}

#[tokio::test]
async fn the_chunks_of_a_stream_are_counted() {
    for http in [Http::One, Http::Two] {
        let recorded = Recorded::with(json!({"chunks": "timeline"}));
        let address = recorded.serve(Router::new().route("/", on_get(|| async { events(64) }))).await;
        let body = read(http.send(address, get("/")).await).await;
        let line = recorded.next_request().await;
        assert_eq!(line["outcome"], "ok", "{line:#}");
        assert_eq!((&line["chunks"], &line["http.response.body.size"]), (&json!(64), &json!(body.len())));
        assert_eq!(line["chunk_gaps_us"].as_array().map(Vec::len), Some(63));
        assert!(line["gen_ai.response.time_to_first_chunk"].is_f64());
    }
}

#[tokio::test]
async fn each_chunk_is_a_record_where_configured() {
    let recorded = Recorded::with(json!({"chunks": "events"}));
    let address = recorded.serve(Router::new().route("/", on_get(|| async { events(5) }))).await;
    read(Http::One.send(address, get("/")).await).await;
    let request = recorded.next_request().await;
    let chunks = recorded.of("request.chunk");
    assert_eq!(
        chunks.iter().map(|line| line["chunk"].as_u64()).collect::<Vec<_>>(),
        (1..=5).map(Some).collect::<Vec<_>>()
    );
    assert!(chunks.iter().all(|line| line["request_id"] == request["request_id"]));
}

#[tokio::test]
async fn a_stream_that_fails_in_the_middle_is_an_error() {
    async fn broken() -> Response {
        let chunks = [Ok(Bytes::from_static(b"data: 1\n\n")), Err(Error::other("gone"))];
        let slowly = stream::iter(chunks).then(|chunk| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            chunk
        });
        Response::new(Body::from_stream(slowly))
    }
    let recorded = Recorded::new();
    let address = recorded.serve(Router::new().route("/", on_get(broken))).await;
    let answer = Http::One.send(address, get("/")).await;
    assert!(answer.into_body().collect().await.is_err());
    let line = recorded.next_request().await;
    assert_eq!((&line["outcome"], &line["chunks"]), (&json!("error"), &json!(1)), "{line:#}");
    assert!(line["error.type"].as_str().is_some_and(|name| name.contains("Error")), "{line:#}");
}

#[tokio::test]
async fn an_event_that_reports_an_error_is_one() {
    async fn failing() -> Response {
        let chunks = ["data: {\"n\": 1}\n\n", "data: {\"error\": {\"message\": \"out of memory\"}}\n\n"];
        let chunks = chunks.map(|text| Ok::<_, Infallible>(Bytes::from_static(text.as_bytes())));
        let body = Body::from_stream(stream::iter(chunks));
        Response::builder().header("content-type", "text/event-stream").body(body).expect("an answer")
    }
    let recorded = Recorded::new();
    let address = recorded.serve(Router::new().route("/", on_get(failing))).await;
    read(Http::One.send(address, get("/")).await).await;
    let line = recorded.next_request().await;
    assert_eq!((&line["outcome"], &line["error.type"]), (&json!("error"), &json!("stream_error")));
}

#[tokio::test]
async fn closing_the_log_ends_requests_under_way() {
    async fn endless() -> Response {
        let first = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"data: 1\n\n"))]);
        Response::new(Body::from_stream(first.chain(stream::pending())))
    }
    let recorded = Recorded::new();
    let address = recorded.serve(Router::new().route("/", on_get(endless))).await;
    let mut body = Http::One.send(address, get("/")).await.into_body();
    body.frame().await.expect("a frame").expect("a chunk");
    assert!(recorded.log.close(DEADLINE));
    let line = recorded.request();
    assert_eq!((&line["outcome"], &line["chunks"]), (&json!("server_shutdown"), &json!(1)), "{line:#}");
}

// A client that goes away: before the answer, in the middle of a stream, and in the middle of its own body.

#[tokio::test]
async fn a_client_that_does_not_wait_for_the_answer_is_gone() {
    let (recorded, begun) = (Recorded::new(), Arc::new(Notify::new()));
    let signal = Arc::clone(&begun);
    let waits = move || async move {
        signal.notify_one();
        pending::<&'static str>().await
    };
    let address = recorded.serve(Router::new().route("/", on_get(waits))).await;
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("a request");
    begun.notified().await;
    drop(stream);
    let line = recorded.next_request().await;
    assert_eq!(line["outcome"], "client_disconnect", "{line:#}");
    assert!(line.get("http.response.status_code").is_none());
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_is_gone() {
    for http in [Http::One, Http::Two] {
        let recorded = Recorded::new();
        let ticking = || async {
            let chunk = Ok::<_, Infallible>(Bytes::from_static(b"data: tick\n\n"));
            let every = std::time::Duration::from_millis(2);
            Response::new(Body::from_stream(stream::iter(std::iter::repeat(chunk)).throttle(every)))
        };
        let address = recorded.serve(Router::new().route("/", on_get(ticking))).await;
        let mut body = http.send(address, get("/")).await.into_body();
        body.frame().await.expect("a frame").expect("a chunk");
        drop(body);
        let line = recorded.next_request().await;
        assert_eq!((&line["outcome"], &line["http.response.status_code"]), (&json!("client_disconnect"), &json!(200)));
        assert!(line["chunks"].as_u64().is_some_and(|chunks| chunks >= 1), "{line:#}");
    }
}

#[tokio::test]
async fn a_client_that_breaks_off_its_own_body_is_gone() {
    let recorded = Recorded::new();
    let upload = |body: Body| async move {
        assert!(body.collect().await.is_err());
        "nobody reads this"
    };
    let address = recorded.serve(Router::new().route("/", on_post(upload))).await;
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nabc").await.expect("a request");
    drop(stream);
    let line = recorded.next_request().await;
    assert_eq!(
        (&line["outcome"], &line["http.request.body.size"]),
        (&json!("client_disconnect"), &json!(3)),
        "{line:#}"
    );
}
