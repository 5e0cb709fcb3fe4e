//! A line on a terminal: what is shown, and that no text does anything to the terminal.

use lines::terminal::{Look, Record};
use proptest::prelude::*;
use regex::Regex;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthChar;

const PLAIN: Look = Look { columns: None, colours: false, is_whole: true };

fn shown(record: &Value, look: Look) -> String {
    shown_line(record.to_string().as_bytes(), look, false)
}

fn shown_line(line: &[u8], look: Look, shows_pid: bool) -> String {
    let mut out = Vec::new();
    look.push(&mut out, &Record::read(line), shows_pid);
    String::from_utf8(out).expect("UTF-8")
}

fn request(more: &Value) -> Value {
    let mut record = json!({
        "timestamp": "2026-11-24T14:56:49.124474468Z", "severity_text": "INFO", "event_name": "request", "pid": 7,
        "seq": 1, "boot_id": "00000000deadbeef", "request_id": "fc67142b5b162785", "outcome": "ok",
        "http.request.method": "POST", "url.path": "/v1/chat/completions", "http.response.status_code": 200,
        "duration_s": 0.253824,
    });
    record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    record
}

fn log(more: &Value) -> Value {
    let mut record = json!({
        "timestamp": "2026-11-24T14:56:49.124474468Z", "severity_text": "WARN", "event_name": "log", "pid": 7,
        "logger": "shop", "message": "sold out",
    });
    record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    record
}

#[test]
fn a_request_is_one_line_of_what_most_want_to_see() {
    let usage = json!({
        "gen_ai.response.time_to_first_chunk": 0.0838, "gen_ai.usage.input_tokens": 9,
        "gen_ai.usage.output_tokens": 32, "gen_ai.response.output_tokens_per_second": 126.072, "chunk_gaps_us": [1],
    });
    let line =
        "14:56:49.124 INFO  POST 200  254 ms /v1/chat/completions  first 83.8 ms · 9/32 tokens · 126/s  fc67142b\n";
    assert_eq!(shown(&request(&usage), PLAIN), line);
    let failed =
        json!({"severity_text": "ERROR", "outcome": "error", "error.type": "ValueError", "duration_s": 1.5e-5});
    let line = "14:56:49.124 ERROR POST 200   15 µs /v1/chat/completions  error ValueError  fc67142b\n";
    assert_eq!(shown(&request(&failed), PLAIN), line);
    let died = json!({"severity_text": "ERROR", "outcome": "process_died", "error.type": "process_died"});
    let line = "14:56:49.124 ERROR POST 200  254 ms /v1/chat/completions  process_died  fc67142b\n";
    assert_eq!(shown(&request(&died), PLAIN), line);
    let after = json!({"after_response_outcome": "error", "after_response_error_type": "KeyError"});
    assert!(shown(&request(&after), PLAIN).contains("  after the answer: error KeyError  "));
}

#[test]
fn a_message_stands_before_its_fields_and_nested_values_are_json() {
    let attributes = json!({"attributes": {"n": 1, "a b": "c d", "x": [1, {"y": "]"}], "code.file.path": "/a/b.py",
        "code.line.number": 3, "code.function.name": "f"}, "request_id": "fc67142b5b162785"});
    let line = "14:56:49.124 WARN  shop: sold out n=1 \"a b\"=\"c d\" x=[1,{\"y\":\"]\"}]  b.py:3  fc67142b\n";
    assert_eq!(shown(&log(&attributes), PLAIN), line);
    let event = json!({"timestamp": "2026-11-24T14:56:49.1Z", "event_name": "engine.step", "running": 3});
    assert_eq!(shown(&event, PLAIN), "2026-11-24T14:56:49.1Z       engine.step running=3\n");
}

#[test]
fn lines_of_a_message_and_of_a_stack_stand_below_it() {
    let stack = "Traceback (most recent call last):\n  File \"/x/site-packages/y.py\", line 1\n    f()\nKeyError: 1";
    let record = log(&json!({"message": "one\n14:00 forged", "exception.stacktrace": stack}));
    let below =
        "    14:00 forged\n    Traceback (most recent call last):\n      File \"/x/site-packages/y.py\", line 1\n";
    let line = format!("14:56:49.124 WARN  shop: one\n{below}        f()\n    KeyError: 1\n");
    assert_eq!(shown(&record, PLAIN), line);
    let coloured = shown(&record, Look { colours: true, ..PLAIN });
    assert!(coloured.contains("\x1b[31m1\x1b[0m\n"), "{coloured:?}");
    assert!(coloured.contains("\x1b[2mf()\x1b[0m\n"), "{coloured:?}");
    let frame = |path: &str| format!("  File \"{path}\", line 1, in f\n    f()\n");
    let library = frame("/x/site-packages/y.py");
    let stack = [&library.repeat(3)[..], &frame("/app.py"), &library.repeat(3), "KeyError: 1"].concat();
    let lines = shown(&log(&json!({"exception.stacktrace": stack})), PLAIN);
    let folded = ["    … 3 frames of libraries", "File \"/app.py\"", "f()", "… 2 frames of libraries", "site-packages"];
    let mut rest = lines.as_str();
    for part in folded {
        rest = rest.split_once(part).expect(part).1;
    }
    assert_eq!((lines.lines().count(), lines.matches("site-packages").count()), (8, 1), "{lines}");
    let long: String = (0..250).map(|n| format!("  line {n}\n")).collect();
    let long = shown(&log(&json!({"exception.stacktrace": long})), PLAIN);
    assert_eq!((long.lines().count(), long.contains("    … 150 lines left out\n")), (102, true));
}

#[test]
fn a_path_is_cut_before_what_stands_behind_it() {
    let record = request(&json!({"url.path": "/x".repeat(100), "outcome": "timeout"}));
    let line = shown(&record, Look { columns: Some(80), ..PLAIN });
    assert!(line.ends_with("/x/…  timeout  fc67142b\n") || line.ends_with("/x…  timeout  fc67142b\n"), "{line}");
    assert_eq!(line.trim_end().chars().count(), 80);
}

#[test]
fn words_that_do_not_fit_go_on_below_or_are_cut() {
    let record = log(&json!({"message": "word ".repeat(20)}));
    let lines = shown(&record, Look { columns: Some(50), ..PLAIN });
    assert!(lines.lines().skip(1).all(|line| line.starts_with("    word")), "{lines}");
    let cut = shown(&record, Look { columns: Some(50), is_whole: false, ..PLAIN });
    assert_eq!((cut.lines().count(), cut.trim_end().chars().count(), cut.ends_with("…\n")), (1, 50, true));
}

#[test]
fn a_key_stays_with_its_value_and_a_report_of_the_listener_is_one_line() {
    let record = log(&json!({"attributes": {"a_longer_name": "and a value"}}));
    let lines = shown(&record, Look { columns: Some(50), ..PLAIN });
    assert_eq!(lines, "14:56:49.124 WARN  shop: sold out\n    a_longer_name=\"and a value\"\n");
    let report = json!({"event_name": "server.started", "text": "word ".repeat(20)});
    assert_eq!(shown(&report, Look { columns: Some(50), ..PLAIN }).lines().count(), 1);
}

#[test]
fn lines_that_the_console_left_out_are_counted() {
    let gap = json!({"event_name": "sink.dropped", "sink": "console", "dropped": 120});
    assert_eq!(shown(&gap, PLAIN), "… 120 lines left out: the terminal did not keep up\n");
    let other = json!({"event_name": "sink.dropped", "sink": "stdout", "dropped": 120});
    assert!(shown(&other, PLAIN).contains("sink.dropped sink=stdout dropped=120"));
}

#[test]
fn several_processes_are_distinguished() {
    let line = request(&json!({})).to_string();
    assert!(shown_line(line.as_bytes(), PLAIN, true).starts_with("14:56:49.124 INFO  [7] POST 200 "));
}

#[test]
fn what_is_no_record_is_not_shown() {
    for line in [&b""[..], b"{", b"[1]", b"\x1b[2J", b"{\"a\"", b"{\"a\":", b"{\"a\":[", b"{\"a\":\"\\"] {
        assert_eq!(shown_line(line, PLAIN, false), "a line that is no record\n", "{line:?}");
    }
    // A value without an end of its own is one of a broken line: it is shown as far as it is there.
    assert!(shown_line(b"{\"event_name\":\"e\",\"a\":1", PLAIN, false).contains("e a=1"));
}

#[test]
fn no_depth_is_too_deep() {
    let deep = format!("{{\"event_name\":\"e\",\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(shown_line(deep.as_bytes(), PLAIN, false).contains("a=[[[["));
}

/// What Unicode calls directional formatting, and the two separators of lines.
const REORDERS: &str =
    "\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";

/// Checks everything that holds for every text, and returns the text without colours.
fn checked(text: &str, look: Look) -> String {
    let colours = Regex::new("\x1b\\[(?:0|1|2|1;31|31|32|33|36)m").unwrap();
    let plain = colours.replace_all(text, "").into_owned();
    assert!(look.colours || plain == text);
    assert!(plain.ends_with('\n'));
    for line in plain.lines() {
        assert!(!line.chars().any(|character| character.is_control() || REORDERS.contains(character)), "{line:?}");
        let width: usize = line.chars().map(|character| character.width().unwrap_or(0)).sum();
        assert!(look.columns.is_none_or(|columns| columns < 40 || width <= columns), "{width} {line:?}");
    }
    let mut lines = plain.lines().skip(1);
    assert!(look.is_whole || lines.next().is_none(), "not one line: {plain:?}");
    assert!(lines.all(|line| line.starts_with("    ")), "{plain:?}");
    plain
}

fn looks() -> impl Strategy<Value = Look> {
    let columns = prop_oneof![Just(None), (0..200_usize).prop_map(Some)];
    (columns, any::<bool>(), any::<bool>()).prop_map(|(columns, colours, is_whole)| Look { columns, colours, is_whole })
}

fn texts() -> impl Strategy<Value = String> {
    // Few characters, so that each of them comes.
    let hostile = "[\x00-\x1f\x7f-\u{9f}\u{200b}-\u{202e}\u{2066}\u{fffa}\u{e0041}a世 \n=\"\\\\]{0,60}";
    prop_oneof![".{0,80}", hostile]
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![texts().prop_map(Value::from), any::<f64>().prop_map(Value::from), Just(Value::Null)];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let map = prop::collection::vec((texts(), inner.clone()), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            map.prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn names() -> impl Strategy<Value = String> {
    const KNOWN: [&str; 20] = [
        "timestamp",
        "severity_text",
        "event_name",
        "logger",
        "message",
        "outcome",
        "url.path",
        "http.route",
        "http.request.method",
        "http.response.status_code",
        "duration_s",
        "error.type",
        "request_id",
        "pid",
        "exception.stacktrace",
        "exception.type",
        "attributes",
        "code.file.path",
        "code.line.number",
        "gen_ai.usage.output_tokens",
    ];
    prop_oneof![prop::sample::select(&KNOWN[..]).prop_map(str::to_owned), texts()]
}

proptest! {
    #[test]
    fn any_record_is_harmless_and_fits(
        event in prop_oneof![Just("request".to_owned()), Just("log".to_owned()), Just("websocket.connection".to_owned()), texts()],
        members in prop::collection::vec((names(), values()), 0..12),
        look in looks(),
    ) {
        let mut record: serde_json::Map<String, Value> = members.into_iter().collect();
        record.insert("event_name".to_owned(), event.into());
        checked(&shown(&Value::Object(record), look), look);
    }

    #[test]
    fn any_bytes_are_harmless(bytes in prop::collection::vec(any::<u8>(), 0..200), look in looks()) {
        checked(&shown_line(&bytes, look, true), look);
        let mut member = b"{\"event_name\":\"log\",\"message\":\"".to_vec();
        member.extend(&bytes);
        member.extend(b"\"}");
        checked(&shown_line(&member, look, true), look);
    }
}
