//! Field rules: the places that they lead to.

use super::{json, line, read, settings, text};

fn redacted(path: &str, before: &str) -> String {
    json(&settings(&[path], &[]), before).replace("[redacted:field]", "*")
}

#[test]
fn a_name_is_found_wherever_it_stands_and_in_any_case() {
    assert_eq!(
        redacted("password", r#"{"x":[{"Password":"p","passwords":1}]}"#),
        r#"{"x":[{"Password":"*","passwords":1}]}"#
    );
    assert_eq!(
        redacted("user.email", r#"{"x":{"user":{"email":"e","n":1}}}"#),
        r#"{"x":{"user":{"email":"*","n":1}}}"#
    );
    assert_eq!(redacted("user.email", r#"{"email":"e","user":"u"}"#), r#"{"email":"e","user":"u"}"#);
    assert_eq!(redacted("$..email", r#"{"b":[{"email":1}]}"#), r#"{"b":[{"email":"*"}]}"#);
}

#[test]
fn a_path_from_the_beginning_is_found_nowhere_else() {
    assert_eq!(redacted("$.a.b", r#"{"b":1,"a":{"b":2}}"#), r#"{"b":"*","a":{"b":2}}"#);
    assert_eq!(redacted("$.a", "[1]"), r#""*""#);
    assert_eq!(redacted("$['a'][1]", "[1,2,3]"), r#"[1,"*",3]"#);
}

#[test]
fn names_with_dots_are_one_key_or_several_as_it_comes() {
    let path = "gen_ai.input.messages[*].parts[*].content";
    let parts = r#"[{"role":"user","parts":[{"type":"text","content":"secret"}]}]"#;
    let kept = parts.replace("secret", "*");
    for (before, after) in [
        (r#"{"gen_ai.input.messages":@}"#, r#"{"gen_ai.input.messages":@}"#),
        (r#"{"gen_ai":{"input":{"messages":@}}}"#, r#"{"gen_ai":{"input":{"messages":@}}}"#),
        (r#"{"gen_ai":{"input.messages":@}}"#, r#"{"gen_ai":{"input.messages":@}}"#),
    ] {
        assert_eq!(redacted(path, &before.replace('@', parts)), after.replace('@', &kept));
    }
    assert_eq!(redacted("['a.b']", r#"{"a.b":1,"a":{"b":1}}"#), r#"{"a.b":"*","a":{"b":1}}"#);
}

#[test]
fn wildcards_and_indices_take_one_step() {
    assert_eq!(
        redacted("headers.*", r#"{"headers":{"a":"x","b":[1]},"c":2}"#),
        r#"{"headers":{"a":"*","b":"*"},"c":2}"#
    );
    assert_eq!(redacted("m[0].c", r#"{"m":[{"c":1},{"c":2}]}"#), r#"{"m":[{"c":"*"},{"c":2}]}"#);
    assert_eq!(redacted("m[*][1]", r#"{"m":[[1,2],[3,4,5]]}"#), r#"{"m":[[1,"*"],[3,"*",5]]}"#);
    assert_eq!(redacted("x.*.y", r#"{"x":[{"y":1},{"z":{"y":2}}]}"#), r#"{"x":[{"y":"*"},{"z":{"y":2}}]}"#);
}

#[test]
fn values_of_any_type_are_replaced_and_null_stays() {
    for value in ["1.5", "\"s\"", "true", "[1,[2]]", "{\"a\":{\"b\":\"}\"}}", "\"\""] {
        assert_eq!(redacted("p", &format!("{{\"p\":{value},\"q\":1}}")), r#"{"p":"*","q":1}"#);
    }
    assert_eq!(redacted("p", r#"{"p":null}"#), r#"{"p":null}"#);
}

#[test]
fn a_key_that_is_spelled_with_escapes_is_the_same_key() {
    assert_eq!(redacted("password", r#"{"p\u0061ssword":"x"}"#), r#"{"password":"*"}"#);
}

#[test]
fn json_in_a_text_has_paths_and_stays_json() {
    let rules = settings(&["user.email", "payload.pin"], &["card"]);
    let once = r#"{"user":{"email":"x@y","n":4111111111111111},"l":["a"]}"#;
    let kept = r#"{"user":{"email":"[redacted:field]","n":"[redacted:card]"},"l":["a"]}"#;
    assert_eq!(text(&rules, once), kept);
    let twice = serde_json::to_string(&serde_json::json!({ "inner": once })).unwrap();
    assert_eq!(text(&rules, &twice), serde_json::to_string(&serde_json::json!({ "inner": kept })).unwrap());
    // A path may lead from JSON into the JSON of a text.
    assert_eq!(json(&rules, r#"{"payload":"{\"pin\":1}"}"#), r#"{"payload":"{\"pin\":\"[redacted:field]\"}"}"#);
}

#[test]
fn what_a_path_leads_into_but_cannot_be_read_is_replaced_as_a_whole() {
    let rules = settings(&["payload.pin"], &[]);
    assert_eq!(json(&rules, r#"{"payload":"{\"n\":1,\"pin"}"#), r#"{"payload":"[redacted:field]"}"#);
}

#[test]
fn fields_that_are_spelled_out_in_a_text_are_replaced() {
    let rules = settings(&["password", "user.email"], &[]);
    for (before, after) in [
        ("got {\"password\": \"hunter2\", \"n\": 1}", "got {\"password\": \"*\", \"n\": 1}"),
        ("got {\"password\": \"hun\\\"ter2\", \"n\": 1}", "got {\"password\": \"*\", \"n\": 1}"),
        ("got {'password': 'hunter2', 'n': 1}", "got {'password': '*', 'n': 1}"),
        ("got {\\\"password\\\": \\\"hunter2\\\", \\\"n\\\": 1}", "got {\\\"password\\\": \\\"*\\\", \\\"n\\\": 1}"),
        ("{\"a\": {\"password\": \"hunt", "{\"a\": {\"password\": \"*"),
        ("{\"a\": {\"email\": \"hunt", "{\"a\": {\"email\": \"*"),
        ("password=hunter2&n=1", "password=*&n=1"),
        ("password: correct horse\nn: 1", "password: *\nn: 1"),
        ("PASSWORD = hunter2 next", "PASSWORD = * next"),
        ("{\"password\": 12345, \"n\": 1", "{\"password\": *, \"n\": 1"),
        ("{\"password\": [\"x\"], \"n\": 1", "{\"password\": *"),
        ("/login?user=x&password=hunter%32&n=1", "/login?user=x&password=*&n=1"),
        ("password%3Dhunter2%26n=1", "password%3D*%26n=1"),
        ("no password here, no_password=1, email=x", "no password here, no_password=1, email=x"),
    ] {
        assert_eq!(text(&rules, before).replace("[redacted:field]", "*"), after, "{before}");
    }
}

#[test]
fn the_head_of_a_line_and_the_ids_of_a_trace_are_never_touched() {
    let rules = settings(&["timestamp", "boot_id", "pid", "seq", "event_name", "trace_id", "span_id"], &["card"]);
    let trace = queue::record::Trace {
        trace_id: [0x41; 16],
        span_id: [0x41, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11],
        ..Default::default()
    };
    let before = line(&settings(&[], &[]), |s| s.push_trace(&trace));
    assert!(before.contains(r#""span_id":"4111111111111111""#));
    assert_eq!(line(&rules, |s| s.push_trace(&trace)), before);
    let member = read(&line(&rules, |s| s.push_json(br#"{"trace_id":"4111111111111111","seq":5}"#)));
    assert_eq!(member["a"].to_string(), r#"{"trace_id":"[redacted:field]","seq":"[redacted:field]"}"#);
}
