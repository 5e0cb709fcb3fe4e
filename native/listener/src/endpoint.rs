//! The endpoint of `listen`: metrics and health, for servers without such endpoints (Triton) or without HTTP.
//!
//! `/metrics`; `/health` (readiness), `/live` (liveness) and `/producers`. The last three answer 200 or 503.
//! `/producers` answers 503 once a process that has a name, such as a model instance of Triton, has died and has not
//! come back.

use super::http::{self, Reply, Request};
use listen::sink::Now;
use listen::status::health::{Answer, HealthWatch, liveness, producers, readiness};
use listen::status::metrics::Metrics;
use parameters::keys::reason;
use std::net::TcpListener;
use std::sync::Arc;

pub const TEXT: &str = "text/plain; charset=utf-8";
pub const JSON: &str = "application/json";

/// Serves what `watch` sees until the process ends. Returns the port, which the system chooses for 0.
///
/// # Errors
/// A sentence: the port is not available.
pub fn open(watch: HealthWatch, address: &str, port: u16) -> Result<u16, String> {
    let watch = Arc::new(watch);
    let metrics = Metrics::new(Arc::clone(&watch), None);
    serve(address, port, move |request| reply(request, &watch, &metrics))
}

/// Answers requests by `answer` until the process ends. Returns the port.
///
/// # Errors
/// As [`open`].
pub fn serve(
    address: &str,
    port: u16,
    answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
) -> Result<u16, String> {
    let refused = |error: &std::io::Error| format!("metrics_port={port}: {}", reason(error));
    let listener = TcpListener::bind((address, port)).map_err(|error| refused(&error))?;
    let port = listener.local_addr().map_err(|error| refused(&error))?.port();
    http::serve(listener, answer).map_err(|error| refused(&error))?;
    Ok(port)
}

fn reply(request: &Request, watch: &HealthWatch, metrics: &Metrics) -> Reply {
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        return Reply::of(405, TEXT, b"Method Not Allowed");
    }
    let probe = |answer: Answer| Reply::of(answer.status, JSON, answer.body.as_bytes());
    match request.path.as_str() {
        "/metrics" => match metrics.render(&request.accept, Now::read()) {
            Ok((text, kind)) => Reply::of(200, &kind, &text),
            Err(error) => Reply::of(500, TEXT, error.to_string().as_bytes()),
        },
        "/health" => probe(readiness(&watch.recent(Now::read()))),
        "/live" => probe(liveness(&watch.recent(Now::read()))),
        "/producers" => probe(producers(&watch.recent(Now::read()))),
        _ => Reply::of(404, TEXT, b"Not Found"),
    }
}
