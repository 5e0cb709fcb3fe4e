//! Path patterns and trusted networks: their matches, and the refused ones.

use proptest::prelude::*;
use request::callers::Callers;
use request::route_pattern::{PathSet, RoutePattern};

fn matches(pattern: &str, path: &str) -> bool {
    RoutePattern::parse(pattern).unwrap().matches(path.as_bytes())
}

#[test]
fn a_pattern_matches_whole_paths_segment_by_segment() {
    for (pattern, matched, other) in [
        ("/", &["/"][..], &["", "//", "/a"][..]),
        ("/ready", &["/ready"], &["/readyz", "/ready/", "/read", "ready", "/a/ready"]),
        ("/ready/", &["/ready/"], &["/ready", "/ready//"]),
        (
            "/items/{id}",
            &["/items/7", "/items/x.y", "/items/\u{1f980}"],
            &["/items/", "/items", "/items/7/", "/items/7/a"],
        ),
        ("/{a}/b/{c}", &["/1/b/2"], &["/1/c/2", "//b/2", "/1/b/"]),
        ("/v1/*", &["/v1/", "/v1/chat", "/v1/chat/completions"], &["/v1", "/v10/chat", "/v2/v1/"]),
        ("/{tenant}/v1/*", &["/x/v1/y"], &["/x/v1", "/v1/y"]),
        ("/a/{b}/c/*", &["/a/1/c/", "/a/1/c/2/3"], &["/a/1/c", "/a//c/1", "/a/1/d/2"]),
        ("/*", &["/", "/a", "/a/b"], &["", "a"]),
        ("//*", &["//", "//a"], &["/", "/a"]),
    ] {
        matched.iter().for_each(|path| assert!(matches(pattern, path), "{pattern} {path}"));
        other.iter().for_each(|path| assert!(!matches(pattern, path), "{pattern} {path}"));
    }
}

#[test]
fn a_pattern_that_means_nothing_is_refused_by_name() {
    for pattern in
        ["", "v1", "*", "/a*", "/*/a", "/{}", "/{a", "/a}", "/{a}{b}", "/{{a}}", "/a?b", "/a#b", "/a b", "/a\n"]
    {
        let error = RoutePattern::parse(pattern).unwrap_err();
        assert!(error.starts_with(&format!("{pattern:?}: ")), "{error}");
    }
}

proptest! {
    #[test]
    fn a_set_contains_what_one_of_its_patterns_matches(
        patterns in prop::collection::vec("(/[ab]{1,2}|/\\{x\\}){1,3}(/\\*)?", 0..5), path in "(/[ab]{0,2}){0,4}",
    ) {
        let one_by_one = patterns.iter().any(|pattern| matches(pattern, &path));
        prop_assert_eq!(PathSet::parse(&patterns).unwrap().contains(path.as_bytes()), one_by_one);
    }

    #[test]
    fn any_pattern_and_any_path_are_taken_without_a_panic(pattern in "(/.{0,9}){0,4}", path: Vec<u8>) {
        if let Ok(pattern) = RoutePattern::parse(&pattern) {
            let literal = pattern.literal();
            prop_assert!(literal.is_none_or(|literal| pattern.matches(literal)));
            prop_assert!(!pattern.matches(&path) || path.first() == Some(&b'/'));
        }
    }
}

#[test]
fn a_caller_is_trusted_by_network() {
    let callers = Callers::parse(&["10.0.0.0/8", "192.0.2.7", "fd00::/8", "2001:db8::1"]).unwrap();
    for address in ["10.255.0.1", "192.0.2.7", "::ffff:10.1.2.3", "fd12::1", "fd12::1%eth0", "2001:db8:0::1"] {
        assert!(callers.contains(address), "{address}");
    }
    for address in
        ["11.0.0.1", "192.0.2.8", "fc00::1", "::10.1.2.3", "::1", "", "localhost", "10.0.0.1/8", "unix:", "10.1"]
    {
        assert!(!callers.contains(address), "{address}");
    }
}

#[test]
fn the_widest_networks_are_those_of_one_family() {
    let (four, six) = (Callers::parse(&["0.0.0.0/0"]).unwrap(), Callers::parse(&["::/0"]).unwrap());
    assert!(four.contains("203.0.113.9") && !four.contains("2001:db8::1") && !four.contains(""));
    assert!(six.contains("2001:db8::1") && !six.contains("") && !six.contains("testclient"));
}

#[test]
fn everybody_is_trusted_by_a_star_and_nobody_by_default() {
    let everybody = Callers::parse(&["10.0.0.0/8", "*"]).unwrap();
    assert!(everybody.contains("") && everybody.contains("203.0.113.9"));
    assert!(Callers::default().is_empty() && !Callers::default().contains("127.0.0.1"));
}

#[test]
fn a_network_that_is_none_is_refused_by_name() {
    for bad in ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0.1/8", "10.0.0/8", "fd00::/129", "host", "10.0.0.0/8/8", "-"] {
        assert_eq!(Callers::parse(&[bad]).unwrap_err(), format!("{bad:?}: not a network"));
    }
}
