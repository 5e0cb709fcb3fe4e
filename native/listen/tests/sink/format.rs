//! Names, first lines and last lines of segments: golden bytes.

use proptest::prelude::*;
use segments::segment::{SegmentName, footer_line, header_line};

use crate::sink::bench::{BOOT, at};

#[test]
fn a_name_is_spelled_as_documented_and_reads_back() {
    let text = "vllm-api-20261121T050000.123Z-00000000deadbeef-000042.jsonl";
    let name = SegmentName::parse(text).unwrap();
    assert_eq!((name.prefix.as_str(), name.number, name.begun_unix_milli), ("vllm-api", 42, 1_795_237_200_123));
    assert_eq!(name.to_string(), text);
}

#[test]
fn a_name_that_is_not_a_segments_is_refused() {
    for text in [
        "latest",
        "a-20261121T050000.123Z-00000000deadbeef-000042.jsonl.zst",
        "a-20261121T050000.123Z-00000000DEADBEEF-000042.jsonl",
        "a-20261121T050000.123Z-00000000deadbeef-42.jsonl",
        "a-20261121T050000.123Z-00000000deadbeef-0000042.jsonl",
        "a-20260231T050000.123Z-00000000deadbeef-000042.jsonl",
        "a-20261321T050000.123Z-00000000deadbeef-000042.jsonl",
        "a-00000000T000000.000Z-00000000deadbeef-000042.jsonl",
        "a-20261121T250000.123Z-00000000deadbeef-000042.jsonl",
        "-20261121T050000.123Z-00000000deadbeef-000042.jsonl",
        "a-2026112éT50000.123Z-00000000deadbeef-000042.jsonl",
    ] {
        assert_eq!(SegmentName::parse(text), None, "{text}");
    }
}

#[test]
fn the_first_and_the_last_line_have_these_bytes() {
    let header = r#"{"timestamp":"2026-11-21T05:00:00.123456789Z","event_name":"segment.header","schema_version":1,"schema_url":"https://opentelemetry.io/schemas/1.41.0","boot_id":"00000000deadbeef","segment":7}"#;
    let footer = r#"{"timestamp":"2026-11-21T05:00:00.123456789Z","event_name":"segment.footer","segment":7,"records":2,"bytes":26,"processes":[]}"#;
    assert_eq!(header_line(at(0).unix_nano, BOOT, 7, ""), format!("{header}\n"));
    let line = footer_line(at(0).unix_nano, 7, 2, 26, b",\"processes\":[]");
    assert_eq!(String::from_utf8(line).unwrap(), format!("{footer}\n"));
}

proptest! {
    #[test]
    fn every_name_reads_back(
        prefix in "[A-Za-z0-9_][A-Za-z0-9._-]{0,20}",
        begun_unix_milli in 0..u64::MAX / 1_000_000,
        boot_id in "[0-9a-f]{16}",
        number in any::<u64>(),
    ) {
        let name = SegmentName { prefix, begun_unix_milli, boot_id, number };
        prop_assert_eq!(SegmentName::parse(&name.to_string()), Some(name));
    }

    #[test]
    fn noise_is_never_a_panic(noise in "[aT0-9.Zé-]{0,24}", tail in "[0-9a-f-]{0,30}") {
        SegmentName::parse(&format!("a-{noise}-{tail}.jsonl"));
    }
}
