//! `tracestate`: the recommendation's grammar, its limits, and OpenTelemetry's member.

use proptest::prelude::*;
use request::trace_state::{MAX_BYTES, TraceState};

fn read(lines: &[&str]) -> Option<String> {
    TraceState::from_lines(lines.iter().map(|line| line.as_bytes())).map(|state| state.as_str().to_owned())
}

#[test]
fn lines_are_one_list_in_their_order_without_blanks_around_members() {
    for (lines, list) in [
        (&["a=1"][..], "a=1"),
        (&["a=1,b=2", "c=3", "d=4,e=5"], "a=1,b=2,c=3,d=4,e=5"),
        (&[" a=1 \t, \tb=2\t"], "a=1,b=2"),
        (&["", "a=1", "", " , ,\t", "b=2,"], "a=1,b=2"),
        (&["a= 1 2 ", "b=\"{}<>"], "a= 1 2,b=\"{}<>"),
        (&["0a/_-*@b@@=1"], "0a/_-*@b@@=1"),
        (&["a=1,a=2", "a=3,b=1,a=4"], "a=1,b=1"),
    ] {
        assert_eq!(read(lines).as_deref(), Some(list), "{lines:?}");
    }
}

#[test]
fn a_list_that_breaks_a_rule_or_holds_nothing_is_dropped_whole() {
    let long_key = format!("{}=1", "k".repeat(257));
    let long_value = format!("k={}", "v".repeat(257));
    for bad in [
        "", " ,\t,", "a", "=1", "a=", "a=1,b", "a=1,b=", "a=b=c", "A=1", "@a=1", "_a=1", "a b=1", "a =1", "a.b=1",
        "a=\u{7f}", "a=é", "a=1\t2", "a=1\r\nb: c", "a=\0", &long_key, &long_value,
    ] {
        assert_eq!(read(&[bad]), None, "{bad:?}");
        let beside = read(&["good=1", bad]);
        assert_eq!(beside.is_some(), bad.trim_matches([' ', ',', '\t']).is_empty(), "{bad:?}");
    }
    assert_eq!(TraceState::from_lines([&b"a=\xff"[..]].into_iter()), None);
    for good in [format!("{}=1", "k".repeat(256)), format!("k={}", "v".repeat(256))] {
        assert_eq!(read(&[&good]), Some(good));
    }
}

#[test]
fn a_list_has_at_most_32_members() {
    let members = |count: usize| (0..count).map(|number| format!("k{number}={number}")).collect::<Vec<_>>();
    let count = |lines: &[String]| {
        TraceState::from_lines(lines.iter().map(String::as_bytes)).map(|state| state.as_str().split(',').count())
    };
    assert_eq!(count(&members(32)), Some(32));
    assert_eq!(count(&members(33)), None);
    assert_eq!(count(&[members(32).join(","), ",,,".to_owned()]), Some(32), "empty members do not count");
    assert_eq!(count(&[members(32).join(","), "k0=again".to_owned()]), None, "members with a known key do");
}

#[test]
fn a_list_that_is_too_long_loses_its_long_members_first_and_then_its_last() {
    let short = |name: &str| format!("{name}={}", "v".repeat(100));
    let long = |name: &str| format!("{name}={}", "v".repeat(200));
    let list: Vec<String> = (0..32)
        .map(|number| if number % 2 == 0 { short(&format!("s{number}")) } else { long(&format!("l{number}")) })
        .collect();
    let kept = read(&[&list.join(",")]).unwrap();
    assert!(kept.len() <= MAX_BYTES && kept.len() > MAX_BYTES - 201, "{}", kept.len());
    assert_eq!(kept.split(',').filter(|member| member.starts_with('s')).count(), 16);
    assert_eq!(kept.split(',').filter(|member| member.starts_with('l')).collect::<Vec<_>>(), [&list[1]]);
    let shorts: Vec<String> = (0..32).map(|number| short(&format!("s{number}"))).collect();
    let kept = read(&[&shorts.join(",")]).unwrap();
    assert_eq!(kept, shorts[..kept.split(',').count()].join(","));
    assert!(kept.len() >= 512);
}

#[test]
fn opentelemetrys_member_gives_threshold_and_random_value() {
    let probability = |list: &str| TraceState::from_lines([list.as_bytes()].into_iter()).unwrap().probability();
    assert_eq!(probability("ot=th:c"), (Some(0xc0_0000_0000_0000), None));
    assert_eq!(probability("ot=th:0"), (Some(0), None));
    assert_eq!(probability("ot=th:ffffffffffffff"), (Some((1 << 56) - 1), None));
    assert_eq!(probability("a=1,ot=rv:0123456789abcd;th:8;x:y"), (Some(1 << 55), Some(0x01_2345_6789_abcd)));
    for neither in
        ["a=1", "ot=x:1", "ot=th:", "ot=th:C", "ot=th:0x8", "ot=th:123456789abcdef", "ot=rv:1", "ot=th", "xot=th:8"]
    {
        assert_eq!(probability(neither), (None, None), "{neither}");
    }
    assert_eq!(probability("ot=th:zz;rv:00000000000001"), (None, Some(1)), "each for itself");
}

proptest! {
    #[test]
    fn whatever_comes_in_what_goes_out_is_short_and_reads_back_the_same(
        lines in prop::collection::vec(prop::collection::vec(prop::sample::select(b"ab1=, \t@*\xff".to_vec()), 0..40), 0..6)
    ) {
        if let Some(state) = TraceState::from_lines(lines.iter().map(Vec::as_slice)) {
            prop_assert!(state.as_str().len() <= MAX_BYTES);
            prop_assert_eq!(TraceState::from_lines([state.as_str().as_bytes()].into_iter()), Some(state.clone()));
        }
    }
}
