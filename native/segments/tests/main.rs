//! The account of a segment in its footer; and the hash chain: how a line's value is computed, and that every change to a
//! chain of lines is found.

// By the name that the other crates of the workspace use.
extern crate inferlog_segments as segments;

use proptest::prelude::*;
use segments::chain::{self, ALGORITHMS, Algorithm, Broken, Chain, START};
use segments::segment_account::{SegmentAccount, Span};
use std::collections::BTreeMap;

// The records in a segment's footer equal those of its lines, in any order of the lines.

fn line(boot_id: u64, seq: Option<u64>) -> String {
    let seq = seq.map_or(String::new(), |seq| format!(",\"seq\":{seq}"));
    let text = "x".repeat(usize::try_from(boot_id).unwrap() * 7 % 100);
    format!(
        "{{\"timestamp\":\"2026-11-21T05:00:00.123456789Z\",\"severity_text\":\"INFO\",\"event_name\":\"a\",\
         \"boot_id\":\"{boot_id:016x}\",\"pid\":7{seq},\"message\":\"{text}\"}}\n"
    )
}

fn spans(account: &SegmentAccount) -> Vec<Span> {
    account.spans().copied().collect()
}

/// A process's part of a batch: whether something is reported about it, its records, and which of them is missing.
type Part = (u64, bool, u64, Option<u64>);

proptest! {
    /// A batch holds the reports about a process, then its records, then the next process's.
    #[test]
    fn spans_and_checksum_are_those_of_the_lines(
        batches in prop::collection::vec(
            prop::collection::vec((0_u64..5, any::<bool>(), 0_u64..40, prop::option::of(0_u64..40)), 0..6), 1..4,
        ),
    ) {
        let (mut next, mut expected) = (BTreeMap::<u64, u64>::new(), BTreeMap::<u64, Span>::new());
        let (mut account, mut all) = (SegmentAccount::default(), String::new());
        for mut batch in batches {
            batch.sort_by_key(|part: &Part| part.0);
            batch.dedup_by_key(|part| part.0);
            let mut lines = Vec::new();
            for (boot_id, reported, records, gap) in batch {
                if reported {
                    lines.push(line(boot_id, None));
                }
                for number in 0..records {
                    let seq = next.entry(boot_id).or_default();
                    *seq += u64::from(gap == Some(number)) + 1;
                    lines.push(line(boot_id, Some(*seq)));
                    let one = Span { boot_id, pid: 7, first: *seq, last: *seq, records: 1 };
                    expected.entry(boot_id).and_modify(|span| span.add(&one)).or_insert(one);
                }
            }
            account.add(lines.concat().as_bytes(), lines.len() as u64);
            all += &lines.concat();
        }
        prop_assert_eq!(spans(&account), expected.into_values().collect::<Vec<_>>());
        prop_assert_eq!(account.crc32(), crc32fast::hash(all.as_bytes()));
    }
}

#[test]
fn members_of_a_footer_have_these_bytes() {
    let mut account = SegmentAccount::default();
    account.add([line(1, Some(4)), line(1, Some(5))].concat().as_bytes(), 2);
    let crc = crc32fast::hash([line(1, Some(4)), line(1, Some(5))].concat().as_bytes());
    let spans = r#"[{"boot_id":"0000000000000001","pid":7,"first":4,"last":5,"records":2}]"#;
    assert_eq!(account.members(), format!(",\"crc32\":\"{crc:08x}\",\"spans\":{spans}"));
}

const KEY: chain::Value = [7; 32];

fn hex(value: &[u8]) -> String {
    value.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn chained(algorithm: Algorithm, key: Option<chain::Value>, lines: usize) -> Vec<Vec<u8>> {
    let mut chain = Chain::new(algorithm, key, START);
    let line = |number| format!("{{\"seq\":{number},\"text\":\"\\\"chain\\\":\"}}\n").into_bytes();
    (0..lines)
        .map(|number| {
            let mut line = line(number);
            chain.append(&mut line);
            line
        })
        .collect()
}

/// The first line that does not fit, counted from 0, and its fault.
fn check(algorithm: Algorithm, key: Option<chain::Value>, lines: &[Vec<u8>]) -> Result<(), (usize, Broken)> {
    let mut chain = Chain::new(algorithm, key, START);
    lines.iter().enumerate().try_for_each(|(number, line)| {
        chain.check(line.strip_suffix(b"\n").unwrap()).map_err(|broken| (number, broken))
    })
}

#[test]
fn a_value_is_the_hash_of_the_one_before_and_the_line_as_anybody_can_compute_it() {
    // printf '%064d{"a":1}' 0, its zeroes as bytes, through b3sum, sha256sum and openssl.
    let expected = [
        (Algorithm::Blake3, None, hex(blake3::hash(&[&START[..], br#"{"a":1}"#].concat()).as_bytes())),
        (Algorithm::Sha256, None, "b06a229070741292512e8760f470dd7a4c46ccfdf253df781d88dabe58c1ccb1".to_owned()),
        (Algorithm::Sha256, Some(KEY), "2c158fed4957f9e9ee172794e9d8d3d323a52ee470bc60bd3b0a14d45d17b02e".to_owned()),
    ];
    for (algorithm, key, value) in expected {
        let mut line = br#"{"a":1}"#.to_vec();
        Chain::new(algorithm, key, START).append(&mut line);
        assert_eq!(String::from_utf8(line).unwrap(), format!("{{\"a\":1,\"chain\":\"{value}\"}}"));
    }
}

#[test]
fn lines_stay_json_and_a_line_without_its_newline_gets_none() {
    let mut chain = Chain::new(Algorithm::Blake3, None, START);
    let (mut with, mut without) = (b"{\"a\":1}\n".to_vec(), b"{\"a\":1}".to_vec());
    chain.clone().append(&mut with);
    chain.append(&mut without);
    assert_eq!(with, [&without[..], b"\n"].concat());
    let parsed: serde_json::Value = serde_json::from_slice(&without).unwrap();
    assert_eq!(parsed["chain"], hex(&chain.value()));
    assert_eq!(chain::value_of(&with), Some(chain.value()));
}

#[test]
fn many_lines_at_once_are_the_same_as_one_after_the_other() {
    let lines = chained(Algorithm::Sha256, None, 5);
    let plain: Vec<u8> =
        (0..5).flat_map(|n| format!("{{\"seq\":{n},\"text\":\"\\\"chain\\\":\"}}\n").into_bytes()).collect();
    let mut out = b"before\n".to_vec();
    Chain::new(Algorithm::Sha256, None, START).append_lines(&plain, &mut out);
    assert_eq!(out, [b"before\n".to_vec(), lines.concat()].concat());
}

#[test]
fn a_chain_goes_on_in_the_next_segment_from_what_its_header_names() {
    for algorithm in ALGORITHMS {
        let mut chain = Chain::new(algorithm, Some(KEY), START);
        chain.append(&mut b"{\"a\":1}".to_vec());
        let header = format!("{{\"event_name\":\"segment.header\"{}}}", chain.header_members());
        assert_eq!(chain::of_header(header.as_bytes()), Some((algorithm, true, chain.value())));
    }
    assert_eq!(chain::of_header(b"{\"event_name\":\"segment.header\"}"), None);
}

#[test]
fn without_its_key_a_keyed_chain_fits_nowhere() {
    for algorithm in ALGORITHMS {
        let lines = chained(algorithm, Some(KEY), 3);
        assert_eq!(check(algorithm, Some(KEY), &lines), Ok(()));
        assert_eq!(check(algorithm, None, &lines), Err((0, Broken::Differs)));
        assert_eq!(check(algorithm, Some([8; 32]), &lines), Err((0, Broken::Differs)));
    }
}

#[test]
fn behind_an_altered_line_the_chain_goes_on_so_that_it_is_one_finding() {
    let mut lines = chained(Algorithm::Blake3, None, 4);
    lines[1][2] ^= 1;
    let mut chain = Chain::new(Algorithm::Blake3, None, START);
    let found: Vec<_> = lines.iter().map(|line| chain.check(line.strip_suffix(b"\n").unwrap())).collect();
    assert_eq!(found, [Ok(()), Err(Broken::Differs), Ok(()), Ok(())]);
}

#[test]
fn a_line_without_a_value_is_distinguished_from_one_that_differs() {
    let mut chain = Chain::new(Algorithm::Blake3, None, START);
    for line in [&b"{\"a\":1}"[..], b"", b"{}", br#"{"a":1,"chain":"12"}"#] {
        assert_eq!(chain.check(line), Err(Broken::Missing));
    }
}

proptest! {
    #[test]
    fn any_change_of_any_byte_of_any_line_is_found_there(
        at in any::<prop::sample::Index>(), line in 0_usize..6, bit in 0_u8..8, keyed: bool, sha: bool,
    ) {
        let (algorithm, key) = (ALGORITHMS[usize::from(sha)], keyed.then_some(KEY));
        let mut lines = chained(algorithm, key, 6);
        let at = at.index(lines[line].len() - 1);
        lines[line][at] ^= 1 << bit;
        prop_assume!(lines[line][at] != b'\n');
        let found = check(algorithm, key, &lines);
        prop_assert!(matches!(found, Err((number, _)) if number == line), "{found:?}");
    }

    #[test]
    fn removing_doubling_and_moving_lines_is_found_where_it_was_done(line in 0_usize..5, other in 0_usize..6) {
        let whole = chained(Algorithm::Blake3, None, 6);
        let mut removed = whole.clone();
        removed.remove(line);
        prop_assert_eq!(check(Algorithm::Blake3, None, &removed), Err((line, Broken::Differs)));
        let mut doubled = whole.clone();
        doubled.insert(line, whole[line].clone());
        prop_assert_eq!(check(Algorithm::Blake3, None, &doubled), Err((line + 1, Broken::Differs)));
        prop_assume!(line != other);
        let mut moved = whole;
        moved.swap(line, other);
        prop_assert_eq!(check(Algorithm::Blake3, None, &moved), Err((line.min(other), Broken::Differs)));
    }
}
