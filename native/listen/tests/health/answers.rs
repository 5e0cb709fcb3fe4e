//! The bodies of the answers: as Python's `json.dumps` writes them.

use super::*;

#[test]
fn an_answer_has_the_state_its_reasons_and_what_was_seen() {
    let health = graded(seen(|seen| {
        (seen.records, seen.fill, seen.oldest_age_s) = (10_000, 0.123_45, Some(1.234_56));
        (seen.stalled_s, seen.leader, seen.listens) = (2.0, Holder::AnotherProcess, false);
        (seen.failing, seen.fallback, seen.dead_producers) = (vec![full()], true, vec!["m_0_1".to_owned()]);
        seen.records_per_s = Some(1_000.0);
    }));
    let answer = readiness(&health);
    assert_eq!((answer.status, answer.retry_after_s), (503, 5));
    let expected = concat!(
        r#"{"status": "degraded", "reasons": ["10000 records wait for the listener; degraded from 10000, cleared at 5000", "#,
        r#""sink file is failing for 12.0 s (full)", "the fallback writes in the place of the sink", "#,
        r#""m_0_1 has died and has not come back"], "backlog_records": 10000, "fill_ratio": 0.1235, "#,
        r#""oldest_age_s": 1.235, "listener": {"configured": "external", "leader": "elsewhere", "#,
        r#""since_last_round_s": 2.0}, "failing_sinks": [{"name": "file", "state": "failing", "for_s": 12.0, "#,
        r#""error": "full"}], "fallback_active": true, "dead_producers": ["m_0_1"]}"#,
    );
    assert_eq!(answer.body, expected);
    assert_eq!(liveness(&health).body, expected);
}

#[test]
fn an_answer_where_nothing_is_to_be_said_has_the_same_keys() {
    let answer = readiness(&graded(Snapshot::default()));
    let expected = concat!(
        r#"{"status": "ok", "reasons": [], "backlog_records": 0, "fill_ratio": 0.0, "oldest_age_s": null, "#,
        r#""listener": {"configured": "thread", "leader": "here", "since_last_round_s": 0.0}, "failing_sinks": [], "#,
        r#""fallback_active": false, "dead_producers": []}"#,
    );
    assert_eq!((answer.status, answer.body.as_str(), answer.retry_after_s), (200, expected, 1));
}

#[test]
fn the_answer_for_who_starts_processes_again_names_those_that_have_died() {
    let answer = producers(&graded(Snapshot::default()));
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"status": "ok", "dead_producers": []}"#));
    let answer = producers(&graded(seen(|seen| seen.dead_producers = vec!["a".to_owned(), "b".to_owned()])));
    let expected = r#"{"status": "producer_died", "dead_producers": ["a", "b"]}"#;
    assert_eq!((answer.status, answer.body.as_str()), (503, expected));
}

proptest! {
    #[test]
    fn any_name_and_any_number_is_valid_json_in_ascii(name in any::<String>(), for_s in 0.0..1e9, fill in 0.0..1.0) {
        let sink = FailingSink { name: name.clone(), for_s, error: name.clone(), ..full() };
        let health = graded(seen(|seen| {
            (seen.failing, seen.fill, seen.dead_producers) = (vec![sink], fill, vec![name.clone()]);
        }));
        let body = readiness(&health).body;
        prop_assert!(body.is_ascii());
        let value: Value = serde_json::from_str(&body).unwrap();
        prop_assert_eq!(value["failing_sinks"][0]["name"].as_str(), Some(name.as_str()));
        prop_assert_eq!(value["failing_sinks"][0]["for_s"].as_f64(), Some(for_s));
        prop_assert_eq!(value["dead_producers"][0].as_str(), Some(name.as_str()));
    }
}

#[test]
fn what_is_not_ascii_is_escaped_as_python_escapes_it() {
    let name = "a\"\\\n\r\t\u{8}\u{c}\u{1}\u{7f}é…😀".to_owned();
    let body = producers(&graded(seen(|seen| seen.dead_producers = vec![name]))).body;
    let escaped = "a\\\"\\\\\\n\\r\\t\\b\\f\\u0001\u{7f}\\u00e9\\u2026\\ud83d\\ude00";
    assert_eq!(body, format!(r#"{{"status": "producer_died", "dead_producers": ["{escaped}"]}}"#));
}
