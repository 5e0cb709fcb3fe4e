//! All tests of segments as one program.

// By the name that the other crates of the workspace use.
extern crate inferlog_segments as segments;

mod chain;

use proptest::prelude::*;
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
