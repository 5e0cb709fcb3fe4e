//! Routes that the layer answers itself: health and metrics; and the header on the server's own health route.

use crate::error::Error;
use crate::log::Log;
use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use listen::settings::Lane as Which;
use listen::sink::Now;
use listen::status::health::{Answer, HealthWatch, Watched, liveness, readiness};
use listen::status::lane::Lane;
use listen::status::metrics::Metrics;
use std::sync::Arc;

const STATE: HeaderName = HeaderName::from_static("inference-logging-state");
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// The routes, and what they report.
pub struct Probes {
    watch: Arc<HealthWatch>,
    metrics: Metrics,
    health_path: Option<String>,
    liveness_path: Option<String>,
    metrics_path: Option<String>,
    wrapped_path: Option<String>,
    /// The server's own health route says 503 while readiness does.
    changes_status: bool,
}

impl Probes {
    pub fn new(log: Log) -> Result<Self, Error> {
        let (service, settings) = (&log.service, &log.settings);
        let control = service.control().ok_or_else(|| Error::new("the queue directory has no control page"))?;
        let directory = settings.resolved_queue_directory();
        let source = Lane { service: Arc::clone(service), directory, control };
        let (limits, listens) = (settings.health_limits(Which::Fast), settings.listens());
        let watch = Arc::new(HealthWatch::new(Watched { source, limits, listens }, None, Now::read()));
        let path = |parameter: &str| settings.route(parameter).map(str::to_owned);
        Ok(Self {
            metrics: Metrics::new(Arc::clone(&watch), None),
            watch,
            health_path: path("health_path"),
            liveness_path: path("liveness_path"),
            metrics_path: path("metrics_path"),
            wrapped_path: path("wrap_health_path"),
            changes_status: settings.wraps_status(),
        })
    }

    /// The answer to a request for one of the routes.
    pub fn answer(&self, parts: &Parts) -> Option<Response<Bytes>> {
        let path = Some(parts.uri.path());
        let is_metrics = path == self.metrics_path.as_deref();
        let probe: Option<fn(&_) -> Answer> = match path {
            _ if path == self.health_path.as_deref() => Some(readiness),
            _ if path == self.liveness_path.as_deref() => Some(liveness),
            _ => None,
        };
        if probe.is_none() && !is_metrics {
            return None;
        }
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            let mut answer = answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, Bytes::from_static(b"Method Not Allowed"));
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Some(answer);
        }
        let mut answer = match probe {
            Some(probe) => health(probe(&self.watch.recent(Now::read()))),
            None => self.metrics(parts),
        };
        if parts.method == Method::HEAD {
            *answer.body_mut() = Bytes::new();
        }
        Some(answer)
    }

    /// Whether the path is the server's own health route, to whose answers the state is added.
    pub fn wraps(&self, path: &str) -> bool {
        self.wrapped_path.as_deref() == Some(path)
    }

    /// Adds the state to an answer of the server's own health route.
    pub fn wrap<R>(&self, answer: &mut Response<R>) {
        let health = self.watch.recent(Now::read());
        answer.headers_mut().insert(STATE, HeaderValue::from_static(health.state().name()));
        let ready = readiness(&health);
        if self.changes_status && answer.status().is_success() && ready.status == 503 {
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            answer.headers_mut().insert(RETRY_AFTER, ready.retry_after_s.into());
        }
    }

    fn metrics(&self, parts: &Parts) -> Response<Bytes> {
        let accept = parts.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match self.metrics.render(accept, Now::read()) {
            Ok((text, kind)) => answer(StatusCode::OK, &kind, Bytes::copy_from_slice(&text)),
            Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, error.to_string().into()),
        }
    }
}

fn health(found: Answer) -> Response<Bytes> {
    let status = StatusCode::from_u16(found.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let mut answer = answer(status, JSON, found.body.into());
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if found.status == 503 {
        answer.headers_mut().insert(RETRY_AFTER, found.retry_after_s.into());
    }
    answer
}

fn answer(status: StatusCode, kind: &str, body: Bytes) -> Response<Bytes> {
    let length = body.len();
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_LENGTH, length.into());
    if let Ok(kind) = HeaderValue::from_str(kind) {
        headers.insert(CONTENT_TYPE, kind);
    }
    answer
}
