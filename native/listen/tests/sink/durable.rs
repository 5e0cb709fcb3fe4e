//! The durable file sink: the guarantee of its `Ok`, and its reaction to a failed sync.

use super::bench::{A, AB, B, BOOT, Bench, Fail, RemoveDirFirst, Short, abandoned, at, bench, code, contents};
use listen::sink::file::{ChainSettings, DurableSettings};
use listen::sink::{FileSink, FileSinkConfig, Now, Sink};
use segments::chain::{self, Algorithm, Chain, START};
use segments::compress;
use segments::segment::SegmentName;
use segments::segment_store::RealStore;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const KEY: [u8; 32] = [7; 32];

fn durable() -> Bench {
    bench(|config| config.durable = Some(DurableSettings::default()))
}

fn chained_settings() -> DurableSettings {
    DurableSettings { chain: Some(ChainSettings { algorithm: Algorithm::Blake3, key: Some(KEY) }) }
}

fn chained() -> Bench {
    bench(|config| config.durable = Some(chained_settings()))
}

/// The next listener's sink on the same directory.
fn successor(dir: &Path) -> FileSink {
    let config = FileSinkConfig::new(dir, "requests", "00000000cafecafe");
    FileSink::open(FileSinkConfig { durable: Some(chained_settings()), ..config }).unwrap()
}

fn paths(dir: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<SegmentName> = names.filter_map(|name| Some(SegmentName::parse_file(&name)?.0)).collect();
    names.sort();
    names.iter().map(|name| dir.join(name.to_string())).collect()
}

/// Checks that all lines of all segments are one chain, and returns the record lines without their values.
fn checked_chain(dir: &Path) -> Vec<String> {
    let (mut chain, mut records) = (Chain::new(Algorithm::Blake3, Some(KEY), START), Vec::new());
    for path in paths(dir) {
        let compressed = path.with_extension("jsonl.zst");
        let bytes = fs::read(path).or_else(|_| compress::read_lines(&compressed, 0, u64::MAX)).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (_, keyed, previous) = chain::of_header(text.lines().next().unwrap().as_bytes()).unwrap();
        assert_eq!((keyed, previous), (true, chain.value()), "segments link");
        for line in text.lines() {
            assert_eq!(chain.check(line.as_bytes()), Ok(()), "{line}");
            let (body, _) = line.rsplit_once(",\"chain\":").unwrap();
            if !body.contains("segment.") {
                records.push(format!("{body}}}"));
            }
        }
    }
    records
}

const LINE_A: &str = "{\"line\":\"a\"}";
const LINE_B: &str = "{\"line\":\"b\"}";

#[test]
fn a_batch_is_on_the_device_before_the_sink_says_so_and_the_segments_name_before_its_first_line_counts() {
    let mut bench = durable();
    bench.sink.write(AB, 2, at(0)).unwrap();
    bench.sink.write(A, 1, at(1)).unwrap();
    let expected = ["sync dir", "write", "sync dir", "write", "sync", "write", "sync"];
    assert_eq!(bench.os.0.lock().unwrap().calls, expected, "parent; header; name; batch; the next batch");
    bench.sink.close(at(2), b"").unwrap();
    assert_eq!(bench.os.0.lock().unwrap().calls[expected.len()..], ["write", "sync"], "the footer");
    assert!(bench.os.0.lock().unwrap().writeback.is_empty(), "nobody else may learn of an error first");
}

#[test]
fn a_failed_sync_is_never_believed_the_second_time_and_the_batch_goes_into_a_new_segment() {
    let mut bench = durable();
    bench.sink.write(A, 1, at(0)).unwrap();
    bench.os.set(|plan| plan.syncs.extend([Some(libc::EIO)]));
    let error = bench.sink.write(AB, 2, at(1)).unwrap_err();
    assert_eq!(code(&error), (0, 0, Some(libc::EIO)), "none of the batch counts");
    assert_eq!(contents(&bench.dir), [(A.to_vec(), false)], "cut back to what is committed");
    bench.sink.write(AB, 2, at(2)).unwrap();
    bench.sink.close(at(3), b"").unwrap();
    assert_eq!(contents(&bench.dir), [(A.to_vec(), false), (AB.to_vec(), true)]);
    assert_eq!(bench.sink.stats().segments_abandoned, 1);
    assert_eq!(abandoned(&bench.dir), [None, Some(1)]);
}

#[test]
fn a_first_batch_whose_sync_fails_leaves_no_segment() {
    let mut bench = durable();
    bench.os.set(|plan| plan.syncs.extend([Some(libc::EIO)]));
    assert!(bench.sink.write(A, 1, at(0)).is_err());
    assert_eq!(contents(&bench.dir), []);
    bench.sink.write(A, 1, at(1)).unwrap();
    assert_eq!(contents(&bench.dir), [(A.to_vec(), false)]);
}

#[test]
fn a_segment_whose_name_is_not_on_the_device_takes_no_line() {
    let mut bench = durable();
    bench.os.set(|plan| plan.dir_syncs.extend([None, Some(libc::EIO)]));
    assert_eq!(code(&bench.sink.write(A, 1, at(0)).unwrap_err()), (0, 0, Some(libc::EIO)));
    assert_eq!(contents(&bench.dir), []);
    bench.sink.write(A, 1, at(1)).unwrap();
    assert_eq!(contents(&bench.dir), [(A.to_vec(), false)]);
}

#[test]
fn a_batch_that_a_full_disk_cut_short_is_taken_back_whole() {
    let mut bench = durable();
    bench.sink.write(A, 1, at(0)).unwrap();
    bench.os.plan(&[Some(Short(A.len() + 4)), Some(Fail(libc::ENOSPC))]);
    assert_eq!(code(&bench.sink.write(AB, 2, at(1)).unwrap_err()), (0, 0, Some(libc::ENOSPC)));
    assert_eq!(contents(&bench.dir), [(A.to_vec(), false)], "not even its first line, which was whole");
    bench.sink.write(AB, 2, at(2)).unwrap();
    assert_eq!(contents(&bench.dir), [([A, AB].concat(), false)], "a full disk passes: the same segment goes on");
}

#[test]
fn a_segment_that_cannot_be_cut_back_is_given_up() {
    let mut bench = durable();
    bench.sink.write(A, 1, at(0)).unwrap();
    bench.os.set(|plan| plan.truncate_fails = true);
    bench.os.plan(&[Some(Short(A.len())), Some(Fail(libc::ENOSPC))]);
    assert!(bench.sink.write(AB, 2, at(1)).is_err());
    bench.sink.write(B, 1, at(2)).unwrap();
    assert_eq!(contents(&bench.dir), [([A, A].concat(), false), (B.to_vec(), false)]);
}

#[test]
fn a_batch_that_hit_a_removed_directory_is_committed_below_a_new_one() {
    let mut bench = chained();
    bench.sink.write(A, 1, at(0)).unwrap();
    bench.os.plan(&[Some(RemoveDirFirst)]);
    bench.sink.write(B, 1, at(1)).unwrap();
    assert_eq!(paths(&bench.dir).len(), 1);
    let calls = bench.os.0.lock().unwrap().calls.clone();
    assert_eq!(
        calls[calls.len() - 5..],
        ["sync dir", "write", "sync dir", "write", "sync"],
        "parent, header, name, batch"
    );
}

#[test]
fn a_chain_runs_through_rotation_failed_syncs_and_removed_headers() {
    let mut bench = chained();
    for (second, fault) in [None, Some(libc::EIO), None, Some(libc::ENOSPC), Some(libc::EIO)].into_iter().enumerate() {
        bench.os.set(|plan| plan.syncs.extend([fault]));
        let written = bench.sink.write(A, 1, at(second as u64));
        assert_eq!(written.is_err(), fault.is_some());
        if fault.is_some() {
            bench.sink.write(B, 1, at(second as u64)).unwrap();
        }
    }
    bench.sink.close(at(10), b",\"processes\":[]").unwrap();
    bench.sink.write(A, 1, at(11)).unwrap();
    assert_eq!(checked_chain(&bench.dir), [LINE_A, LINE_B, LINE_A, LINE_B, LINE_B, LINE_A]);
}

#[test]
fn a_footer_whose_sync_fails_holds_back_no_record_and_breaks_no_chain() {
    let mut bench = chained();
    bench.sink.write(A, 1, at(0)).unwrap();
    bench.os.set(|plan| plan.syncs.extend([Some(libc::EIO)]));
    assert!(bench.sink.close(at(1), b"").is_err());
    bench.sink.write(B, 1, at(2)).unwrap();
    assert_eq!(checked_chain(&bench.dir), [LINE_A, LINE_B]);
}

#[test]
fn the_next_listeners_chain_goes_on_behind_the_last_whole_line() {
    for torn in [&b""[..], b"{\"line\":", b"{\"line\":\"a\"}"] {
        let mut bench = chained();
        bench.sink.write(AB, 2, at(0)).unwrap();
        let path = bench.newest();
        drop(bench.sink);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], torn].concat()).unwrap();
        successor(&bench.dir).write(A, 1, at(1)).unwrap();
        fs::write(&path, whole).unwrap();
        assert_eq!(checked_chain(&bench.dir), [LINE_A, LINE_B, LINE_A]);
    }
}

#[test]
fn the_next_listeners_chain_goes_on_behind_a_segment_that_has_only_a_header() {
    let mut bench = chained();
    bench.sink.write(A, 1, at(0)).unwrap();
    drop(bench.sink);
    let mut second = successor(&bench.dir);
    second.prepare(10, at(1)).unwrap();
    drop(second);
    successor(&bench.dir).write(B, 1, at(2)).unwrap();
    assert_eq!(checked_chain(&bench.dir), [LINE_A, LINE_B]);
}

#[test]
fn names_never_go_back_with_the_clock_so_the_end_of_the_chain_is_the_last_name() {
    let mut bench = chained();
    bench.sink.write(A, 1, at(1000)).unwrap();
    bench.sink.close(at(1000), b"").unwrap();
    let back = Now { unix_nano: at(0).unix_nano, ..at(1001) };
    bench.sink.write(B, 1, back).unwrap();
    bench.sink.close(back, b"").unwrap();
    successor(&bench.dir).write(A, 1, back).unwrap();
    let names = paths(&bench.dir);
    assert_eq!(names.len(), 3);
    assert_eq!(checked_chain(&bench.dir), [LINE_A, LINE_B, LINE_A], "in the order of names");
}

#[test]
fn the_end_of_the_chain_is_found_in_a_compressed_segment() {
    let mut bench = chained();
    bench.sink.write(AB, 2, at(0)).unwrap();
    bench.sink.close(at(1), b"").unwrap();
    let path = &paths(&bench.dir)[0];
    let name = SegmentName::parse(path.file_name().unwrap().to_str().unwrap()).unwrap();
    compress::compress(&mut RealStore, &bench.dir, &name, &File::open(path).unwrap(), 1, &mut |_| true).unwrap();
    assert!(!path.exists());
    successor(&bench.dir).write(A, 1, at(2)).unwrap();
    assert_eq!(checked_chain(&bench.dir), [LINE_A, LINE_B, LINE_A]);
}

#[test]
fn a_line_longer_than_the_first_look_at_the_end_is_found() {
    let mut bench = chained();
    let long = format!("{{\"line\":\"{}\"}}\n", "x".repeat(700_000));
    bench.sink.write(long.as_bytes(), 1, at(0)).unwrap();
    drop(bench.sink);
    successor(&bench.dir).write(A, 1, at(1)).unwrap();
    assert_eq!(checked_chain(&bench.dir).len(), 2);
}

#[test]
fn a_chain_has_one_writer_at_a_time() {
    let mut bench = chained();
    bench.sink.write(A, 1, at(0)).unwrap();
    let mut second = successor(&bench.dir);
    let error = second.write(A, 1, at(1)).unwrap_err();
    assert_eq!((error.written, error.source.kind()), (0, std::io::ErrorKind::ResourceBusy));
    assert!(error.source.to_string().contains("a directory of its own"));
    bench.sink.close(at(2), b"").unwrap();
    second.write(B, 1, at(3)).unwrap();
    assert!(bench.sink.write(A, 1, at(4)).is_err(), "now the other one");
    drop(second);
    bench.sink.write(A, 1, at(5)).unwrap();
    assert_eq!(checked_chain(&bench.dir), [LINE_A, LINE_B, LINE_A], "each goes on where the other ended");
}

#[test]
fn a_key_stands_in_no_message() {
    let config = FileSinkConfig { durable: Some(chained_settings()), ..FileSinkConfig::new("d", "requests", BOOT) };
    assert!(!format!("{config:?}").contains("7, 7"));
}
