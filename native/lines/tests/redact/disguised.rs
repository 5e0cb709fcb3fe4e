//! Secrets that are disguised in the line.

use super::{ALL, custom, json, line, read, settings, text};

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
