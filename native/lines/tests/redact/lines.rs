//! A line stays a line of JSON, whatever its content and its replacements.

use super::{ALL, HEAD, RedactionSettings, compiled, custom, json, line, read, settings, text};
use lines::encode::Encoder;
use proptest::prelude::*;
use queue::event::EventSchema;
use queue::record::Scratch;
use serde_json::Value;

#[test]
fn what_is_replaced_may_need_escapes_at_any_depth() {
    for replacement in ["\"", "\\", "a\"b\\c", "…", "{name}\"", "\u{2028}", ""] {
        let rules = RedactionSettings { replacement: replacement.to_owned(), ..settings(&["p"], &["email"]) };
        let shown = |name: &str| replacement.replace("{name}", name);
        assert_eq!(text(&rules, "x a@b.com y"), format!("x {} y", shown("email")));
        let nested = text(&rules, r#"{"p":1,"q":"{\"r\":\"a@b.com\"}"}"#);
        let nested: Value = serde_json::from_str(&nested).unwrap();
        assert_eq!(nested["p"], shown("field"));
        let deeper: Value = serde_json::from_str(nested["q"].as_str().unwrap()).unwrap();
        assert_eq!(deeper["r"], shown("email"));
    }
}

#[test]
fn a_record_that_is_not_json_says_so_and_nothing_else() {
    let rules = settings(&["password"], &["email"]);
    for broken in
        ["{\"a\":", "{\"password\":\"x", "[1,]", "alice@example.com", "{}}", "{\"a\":1}}, \"x\":[", "\"", "1 2", "{]"]
    {
        let record = line(&rules, |s| {
            s.push_json(broken.as_bytes());
            s.push_str("alice@example.com");
        });
        let record = read(&record);
        assert_eq!(record["redaction"], "the record was not valid JSON", "{broken}");
        assert_eq!(record["seq"], 7);
        assert!(!record.contains_key("a") && !record.contains_key("b"));
    }
}

#[test]
fn json_nested_too_deeply_to_be_followed_is_searched_all_the_same() {
    let rules = settings(&["password"], &["email"]);
    let mut nested = r#"{"m":"alice@example.com","password":"hunter2"}"#.to_owned();
    for _ in 0..6 {
        nested = serde_json::to_string(&serde_json::json!({ "n": nested })).unwrap();
    }
    let after = text(&rules, &nested);
    assert!(!after.contains("alice") && !after.contains("hunter2"), "{after}");
    let brackets = format!("{}\"alice@example.com\"{}", "[".repeat(400), "]".repeat(400));
    assert!(!text(&rules, &brackets).contains("alice"));
    assert!(!line(&rules, |s| s.push_json(brackets.as_bytes())).contains("alice"));
}

#[test]
fn the_name_of_an_event_is_searched_but_for_our_own() {
    let rules = RedactionSettings { replacement: "\"{name}\"".to_owned(), ..settings(&[], &["email"]) };
    let mut encoder = Encoder::new().redacting(compiled(&rules));
    let mut named = |id, name: &str| {
        let mut out = Vec::new();
        encoder.line(&mut out, &HEAD, &EventSchema::new(id, name, &["a"]).unwrap().into(), &[]).unwrap();
        read(&String::from_utf8(out).unwrap())["event_name"].as_str().unwrap().to_owned()
    };
    for _ in 0..2 {
        assert_eq!(named(16, "to alice@example.com"), "to \"email\"");
        assert_eq!(named(17, "to \"nobody\""), "to \"nobody\"");
        assert_eq!(named(15, "to alice@example.com"), "to alice@example.com", "the books refer to it");
    }
    // It matches anywhere.
    let rules = RedactionSettings { replacement: String::new(), ..custom("[a-z_.]+") };
    let mut encoder = Encoder::new().redacting(compiled(&rules));
    let mut out = Vec::new();
    encoder.line(&mut out, &HEAD, &EventSchema::new(16, "Name", &["a"]).unwrap().into(), &[]).unwrap();
    assert_eq!(read(&String::from_utf8(out).unwrap())["event_name"], "N");
}

#[test]
fn bytes_that_are_not_text_make_a_record_that_is_not_json() {
    let broken = b"\"alice@example.com \xE2\x80\"";
    let mut scratch = Scratch::new();
    scratch.push_json(broken);
    let plan = EventSchema::new(16, "e", &["a"]).unwrap().into();
    let mut out = Vec::new();
    let mut encoder = Encoder::new().redacting(compiled(&settings(&[], &["email"])));
    encoder.line(&mut out, &HEAD, &plan, scratch.as_slice()).unwrap();
    assert_eq!(read(std::str::from_utf8(&out).unwrap())["redaction"], "the record was not valid JSON");
}

#[test]
fn a_string_that_json_does_not_allow_makes_a_record_that_is_not_json() {
    let rules = settings(&[], &["email"]);
    for broken in ["\"a@b.com\0\"", "{\"a@b.com\u{1}\":1}", r#""a@b.com\q""#, r#""a@b.com\u00""#] {
        let after = read(&line(&rules, |s| s.push_json(broken.as_bytes())));
        assert_eq!(after.get("redaction"), Some(&"the record was not valid JSON".into()), "{broken:?}: {after:?}");
    }
    // In a text it stays what it is, and what must be replaced in it is found.
    assert_eq!(text(&settings(&["p"], &[]), "{\"p\":\"a\nb\"}"), "{\"p\":\"[redacted:field]\"}");
}

#[test]
fn a_match_of_a_part_of_a_character_takes_all_of_it() {
    for expression in [r"(?-u)\xC3", r"(?-u)\xA9", r"(?-u:\xA9)x"] {
        assert_eq!(text(&custom(expression), "aéxb").replace('x', ""), "a[redacted:own]b");
    }
    assert_eq!(text(&custom(r"(?-u)\x98"), "a😀b"), "a[redacted:own]b");
}

#[test]
fn the_first_of_two_matches_that_overlap_stands_for_both() {
    assert_eq!(text(&custom("a@b|b.com x"), "a@b.com x"), "[redacted:own].com x");
    let mut both = settings(&[], &["email"]);
    both.custom = vec![("own".to_owned(), "com x+".to_owned())];
    assert_eq!(text(&both, "a@b.com xx y"), "[redacted:email] y");
}

#[test]
fn an_expression_without_end_gets_a_limited_number_of_matches() {
    let text = text(&custom("x+y"), &"xy ".repeat(400));
    assert_eq!(text.matches("[redacted:own]").count(), 257);
    assert!(text.ends_with("[redacted:own]") && !text.contains('x'));
    let limited = super::text(&custom("x{1,9}y"), &"xy ".repeat(400));
    assert_eq!(limited.matches("[redacted:own]").count(), 400);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[ -~]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec(("[a-z]{1,4}", inner.clone()), 0..6).prop_map(Value::from_iter),
            inner.prop_map(|inner| Value::from(inner.to_string())),
        ]
    })
}

/// Puts `secret` into the leaf that `path` happens to lead to, as text, as JSON in a text, or as a key.
fn plant(value: &mut Value, path: &[u8], secret: &str) {
    let (step, rest) = path.split_first().map_or((0, path), |(step, rest)| (usize::from(*step), rest));
    match value {
        Value::Array(items) if !items.is_empty() => {
            let at = step % items.len();
            plant(&mut items[at], rest, secret);
        }
        Value::Object(members) if !members.is_empty() && step < 200 => {
            let at = step % members.len();
            plant(members.values_mut().nth(at).unwrap(), rest, secret);
        }
        Value::Object(members) => {
            members.insert(format!("k {secret}"), Value::Null);
        }
        other => *other = Value::from(format!("before {secret} after")),
    }
}

#[test]
fn what_only_looks_like_a_number_does_not_break_the_line() {
    // A line that no rule can touch is not examined: JSON is trusted to be JSON.
    let rules = custom(r#"["\\].?"#);
    for word in ["-", "1-2", "1e", "1.", "01", "+1", "--1", "1e+", ".5"] {
        let after = line(&rules, |s| s.push_json(word.as_bytes()));
        assert!(super::read(&after).get("a").is_none(), "{word}: {after}");
    }
    for word in ["0", "-0", "12", "-1.5", "1e9", "1.25E-3", "6e+2"] {
        assert_eq!(json(&rules, word).parse::<f64>().unwrap(), word.parse::<f64>().unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_secret_is_found_wherever_it_is_planted(
        mut value in any_json(), path in prop::collection::vec(any::<u8>(), 0..6), quoting in 0..4
    ) {
        plant(&mut value, &path, "canary.x7@example.com");
        for _ in 0..quoting {
            value = Value::from(value.to_string());
        }
        let after = line(&settings(&[], &["email"]), |s| s.push_json(value.to_string().as_bytes()));
        read(&after);
        prop_assert!(!after.contains("canary"), "{}", after);
    }

    #[test]
    fn what_holds_no_secret_is_left_byte_for_byte(value in any_json()) {
        let text = value.to_string();
        prop_assume!(!text.contains(['@', '+', ':']) || !text.contains('@') && !text.contains("://"));
        let push = |s: &mut Scratch| s.push_json(text.as_bytes());
        prop_assert_eq!(line(&settings(&["no such name"], &["email"]), push), line(&settings(&[], &[]), push));
    }

    #[test]
    fn what_is_passed_over_at_a_glance_would_not_have_been_found(value in any_json(), part in prop_oneof![
        Just("a@b.com"), Just("Bearer abcdef"), Just("4111 1111 1111 1111"), Just("+1 555 010 9999"), Just("pin: 1"),
        Just("sk-abcdefghijklmnopqrst"), Just("api_key=abcd"), Just("x…12345"), Just("a%40b.com"), Just("none")
    ]) {
        let rules = settings(&["pin"], &ALL);
        // Never matches, and every line is searched for it: none is skipped.
        let thorough = RedactionSettings { custom: vec![("own".to_owned(), "$never".to_owned())], ..rules.clone() };
        let push = |s: &mut Scratch| {
            s.push_json(value.to_string().as_bytes());
            s.push_str(part);
        };
        prop_assert_eq!(line(&rules, push), line(&thorough, push));
    }

    #[test]
    fn any_bytes_make_a_line_of_json(parts in prop::collection::vec(prop_oneof![
        Just(b"a@b.com".to_vec()), Just(b"\"".to_vec()), Just(b"\\".to_vec()), Just(b"{\"p\":".to_vec()), Just(b"%40".to_vec()),
        Just(b"\\u0040".to_vec()), Just(b"]".to_vec()), Just(b"4111111111111111".to_vec()), Just(b"p=".to_vec()),
        Just("…".into()), Just(b"\xE2\x80".to_vec()), prop::collection::vec(any::<u8>(), 0..4)
    ], 0..12)) {
        let bytes = parts.concat();
        let mut rules = settings(&["p", "$.b[0].p"], &ALL);
        rules.custom = vec![("own".to_owned(), r#"["\\].?"#.to_owned())];
        let after = line(&rules, |s| {
            s.push_bytes(&bytes);
            s.push_json(&bytes);
        });
        read(&after);
    }

    #[test]
    fn any_payload_makes_a_line_of_json_or_none(noise in prop::collection::vec(any::<u8>(), 0..64)) {
        let plan = EventSchema::new(16, "e", &["a", "b", "c"]).unwrap().into();
        let mut encoder = Encoder::new().redacting(compiled(&settings(&["a"], &ALL)));
        let mut out = Vec::new();
        if encoder.line(&mut out, &HEAD, &plan, &noise).is_ok() {
            read(std::str::from_utf8(&out).unwrap());
        }
    }
}
