//! The application's work after its answer has passed: its time and its failures are separate from those of the answer.

use super::*;

/// The record of a request whose whole answer has passed after 10 ms, and which ends after 100 ms.
fn ended(status: u16, ending: Ending<'_>, settings: &ObserverSettings) -> Value {
    finished(answered(status, &[b"a"], true, settings), ending, settings)
}

#[test]
fn a_duration_ends_with_the_last_part_of_the_answer() {
    let record = ended(200, Ending::Returned, &settings());
    assert_eq!((&record["duration_s"], &record["after_response_s"]), (&json!(0.01), &json!(0.09)));
    assert_eq!(record.get("after_response_outcome"), None);
    let open = finished(answered(200, &[b"a"], false, &settings()), Ending::Raised("ValueError"), &settings());
    assert_eq!((&open["duration_s"], open.get("after_response_s")), (&json!(0.1), None));
}

#[test]
fn trailers_are_the_last_part_of_their_answer() {
    let settings = settings();
    let mut observer = begin(&settings);
    observer.response_start(200, None, &settings);
    observer.expect_trailers();
    observer.response_body(b"a", false, STARTED + 10 * MS, &settings);
    observer.response_trailers(true, STARTED + 20 * MS);
    observer.response_trailers(false, STARTED + 30 * MS);
    let record = finished(observer, Ending::Returned, &settings);
    assert_eq!((&record["duration_s"], &record["after_response_s"]), (&json!(0.03), &json!(0.07)));
}

#[test]
fn a_failure_behind_a_good_answer_has_its_own_outcome() {
    use Ending::{Cancelled, Disconnected, Raised, TimedOut};
    for (ending, outcome, name, severity) in [
        (Raised("ValueError"), "error", "ValueError", "ERROR"),
        (TimedOut("TimeoutError"), "timeout", "TimeoutError", "ERROR"),
        (Cancelled("CancelledError"), "server_shutdown", "CancelledError", "WARN"),
        (Disconnected("ClientDisconnect"), "client_disconnect", "ClientDisconnect", "WARN"),
    ] {
        for status in [200, 404] {
            let record = ended(status, ending, &settings());
            assert_eq!((&record["outcome"], record.get("error.type")), (&json!("ok"), None), "{ending:?}");
            assert_eq!(
                (&record["after_response_outcome"], &record["severity_text"]),
                (&json!(outcome), &json!(severity))
            );
            assert_eq!(record["after_response_error_type"], name);
            assert_eq!((&record["http.response.status_code"], &record["duration_s"]), (&json!(status), &json!(0.01)));
        }
    }
}

#[test]
fn an_exception_that_the_answer_itself_reports_is_the_answers() {
    let record = ended(500, Ending::Raised("ValueError"), &settings());
    assert_eq!((&record["outcome"], &record["error.type"]), (&json!("error"), &json!("ValueError")));
    assert_eq!((record.get("after_response_outcome"), &record["after_response_s"]), (None, &json!(0.09)));
}

#[test]
fn a_last_part_that_the_server_refused_is_not_behind_the_answer() {
    let settings = settings();
    let mut observer = answered(200, &[b"a"], true, &settings);
    observer.take_back_end();
    let record = finished(observer, Ending::Raised("RuntimeError"), &settings);
    assert_eq!((&record["outcome"], &record["error.type"]), (&json!("error"), &json!("RuntimeError")));
    assert_eq!((&record["duration_s"], record.get("after_response_s")), (&json!(0.1), None));
}

#[test]
fn a_failure_behind_the_answer_is_kept_whatever_the_sampler_says() {
    let settings =
        ObserverSettings { sampler: sampler(SamplerSettings { ratio: 0.0, ..Default::default() }), ..settings() };
    for (ending, by) in [(Ending::Raised("ValueError"), "error"), (Ending::Cancelled("CancelledError"), "abort")] {
        assert_eq!(ended(200, ending, &settings)["sampled_by"], by);
    }
}

#[test]
fn what_is_slow_behind_the_answer_does_not_make_the_request_slow() {
    let settings = ObserverSettings {
        sampler: sampler(SamplerSettings { ratio: 0.0, slow_nano: 50 * MS, ..Default::default() }),
        ..settings()
    };
    let lines = records(|producer| {
        for complete in [true, false] {
            let mut observer = answered(200, &[b"a"], complete, &settings);
            observer.response_body(b"b", false, STARTED + 60 * MS, &settings);
            observer.finish(&ids(), Ending::Returned, &http(None), STARTED + 100 * MS, producer, &settings);
        }
    });
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["sampled_by"], &lines[0]["duration_s"]), (&json!("slow"), &json!(0.06)));
}
