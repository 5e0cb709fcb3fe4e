//! Calls over gRPC: their method, and the status in their trailers.

use super::server::{Http, Recorded};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, Response};
use axum::routing::post as on_post;
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use std::convert::Infallible;
use tokio_stream as stream;

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
