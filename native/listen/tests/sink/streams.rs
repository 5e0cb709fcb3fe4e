//! Standard output, on pipes and files; and the sink that keeps nothing.

use super::bench::{BOOT, Fault, bench, contents};
use crate::sink::bench::{A, AB, B, Fail, FaultyOs, Short, at, code};
use listen::sink::ConsoleSink;
use listen::sink::{Now, NullSink, RealOs, Sink, StdoutSink};
use proptest::prelude::*;
use segments::segment::{SegmentName, footer_line, header_line};
use std::fs::{self, File};
use std::io::{self, PipeReader, Read, pipe};
use std::os::fd::OwnedFd;

fn piped() -> (PipeReader, FaultyOs, StdoutSink<FaultyOs>) {
    let (reader, writer) = io::pipe().unwrap();
    let os = FaultyOs::default();
    let sink = StdoutSink::open_with(File::from(OwnedFd::from(writer)), os.clone()).unwrap();
    (reader, os, sink)
}

fn rest(mut reader: PipeReader, sink: StdoutSink<FaultyOs>) -> String {
    drop(sink);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_line_torn_in_a_pipe_is_completed_by_the_retry() {
    let (reader, os, mut sink) = piped();
    os.plan(&[Some(Short(A.len() + 4)), Some(Fail(libc::EINTR)), Some(Fail(libc::EAGAIN))]);
    let error = sink.write(AB, 2, at(0)).unwrap_err();
    assert_eq!(code(&error), (A.len(), 1, Some(libc::EAGAIN)));
    os.plan(&[Some(Short(2)), Some(Fail(libc::EAGAIN))]);
    let error = sink.write(B, 1, at(1)).unwrap_err();
    assert_eq!(code(&error), (0, 0, Some(libc::EAGAIN)));
    sink.write(B, 1, at(2)).unwrap();
    assert_eq!((sink.stats().records, sink.stats().bytes), (2, AB.len() as u64));
    sink.close(at(3), b"").unwrap();
    assert_eq!(rest(reader, sink).as_bytes(), AB);
}

#[test]
fn a_torn_line_that_was_given_up_harms_no_other() {
    let (reader, os, mut sink) = piped();
    os.plan(&[Some(Short(4)), Some(Fail(libc::EIO))]);
    assert_eq!(sink.write(A, 1, at(0)).unwrap_err().written, 0);
    sink.write(b"[]\n", 1, at(1)).unwrap();
    os.plan(&[Some(Short(4)), Some(Fail(libc::EIO))]);
    assert_eq!(sink.write(B, 1, at(2)).unwrap_err().written, 0);
    sink.close(at(3), b"").unwrap();
    assert_eq!(rest(reader, sink), "{\"li\n[]\n{\"li\n");
}

#[test]
fn a_reader_that_stopped_is_an_error_and_not_a_hang() {
    let (reader, os, mut sink) = piped();
    os.set(|plan| plan.never_writable = true);
    let error = sink.write(AB, 2, at(0)).unwrap_err();
    assert_eq!((error.written, error.source.kind()), (0, io::ErrorKind::TimedOut));
    os.set(|plan| plan.never_writable = false);
    sink.write(AB, 2, at(1)).unwrap();
    assert_eq!(rest(reader, sink).as_bytes(), AB);
}

#[test]
fn a_reader_that_left_is_an_error() {
    let (reader, _os, mut sink) = piped();
    drop(reader);
    let error = sink.write(AB, 2, at(0)).unwrap_err();
    assert_eq!((error.written, error.source.kind()), (0, io::ErrorKind::BrokenPipe));
}

#[test]
fn a_batch_larger_than_the_pipe_arrives_whole() {
    let (mut reader, _os, mut sink) = piped();
    let mut lines = AB.repeat(10_000);
    lines.extend_from_slice(&[b'x'; 10_000]);
    lines.push(b'\n');
    let read = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map(|_| bytes)
    });
    sink.write(&lines, 20_001, at(0)).unwrap();
    drop(sink);
    assert!(read.join().unwrap().unwrap() == lines);
}

#[test]
fn standard_output_can_be_a_file() {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let file = File::options().append(true).open(&path).unwrap();
    let mut sink = StdoutSink::open_with(file, FaultyOs::default()).unwrap();
    sink.write(AB, 2, at(0)).unwrap();
    sink.maintain(at(1)).unwrap();
    sink.close(at(2), b",\"ignored\":1").unwrap();
    assert_eq!(fs::read(&path).unwrap(), AB);
}

#[test]
fn the_null_sink_counts_and_keeps_nothing() {
    let mut sink = NullSink::new();
    sink.write(AB, 2, at(0)).unwrap();
    sink.maintain(at(1)).unwrap();
    sink.close(at(2), b"").unwrap();
    assert_eq!((sink.name(), sink.stats().records, sink.stats().bytes), ("null", 2, AB.len() as u64));
}

// Names, first lines and last lines of segments: golden bytes.

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

// The counts of the file sink under any sequence of faults: every line is in the segments once and in order, if the
// caller keeps the contract.

fn fault() -> impl Strategy<Value = Option<Fault>> {
    let errno = prop::sample::select(vec![libc::ENOSPC, libc::EIO, libc::EINTR, libc::EROFS, libc::EFBIG]);
    prop_oneof![3 => Just(None), 3 => (1..40usize).prop_map(|n| Some(Short(n))), 2 => errno.prop_map(|e| Some(Fail(e)))]
}

proptest! {
    #[test]
    fn each_line_is_written_once_and_in_order(
        batches in prop::collection::vec(1..5u32, 1..12),
        faults in prop::collection::vec(fault(), 0..60),
        creates in prop::collection::vec(prop::sample::select(vec![libc::ENOSPC, libc::EROFS, libc::EMFILE]), 0..3),
        truncate_fails in any::<bool>(),
        limits in (0..500u64, 0..9u64, 0..200u64),
    ) {
        let mut bench = bench(|config| {
            config.rotate_bytes = limits.0;
            config.rotate_interval = std::time::Duration::from_secs(limits.1);
            config.writeback_bytes = limits.2;
        });
        bench.os.set(|plan| {
            plan.writes.extend(faults);
            plan.fail_creates.extend(creates);
            plan.truncate_fails = truncate_fails;
        });
        let mut clock = 0..;
        let mut tick = || at(clock.next().unwrap());
        let mut expected = Vec::new();
        for (index, records) in batches.iter().enumerate() {
            let lines: String = (0..*records).map(|n| format!("{{\"batch\":{index},\"n\":{n}}}\n")).collect();
            expected.extend_from_slice(lines.as_bytes());
            let (mut rest, mut left) = (lines.as_bytes(), u64::from(*records));
            // Faults run out, so every batch gets through.
            while let Err(error) = bench.sink.write(rest, left, tick()) {
                rest = &rest[error.written..];
                left -= error.records;
            }
            let _ = bench.sink.maintain(tick());
        }
        while bench.sink.close(tick(), b"").is_err() {}
        let segments = contents(&bench.dir);
        prop_assert_eq!(String::from_utf8(segments.iter().flat_map(|s| s.0.clone()).collect()), String::from_utf8(expected.clone()));
        prop_assert!(segments.iter().all(|s| !s.0.is_empty()));
        let stats = bench.sink.stats();
        prop_assert_eq!(stats.bytes, expected.len() as u64);
        prop_assert_eq!(stats.segments, segments.len() as u64);
        prop_assert_eq!(stats.segments_abandoned, segments.iter().filter(|s| !s.1).count() as u64);
    }
}

// The console over a pipe: text for each record, and an end where nobody reads any more.

fn console() -> (PipeReader, ConsoleSink) {
    let (reader, writer) = pipe().unwrap();
    let sink = ConsoleSink::over(StdoutSink::open_with(File::from(OwnedFd::from(writer)), RealOs).unwrap(), false);
    (reader, sink)
}

fn record(process: &str, event: &str) -> String {
    let seq = if event == "process.ended" { "" } else { r#","seq":1"# };
    format!("{{\"event_name\":\"{event}\",\"boot_id\":\"{process}\",\"pid\":{process}{seq}}}\n")
}

#[test]
fn processes_are_shown_while_there_are_several() {
    let (mut reader, mut sink) = console();
    let lines = [("1", "a"), ("2", "b"), ("1", "c"), ("2", "process.ended"), ("1", "d")];
    let lines: String = lines.iter().map(|(process, event)| record(process, event)).collect();
    sink.write(lines.as_bytes(), 5, Now::default()).unwrap();
    drop(sink);
    let mut shown = String::new();
    reader.read_to_string(&mut shown).unwrap();
    let shown: Vec<&str> = shown.lines().map(str::trim).collect();
    assert_eq!(&shown[..3], ["a", "[2] b", "[1] c"]);
    assert_eq!((shown[3].starts_with("[2] process.ended"), shown[4]), (true, "d"));
}

#[test]
fn a_reader_that_is_gone_ends_it_and_nothing_counts_as_shown() {
    let (reader, mut sink) = console();
    assert!(!sink.has_ended());
    drop(reader);
    for _ in 0..2 {
        let error = sink.write(record("1", "a").as_bytes(), 1, Now::default()).unwrap_err();
        assert_eq!((error.source.kind(), error.written, sink.has_ended()), (std::io::ErrorKind::BrokenPipe, 0, true));
    }
}
