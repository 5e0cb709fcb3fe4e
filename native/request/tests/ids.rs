//! Ids: W3C Trace Context headers, client request ids, uniqueness.

use proptest::prelude::*;
use queue::layout::SampledOut;
use queue::record::Trace;
use request::callers::Caller;
use request::ids::{
    IdSource, MAX_REQUEST_ID_BYTES, MAX_TRACE_STATE_BYTES, RequestIds, TraceState, is_request_id, parse_traceparent,
    traceparent,
};
use request::sampler::HeadDecision;
use std::collections::HashSet;

const TRACE_ID: [u8; 16] =
    [0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36];
const SPAN_ID: [u8; 8] = [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7];

/// The recommendation's own example, and variants that its rules allow or forbid.
#[test]
fn traceparent_headers_are_read_by_the_rules_of_trace_context() {
    let flags = |header: &str| {
        parse_traceparent(header.as_bytes()).map(|(trace_id, span_id, flags)| {
            assert_eq!((trace_id, span_id), (TRACE_ID, SPAN_ID));
            flags
        })
    };
    let ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
    assert_eq!(flags(&format!("00-{ids}-01")), Some(1));
    assert_eq!(flags(&format!("00-{ids}-00")), Some(0));
    assert_eq!(flags(&format!("00-{ids}-03")), Some(3), "the random-trace-id flag of Level 2");
    assert_eq!(flags(&format!("00-{ids}-ff")), Some(3), "unknown flags are not passed on");
    assert_eq!(flags(&format!(" 00-{ids}-01\t")), Some(1), "white space around a header's value does not count");
    assert_eq!(flags(&format!("cc-{ids}-01")), Some(1), "a later version");
    assert_eq!(flags(&format!("cc-{ids}-01-what-the-future-brings")), Some(1));
    assert_eq!(flags(&format!("fe-{ids}-01-")), Some(1));
    for bad in [
        format!("ff-{ids}-01"),
        format!("00-{ids}-01-more"),
        format!("00-{ids}-01-"),
        format!("00-{ids}-0"),
        format!("00-{ids}-"),
        format!("00-{ids}"),
        format!("cc-{ids}-01.more"),
        format!("cc-{ids}-010"),
        format!("0-{ids}-01"),
        format!("000-{ids}-01"),
        format!(".0-{ids}-01"),
        format!("00-{ids}-.1"),
        format!("00_{ids}_01"),
        format!("00-{}-01", ids.to_uppercase()),
        format!("CC-{ids}-01"),
        format!("00-{ids}-0A"),
        format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
        format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16)),
        "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-011".to_owned(),
        "00-4bf92f3577b34da6a3ce929d0e0e4736.00f067aa0ba902b7-01".to_owned(),
        "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
        String::new(),
        "-".repeat(55),
        "é".repeat(28),
        format!("00-{ids}-01\n"),
        format!("\u{b}00-{ids}-01"),
    ] {
        assert_eq!(flags(&bad), None, "{bad:?}");
    }
}

proptest! {
    #[test]
    fn any_header_is_read_without_a_panic_and_any_ids_come_back(
        noise in prop::collection::vec(any::<u8>(), 0..80),
        trace_id in 1..=u128::MAX,
        span_id in 1..=u64::MAX,
        flags in 0..4u8,
    ) {
        let _ = parse_traceparent(&noise);
        let header = format!("00-{trace_id:032x}-{span_id:016x}-{flags:02x}");
        let expected = (trace_id.to_be_bytes(), span_id.to_be_bytes(), flags);
        prop_assert_eq!(parse_traceparent(header.as_bytes()), Some(expected));
    }
}

#[test]
fn a_call_to_another_service_names_our_span_as_its_parent_and_no_unknown_flag() {
    let trace = Trace { trace_id: TRACE_ID, span_id: SPAN_ID, parent_span_id: [7; 8], flags: 0xff };
    assert_eq!(traceparent(&trace), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03");
}

#[test]
fn a_tracers_span_of_the_same_trace_keeps_the_callers_span_as_its_parent() {
    let trace = Trace { trace_id: TRACE_ID, span_id: [1; 8], parent_span_id: SPAN_ID, flags: 1 };
    let mut ids = RequestIds::new(trace, None, None);
    ids.follow(TRACE_ID, [2; 8], 0);
    assert_eq!(ids.trace, Trace { span_id: [2; 8], flags: 0, ..trace });
    assert_eq!(ids.request_id(), *b"0101010101010101");
    assert!(!ids.follow(TRACE_ID, [2; 8], 0), "the same trace");
    assert!(ids.declared_by_caller().0, "what the caller said, whatever the tracer decided");
    assert!(ids.follow([9; 16], [3; 8], 1), "another trace");
    assert_eq!(ids.trace.parent_span_id, [0; 8]);
    let head = HeadDecision { kept: false, adjusted_count: 0.0, left_out_by: SampledOut::Head, th: None, rv: None };
    ids.set_decision(Caller::Nobody, &head);
    assert_eq!(ids.trace.flags, 1, "the tracer's, so nothing is decided for it here");
}

#[test]
fn a_trace_that_begins_here_reports_its_decision_and_a_continued_one_passes_the_callers_on() {
    let state = |text: &str| TraceState::from_lines([text.as_bytes()].into_iter());
    let root = Trace { trace_id: TRACE_ID, span_id: SPAN_ID, parent_span_id: [0; 8], flags: 3 };
    let mut ids = RequestIds::new(root, None, None);
    assert_eq!(ids.outgoing_state(), None);
    for (kept, threshold, flags, reported) in [
        (true, Some(0), 3, Some("ot=th:0")),
        (true, Some(0xc0_0000_0000_0000), 3, Some("ot=th:c")),
        (true, Some(0xfd_70a0_0000_0000), 3, Some("ot=th:fd70a")),
        (true, Some((1 << 56) - 1), 3, Some("ot=th:ffffffffffffff")),
        (false, None, 2, None),
    ] {
        let head = HeadDecision { kept, adjusted_count: 1.0, left_out_by: SampledOut::Head, th: threshold, rv: None };
        ids.set_decision(Caller::Nobody, &head);
        assert_eq!((ids.trace.flags, ids.outgoing_state().as_deref()), (flags, reported));
    }
    let continued = RequestIds::new(
        Trace { parent_span_id: [7; 8], flags: 1, ..root },
        None,
        state("a=1,ot=th:8;rv:00000000000001"),
    );
    assert_eq!(continued.outgoing_state().as_deref(), Some("a=1,ot=th:8;rv:00000000000001"));
    assert_eq!(continued.declared_by_caller(), (true, Some(1 << 55), Some(1)));
    let unsampled = RequestIds::new(Trace { parent_span_id: [7; 8], flags: 2, ..root }, None, None);
    assert_eq!(unsampled.declared_by_caller(), (false, None, None));
    assert_eq!(RequestIds::new(root, None, None).declared_by_caller(), (true, None, None));
}

#[test]
fn an_id_that_another_middleware_found_replaces_the_headers_only_if_it_is_valid() {
    let trace = Trace { trace_id: TRACE_ID, span_id: SPAN_ID, parent_span_id: [0; 8], flags: 1 };
    let mut ids = RequestIds::new(trace, Some(b"header"), None);
    ids.set_client(b"with\nbreak");
    assert_eq!(ids.client(), Some(&b"header"[..]));
    ids.set_client(b"correlation");
    assert_eq!(ids.client(), Some(&b"correlation"[..]));
}

#[test]
fn a_request_with_a_parent_becomes_its_child_and_one_without_begins_a_trace() {
    let source = IdSource::new().unwrap();
    let header = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let child = source.trace(Some(header));
    assert_eq!((child.trace_id, child.parent_span_id, child.flags), (TRACE_ID, SPAN_ID, 1));
    assert!(child.span_id != SPAN_ID && child.span_id != [0; 8]);
    for parent in [None, Some(&b"not a traceparent"[..])] {
        let root = source.trace(parent);
        assert_eq!((root.parent_span_id, root.flags), ([0; 8], 3), "sampled, and its id is random");
        assert!(root.trace_id != TRACE_ID && root.trace_id != [0; 16] && root.span_id != [0; 8]);
    }
}

#[test]
fn ids_are_unique_over_threads_and_over_sources() {
    const THREADS: usize = 4;
    const EACH: usize = 50_000;
    let sources = [IdSource::new().unwrap(), IdSource::new().unwrap()];
    let made = std::thread::scope(|scope| {
        let work = |source: &IdSource| (0..EACH).map(|_| source.trace(None)).collect::<Vec<_>>();
        let source = |thread: usize| &sources[thread % 2];
        let threads: Vec<_> = (0..THREADS).map(source).map(|source| scope.spawn(move || work(source))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let distinct = |ids: &mut dyn Iterator<Item = u128>| ids.collect::<HashSet<_>>().len();
    assert_eq!(distinct(&mut made.iter().map(|trace| u128::from_be_bytes(trace.trace_id))), THREADS * EACH);
    assert_eq!(distinct(&mut made.iter().map(|trace| u64::from_be_bytes(trace.span_id).into())), THREADS * EACH);
    // Sampling goes by the low 56 bits of the trace id: a tenth of them lies below a tenth of their range.
    let low = |trace: &Trace| u128::from_be_bytes(trace.trace_id) & ((1 << 56) - 1);
    let below = made.iter().filter(|trace| low(trace) < (1 << 56) / 10).count();
    assert!((19_000..21_000).contains(&below), "{below} of 200,000");
}

#[test]
fn a_forked_child_that_draws_new_seeds_does_not_repeat_its_parents_ids() {
    let source = IdSource::new().unwrap();
    let before: HashSet<_> = (0..1000).map(|_| source.trace(None).trace_id).collect();
    source.reseed().unwrap();
    assert!((0..1000).all(|_| !before.contains(&source.trace(None).trace_id)));
}

#[test]
fn a_request_id_is_visible_ascii_of_1_to_128_characters() {
    let longest = "x".repeat(MAX_REQUEST_ID_BYTES);
    for good in ["a", "req-1", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", longest.as_str()] {
        assert!(is_request_id(good.as_bytes()), "{good:?}");
    }
    let too_long = "x".repeat(MAX_REQUEST_ID_BYTES + 1);
    for bad in ["", " ", "a b", "a\n", "a\r\nb", "\t", "a\0", "a\u{7f}", "é", too_long.as_str()] {
        assert!(!is_request_id(bad.as_bytes()), "{bad:?}");
    }
    assert!(!is_request_id(&[0xff]));
}

#[test]
fn of_a_strangers_trace_the_services_that_we_call_are_given_our_decision_and_none_of_its_own() {
    let state = |text: &str| TraceState::from_lines([text.as_bytes()].into_iter());
    let strangers = Trace { trace_id: TRACE_ID, span_id: SPAN_ID, parent_span_id: [7; 8], flags: 1 };
    let head = HeadDecision {
        kept: true,
        adjusted_count: 2.0,
        left_out_by: SampledOut::Head,
        th: Some(1 << 55),
        rv: Some(0xc0_0000_0000_00ff),
    };
    let left_out = HeadDecision { kept: false, th: None, ..head };
    let long = (0..32).map(|number| format!("v{number}={number}")).collect::<Vec<_>>().join(",");
    for (sent, with_state) in [
        (state("a=1,ot=th:0;rv:ffffffffffffff"), "ot=th:8;rv:c00000000000ff,a=1".to_owned()),
        (None, "ot=th:8;rv:c00000000000ff".to_owned()),
        (state(&long), format!("ot=th:8;rv:c00000000000ff,{}", long.trim_end_matches(",v31=31"))),
    ] {
        let mut ids = RequestIds::new(strangers, None, sent);
        assert_eq!(ids.caller(|| false), Caller::Stranger);
        ids.set_decision(Caller::Stranger, &head);
        assert_eq!((ids.trace.flags, ids.outgoing_state()), (1, Some(with_state)));
        assert_eq!(ids.random(), head.rv);
        ids.set_decision(Caller::Stranger, &left_out);
        assert_eq!(ids.trace.flags, 0);
        assert!(ids.outgoing_state().unwrap().starts_with("ot=rv:c00000000000ff"));
    }
}

#[test]
fn a_tracers_trace_that_came_with_the_request_is_a_strangers_unless_its_caller_is_trusted() {
    let own = Trace { trace_id: TRACE_ID, span_id: SPAN_ID, parent_span_id: [0; 8], flags: 3 };
    let mut ids = RequestIds::new(own, None, None);
    ids.follow([9; 16], [3; 8], 1);
    assert_eq!(ids.caller(|| false), Caller::Nobody, "the tracer made it");
    ids.set_remote(true);
    assert_eq!((ids.caller(|| false), ids.caller(|| true)), (Caller::Stranger, Caller::Nobody));
}

// `tracestate`: the recommendation's grammar, its limits, and OpenTelemetry's member.

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
    assert!(kept.len() <= MAX_TRACE_STATE_BYTES && kept.len() > MAX_TRACE_STATE_BYTES - 201, "{}", kept.len());
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
            prop_assert!(state.as_str().len() <= MAX_TRACE_STATE_BYTES);
            prop_assert_eq!(TraceState::from_lines([state.as_str().as_bytes()].into_iter()), Some(state.clone()));
        }
    }
}
