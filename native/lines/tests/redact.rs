//! No secret is in the line, however it is spelled; the line stays JSON, and the rest is unchanged.

use crate::HEAD;
use ::lines::encode::Encoder;
use ::lines::redact::{RedactionSettings, Rules};
use queue::event::EventSchema;
use queue::record::Scratch;
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex};

mod lines;
mod patterns;
mod streams;

const ALL: [&str; 5] = ["email", "phone", "card", "key", "bearer"];

fn settings(fields: &[&str], patterns: &[&str]) -> RedactionSettings {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    RedactionSettings {
        fields: owned(fields),
        patterns: owned(patterns),
        custom: Vec::new(),
        replacement: "[redacted:{name}]".to_owned(),
    }
}

fn custom(expression: &str) -> RedactionSettings {
    RedactionSettings { custom: vec![("own".to_owned(), expression.to_owned())], ..settings(&[], &[]) }
}

/// The compiled rules: in a debug build compiling takes longer than using them.
fn compiled(settings: &RedactionSettings) -> Option<Arc<Rules>> {
    static COMPILED: Mutex<Vec<(RedactionSettings, Option<Arc<Rules>>)>> = Mutex::new(Vec::new());
    let mut all = COMPILED.lock().unwrap();
    if let Some((_, rules)) = all.iter().find(|(known, _)| known == settings) {
        return rules.clone();
    }
    all.push((settings.clone(), Rules::compile(settings).unwrap()));
    all.last().unwrap().1.clone()
}

/// A line of an event with fields `a`, `b`, `c`.
fn line(settings: &RedactionSettings, push: impl FnOnce(&mut Scratch)) -> String {
    let mut scratch = Scratch::new();
    push(&mut scratch);
    let plan = EventSchema::new(16, "e", &["a", "b", "c"]).unwrap().into();
    let mut out = b"before\n".to_vec();
    let mut encoder = Encoder::new().redacting(compiled(settings));
    encoder.line(&mut out, &HEAD, &plan, scratch.as_slice()).unwrap();
    String::from_utf8(out).unwrap().strip_prefix("before\n").unwrap().to_owned()
}

fn read(line: &str) -> Map<String, Value> {
    assert_eq!(line.find('\n'), Some(line.len() - 1), "{line}");
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// Field `a` of a line whose `a` is this text.
fn text(settings: &RedactionSettings, text: &str) -> String {
    read(&line(settings, |s| s.push_str(text)))["a"].as_str().unwrap().to_owned()
}

/// Field `a` of a line whose `a` is this JSON.
fn json(settings: &RedactionSettings, json: &str) -> String {
    serde_json::to_string(&read(&line(settings, |s| s.push_json(json.as_bytes())))["a"]).unwrap()
}

// Rules that cannot be used are refused by parameter and value.

fn refusal(settings: &RedactionSettings) -> String {
    Rules::compile(settings).unwrap_err().to_string()
}

#[test]
fn a_path_that_leads_nowhere_is_refused() {
    for path in
        ["", "$", "a..b", ".a", "a.", "a[", "a[x]", "a[-1]", "a['x", "a]b", "*", "[0]", "a b[0]c", "a$", "a[0]b", "$x"]
    {
        let refused = Rules::compile(&settings(&[path], &[]));
        let lenient = ["$x"].contains(&path);
        assert_eq!(refused.is_ok(), lenient, "{path}");
        if let Err(refused) = refused {
            assert_eq!(refused.what, format!("redact_fields={path:?}"));
        }
    }
    assert!(refusal(&settings(&["a.".repeat(40).trim_end_matches('.')], &[])).contains("1 to 32 steps"));
}

#[test]
fn an_expression_that_is_none_or_too_large_or_matches_nothing_is_refused_with_its_name() {
    for (expression, why) in [
        ("(a", "is no regular expression: unclosed group"),
        (r"(a)\1", "is no regular expression: backreferences are not supported"),
        ("(?=a)", "is no regular expression: look-around, including look-ahead and look-behind, is not supported"),
        ("a*", "must not match an empty text, or nothing at all"),
        (r"\b", "must not match an empty text, or nothing at all"),
        ("", "must not match an empty text, or nothing at all"),
        ("[a&&b]", "must not match an empty text, or nothing at all"),
        (r"(?:\w{100}){100}", "must take at most 1048576 bytes when compiled"),
        (&"(".repeat(2000), "must be"),
        (&"a".repeat(4097), "must be at most 4096 bytes"),
    ] {
        let refused = refusal(&custom(expression));
        assert!(refused.starts_with(&format!("redact_custom[\"own\"]={expression:?}: ")), "{refused}");
        assert!(refused.contains(why) || why == "must be", "{refused}");
    }
}

#[test]
fn patterns_and_replacements_are_refused_by_name() {
    assert_eq!(
        refusal(&settings(&[], &["mail"])),
        r#"redact_patterns="mail": must be one of email, phone, card, key, bearer"#
    );
    let replacement = RedactionSettings { replacement: "a\nb".to_owned(), ..settings(&["a"], &[]) };
    assert!(refusal(&replacement).starts_with(r#"redact_replacement="a\nb": must be"#));
    let named = RedactionSettings { custom: vec![("a b".to_owned(), "x".to_owned())], ..settings(&[], &[]) };
    assert!(refusal(&named).starts_with(r#"redact_custom["a b"]="x": must have a name"#));
}

#[test]
fn nothing_to_redact_is_no_rules() {
    assert!(Rules::compile(&settings(&[], &[])).unwrap().is_none());
}

// Field rules: the places that they lead to.

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

// Secrets that are disguised in the line.

#[test]
fn an_escape_hides_nothing() {
    let rules = settings(&[], &ALL);
    for json_text in [
        r#""alice\u0040example.com""#,
        r#""alice@ex\u0061mple.com""#,
        r#""\u0061lice@example.co\u006D""#,
        r#""{\"m\":\"alice@example.com\"}""#,
        r#""{\"m\":\"alice\\u0040example.com\"}""#,
        r#""x {\"m\":\"alice\\u0040example.com\"}""#,
        r#""x {\"m\":\"{\\\"n\\\":\\\"alice\\\\u0040example.com\\\"}\"}""#,
        r#""alice%40example.com""#,
        r#""alice%2540example%2ecom""#,
        r#""alice\\u002540example.com""#,
        r#"{"alice@example.com":1}"#,
        r#"{"alice\u0040example.com":{"alice%40example.com":2}}"#,
    ] {
        let after = json(&rules, json_text);
        assert!(after.contains("[redacted:email]"), "{after}");
        assert!(!after.contains("alice") && !after.contains("example"), "{after}");
    }
}

#[test]
fn what_surrounds_a_secret_stays_as_it_was_spelled() {
    let rules = settings(&[], &ALL);
    assert_eq!(text(&rules, "/find?q=alice%40example.com&r=a%20b"), "/find?q=[redacted:email]&r=a%20b");
    assert_eq!(text(&rules, "x {\"m\":\"a\\u00e9\\u0040b.com\\n\"}"), "x {\"m\":\"[redacted:email]\\n\"}");
    assert_eq!(text(&rules, "é%C3%A9lo@b.com€"), "[redacted:email]€");
    assert_eq!(text(&rules, "4111%201111%201111%201111%20x"), "[redacted:card]%20x");
    assert_eq!(text(&rules, "Bearer%20abcdefgh%0A"), "Bearer%20[redacted:bearer]%0A");
}

#[test]
fn keys_stay_different_when_their_secrets_are_gone() {
    let rules = settings(&[], &["email"]);
    let after = json(&rules, r#"{"a@b.com":1,"c@d.com":{"e@f.com":2},"g":"h@i.com"}"#);
    let kept = r#"{"[redacted:email]":1,"[redacted:email]#2":{"[redacted:email]#3":2},"g":"[redacted:email]"}"#;
    assert_eq!(after, kept);
}

#[test]
fn bytes_that_are_not_text_hide_nothing() {
    let rules = settings(&["password"], &ALL);
    let bytes = |bytes: &[u8]| read(&line(&rules, |s| s.push_bytes(bytes)))["a"].as_str().unwrap().to_owned();
    assert_eq!(bytes(b"jos\xe9@example.com \xff"), "[redacted:email] \u{FFFD}");
    assert_eq!(bytes(b"\xff4111111111111111\xfe"), "\u{FFFD}[redacted:card]\u{FFFD}");
    assert_eq!(bytes(b"alice@ex\xe4mple.com"), "[redacted:email]");
    assert_eq!(bytes(b"{\"password\":\"hunt\xff"), "{\"password\":\"[redacted:key]");
    assert_eq!(bytes(b"\xC3alice%FF@example.com"), "[redacted:email]");
}

#[test]
fn numbers_of_a_record_are_looked_at_as_those_in_json() {
    let rules = settings(&[], &["card"]);
    let record = read(&line(&rules, |s| {
        s.push_int(4_111_111_111_111_111);
        s.push_uint(5_555_555_555_554_444);
        s.push_float(4_111_111_111_111_111.0);
    }));
    for field in ["a", "b", "c"] {
        assert_eq!(record[field], "[redacted:card]");
    }
    assert_eq!(json(&custom(r"^\d{9}$"), "[123456789,1234567890]"), r#"["[redacted:own]",1234567890]"#);
}

#[test]
fn beside_a_cut_a_part_of_a_secret_is_enough() {
    let rules = settings(&[], &ALL);
    for (before, after) in [
        ("pay 4111 1111 11…", "pay [redacted:card]…"),
        ("…11 1111 1111, thanks", "…[redacted:card], thanks"),
        ("write to alice@exam…", "write to [redacted:email]"),
        ("write to alice@…", "write to [redacted:email]"),
        ("key sk-abc…", "key [redacted:key]"),
        ("…0123456789abcdefghij rest", "[redacted:key] rest"),
        ("token ghp_…[123 bytes]…0123456789abcdefghij!", "token [redacted:key][123 bytes][redacted:key]!"),
        ("Bearer abc…", "Bearer [redacted:bearer]"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE…[5 bytes]…AAAA\n-----END PRIVATE KEY----- x", "[redacted:key] x"),
        ("…AAAA\nBBBB\n-----END PRIVATE KEY----- x", "[redacted:key] x"),
        ("…3d4e5f done", "[redacted:key] done"),
        ("…standing there, …1234567", "…standing there, …[redacted:card]"),
        ("call +49 15…", "call [redacted:phone]"),
        ("and so on… or not", "and so on… or not"),
    ] {
        assert_eq!(text(&rules, before), after, "{before}");
    }
}

#[test]
fn text_that_is_made_to_be_slow_takes_as_long_as_any_other() {
    // Anything that is not linear here takes minutes: a hundred thousand steps for each of as many bytes.
    let mut rules = settings(&["password", "a.b"], &ALL);
    rules.custom = vec![("own".to_owned(), "x*[^A-Z]|[A-Z]".to_owned()), ("two".to_owned(), "(?:a+)+b".to_owned())];
    for part in [
        "a", "@", "a@", "4", "4 ", "4111 ", "+", "+1", "\\", "\\\"", "%", "%25", "\\u005c", "\"password\":",
        "password=[", "X", "[", "{\"a\":", "…", "-----BEGIN PRIVATE KEY", "bearer ", "://a:", "eyJ", "\u{FFFD}",
        "password:\"\\", "{\"b\":\"", "\"a@a.aa\"@",
    ] {
        let before = part.repeat((1 << 17) / part.len());
        let after = line(&rules, |s| s.push_str(&before));
        assert_eq!(read(&after).len(), 7);
    }
}
