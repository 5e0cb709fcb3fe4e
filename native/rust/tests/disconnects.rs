//! A client that goes away: before the answer, in the middle of a stream, and in the middle of its own body.

use super::server::{Http, Recorded, get};
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::{get as on_get, post as on_post};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::json;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_stream::{self as stream, StreamExt};

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
