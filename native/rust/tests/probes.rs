//! Health and metrics.

use super::server::{Http, Recorded, get, post, read};
use axum::Router;
use axum::routing::get as on_get;
use serde_json::{Value, json};

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
