//! Each pattern, its matches and the texts that it leaves alone.

use super::{ALL, json, settings, text};

fn check(pattern: &str, found: &[(&str, &str)], left: &[&str]) {
    let rules = settings(&[], &[pattern]);
    for (before, after) in found {
        assert_eq!(text(&rules, before), after.replace('*', &format!("[redacted:{pattern}]")), "{before}");
    }
    for before in left {
        assert_eq!(text(&rules, before), *before);
    }
}

#[test]
fn addresses_are_found_in_any_script_and_versions_are_not() {
    let found = [
        ("to alice@example.com, now", "to *, now"),
        ("<Alice.B+tag_1%x@mail.example.co.uk>", "<*>"),
        ("josé.müller@пример.рф!", "*!"),
        ("x@xn--80ak6aa92e.xn--p1ai", "*"),
        ("\"john smith\"@example.com.", "*."),
        ("root@[192.168.0.1] and root@[IPv6:2001:db8::1]", "* and root@[IPv6:2001:db8::1]"),
        ("alice＠example.com", "*"),
        ("a@b.cd;c@d.ef", "*;*"),
        ("“alice@example.com”", "“*”"),
        ("mailto:alice@example.com?subject=x", "mailto:*?subject=x"),
    ];
    check("email", &found, &["react@18.2.0", "@example.com", "alice@", "alice@localhost", "a @ b.com", "@@@@", "@"]);
}

#[test]
fn cards_are_found_by_network_length_and_check_digit() {
    let found = [
        ("4111111111111111", "*"),
        ("pay 4111 1111 1111 1111.", "pay *."),
        ("4111-1111-1111-1111, 378282246310005", "*, *"),
        ("5555.5555.5555.4444", "*"),
        ("5555\u{a0}5555\u{a0}5555\u{a0}4444", "*"),
        ("card4242424242424242x", "card*x"),
        ("12 4111 1111 1111 1111 05/27", "12 * 05/27"),
        ("6011111111111117 3530111333300000 2223003122003222", "* * *"),
        ("30569309025904", "*"),
        ("4111+1111+1111+1111", "*"),
    ];
    let left = [
        "4111111111111112",
        "1795237200123456789",
        "0000000000000000",
        "41111111111111111111111",
        "deadbeef4111111111111111aa",
        "4111 1111",
        "4111,1111,1111,1111",
        "12345678-1234-4123-8123-123456789012",
    ];
    check("card", &found, &left);
}

#[test]
fn a_card_is_found_as_a_number_too() {
    let rules = settings(&[], &["card"]);
    for number in ["4111111111111111", "4111111111111111.0", "4.111111111111111e15", "4111111111111111E0"] {
        assert_eq!(json(&rules, &format!("[1,{number}]")), r#"[1,"[redacted:card]"]"#);
    }
    for number in ["4111111111111112", "411111111111.1111", "-1", "1795237200123456789", "0.4111111111111111"] {
        assert_eq!(json(&rules, number), number);
    }
}

#[test]
fn phone_numbers_are_found_with_a_prefix_or_separators() {
    let found = [
        ("call +1 (555) 010-9999!", "call *!"),
        ("+4915112345678", "*"),
        ("0049 151 12345678", "*"),
        ("(415) 555-2671 or 415-555-2671 or 415.555.2671", "* or * or *"),
        ("030 1234567", "*"),
        ("tel:+81-3-1234-5678", "tel:*"),
    ];
    let left = ["2026-11-21", "0.00123456789", "12345678", "1e+10000000", "127.0.0.1", "10 000 000", "3.141592653589"];
    check("phone", &found, &left);
}

#[test]
fn keys_are_found_by_what_they_begin_with_and_by_what_they_are_called() {
    let found = [
        ("use sk-proj-abcdefghij_klmnopq-rstuv now", "use * now"),
        ("AKIAIOSFODNN7EXAMPLE", "*"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789 hf_abcdefghijklmnopqrstuvwx", "* *"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln-_", "*"),
        ("a -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- b", "a * b"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE", "*"),
        ("api_key=abcd1234, API-Key: xyz98765", "api_key=*, API-Key: *"),
        ("postgres://bob:hunter2@db/x", "postgres://bob:*@db/x"),
        ("password is 'x' and password='hunter22'", "password is 'x' and password='*'"),
        ("/cb?code=abcdef&sig=0123456789", "/cb?code=*&sig=*"),
    ];
    check(
        "key",
        &found,
        &["risk-averse and task-oriented-programming", "max_tokens=1000", "the key is lost", "sk-short"],
    );
}

#[test]
fn credentials_of_http_are_found_and_plain_words_are_not() {
    let found = [
        ("Authorization: Bearer abc.def-ghi", "Authorization: *"),
        ("bearer   s3cr3t-token", "bearer   *"),
        ("Basic dXNlcjpwYXNzd29yZA==", "Basic *"),
        ("Cookie: session=abc123; b=2\r\nAccept: x", "Cookie: *\r\nAccept: x"),
        ("[('authorization', 'Digest xyz')]", "[('authorization', '*')]"),
        ("[(b'authorization', b'Digest xyz')]", "[(b'authorization', b'*')]"),
    ];
    check("bearer", &found, &["basic authentication", "standard bearer", "a cookie is eaten"]);
}

#[test]
fn with_patterns_go_the_names_of_fields_that_hold_credentials() {
    let rules = settings(&[], &ALL);
    let headers = r#"{"Authorization":"x","X-API-Key":"y","cookie":1,"password":null,"accept":"z","secret":{"a":"b"}}"#;
    let kept = r#"{"Authorization":"[redacted:bearer]","X-API-Key":"[redacted:key]","cookie":"[redacted:bearer]","password":null,"accept":"z","secret":{"a":"b"}}"#;
    assert_eq!(json(&rules, headers), kept);
}

#[test]
fn plain_text_stays_as_it_is() {
    let rules = settings(&[], &ALL);
    for plain in [
        "nothing to see here, 12 of 345",
        "The quick brown fox — 3.14 × 10⁵ … and on.",
        r"C:\new\table\u00 100% \\server",
        "{\"a\": [1, 2.5e3, true, null]} ünïcödé 漢字 😀",
        "2026-11-21T05:00:00.123456789Z 550e8400-e29b-41d4-a716-446655440000",
    ] {
        assert_eq!(text(&rules, plain), plain);
    }
}

#[test]
fn headers_as_pairs_lose_the_values_of_those_that_hold_credentials() {
    let rules = settings(&["tenant"], &["key", "bearer"]);
    for name in ["x-api-key", "Cookie", "set-cookie", "Proxy-Authorization", "x-auth-token", "session-id", "tenant"] {
        let kept = json(&rules, &format!(r#"{{"headers":[["accept","*/*"],["{name}","opaque value",1]]}}"#));
        assert!(!kept.contains("opaque value") && kept.contains(r#"["accept","*/*"]"#), "{kept}");
        let python =
            text(&rules, &format!("headers: [(b'accept', b'*/*'), (b'{name}', b'opaque value'), (b'a', b'b')]"));
        let is_by_name = !matches!(name, "x-auth-token" | "session-id");
        assert_eq!(!python.contains("opaque value"), is_by_name, "{python}");
        assert!(python.contains("(b'a', b'b')"), "{python}");
    }
    let inner = json(&rules, r#"{"dumped":"[[\"cookie\",\"opaque value\"]]"}"#);
    assert!(!inner.contains("opaque value"), "{inner}");
    let others = r#"{"x":[["accept","cookie"],["a",["cookie"],"b"],["cookie"],[1,"cookie","c"]]}"#;
    assert_eq!(json(&rules, others), others);
}

#[test]
fn each_value_of_a_header_that_has_several_is_replaced_by_its_name() {
    let rules = settings(&["tenant"], &["key", "bearer"]);
    for name in ["x-api-key", "Cookie", "set-cookie", "Proxy-Authorization", "x-auth-token", "session-id", "tenant"] {
        for value in [r#"["opaque 1","opaque 2"]"#, r#"["opaque 1",["opaque 2",null]]"#] {
            let grouped = json(&rules, &format!(r#"{{"accept":["a","b"],"{name}":{value},"x":["c"]}}"#));
            assert!(!grouped.contains("opaque"), "{grouped}");
            assert!(grouped.starts_with(r#"{"accept":["a","b"],"#) && grouped.ends_with(r#","x":["c"]}"#), "{grouped}");
            let pair = json(&rules, &format!(r#"{{"headers":[["accept",["a"]],["{name}",{value},"c"]]}}"#));
            assert!(!pair.contains("opaque") && pair.contains(r#"[["accept",["a"]],"#), "{pair}");
            assert!(pair.ends_with(r#","c"]]}"#), "{pair}");
        }
    }
    for python in [
        "{'cookie': ['opaque 1', 'opaque 2']}",
        "{'cookie': ('opaque 1', 'opaque 2')}",
        "MultiDict(cookie=('opaque 1', 'opaque 2'))",
        "[('cookie', ['opaque 1', 'opaque 2'])]",
        "[(b'cookie', (b'opaque 1', b'opaque 2'))]",
    ] {
        assert!(!text(&rules, python).contains("opaque"), "{python}");
    }
    let inner = json(&rules, r#"{"dumped":"{\"cookie\":[\"opaque 1\",\"opaque 2\"]}"}"#);
    assert!(!inner.contains("opaque"), "{inner}");
    let others = r#"{"session":[{"n":"a"},1],"cookies":["b"],"x":["cookie",{"c":["d"]}],"tokens":["e"]}"#;
    assert_eq!(json(&rules, others), others);
}

#[test]
fn fields_that_are_called_like_credentials_lose_their_texts() {
    let rules = settings(&[], &["key"]);
    for name in [
        "token", "csrf_token", "idToken", "X-Auth-Token", "my_secret_2", "db_pass", "passcode", "session",
        "Session_Key",
    ] {
        let kept = json(&rules, &format!(r#"{{"a":{{"{name}":"opaque value","{name}_n":1}}}}"#));
        assert!(!kept.contains("opaque value") && kept.contains(r#"_n":1"#), "{kept}");
    }
    let others = concat!(
        r#"{"tokens":"a","max_tokens":"b","tokenizer":"c","gen_ai.usage.output_tokens":5,"token":7,"passage":"d","#,
        r#""compass":"e","time_per_output_token":0.1,"token_":{"type":"f"},"session":{"n":1},"obsession":"g"}"#
    );
    assert_eq!(json(&rules, others), others);
}

#[test]
fn an_address_that_is_cut_within_its_first_part_is_found_on_both_sides() {
    let found = [
        ("mail jane.d…oe@example.com now", "mail * now"),
        ("jane.doe…@example.com", "*"),
        ("…oe@example.com", "*"),
        ("mail jane.do…", "mail *…"),
        ("user42… and more", "*… and more"),
    ];
    check("email", &found, &["wait… what", "… @", "and so on …", "12… 13"]);
}
