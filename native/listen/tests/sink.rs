//! The sinks, on real directories and pipes, with an operating system that fails on command.

mod bench;
mod durable;
mod streams;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use listen::sink::{FileSink, FileSinkConfig, OpenError, Sink};
use segments::segment::header_line;

use bench::{A, AB, B, BOOT, Fail, RemoveDirFirst, Short, abandoned, at, bench, code, contents, segments};

#[test]
fn a_sink_that_wrote_nothing_leaves_no_file() {
    let mut bench = bench(|_| ());
    bench.sink.write(b"", 0, at(0)).unwrap();
    bench.sink.maintain(at(9999)).unwrap();
    bench.sink.close(at(9999), b"").unwrap();
    assert_eq!(fs::read_dir(&bench.dir).unwrap().count(), 0);
    assert_eq!(fs::metadata(&bench.dir).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_closed_segment_has_a_footer_and_a_write_after_it_begins_the_next() {
    let mut bench = bench(|_| ());
    bench.sink.write(AB, 2, at(0)).unwrap();
    let path = bench.newest();
    assert_eq!(path.file_name().unwrap(), "requests-20261121T050000.123Z-00000000deadbeef-000001.jsonl");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    bench.sink.close(at(1), b",\"processes\":[1]").unwrap();
    bench.sink.close(at(2), b"").unwrap();
    assert_eq!(segments(&bench.dir)[0].1.as_ref().unwrap()["processes"][0], 1);
    bench.sink.write(A, 1, at(3)).unwrap();
    assert_eq!(contents(&bench.dir), [(AB.to_vec(), true), (A.to_vec(), false)]);
    assert_eq!(bench.dir.join(fs::read_link(bench.dir.join("latest")).unwrap()), bench.newest());
    let stats = bench.sink.stats();
    assert_eq!((stats.segments, stats.records, stats.bytes, stats.segments_abandoned), (2, 3, 39, 0));
}

#[test]
fn rotation_by_size_falls_between_batches() {
    let header = header_line(0, BOOT, 1, "").len() as u64;
    let mut bench = bench(|config| config.rotate_bytes = header + A.len() as u64);
    for (lines, records) in [(A, 1), (B, 1), (AB, 2), (A, 1)] {
        bench.sink.write(lines, records, at(0)).unwrap();
    }
    let expected = [(A.to_vec(), true), (B.to_vec(), true), (AB.to_vec(), true), (A.to_vec(), false)];
    assert_eq!(contents(&bench.dir), expected);
}

#[test]
fn rotation_by_age_needs_no_write() {
    let mut bench = bench(|config| config.rotate_interval = Duration::from_secs(60));
    bench.sink.write(A, 1, at(0)).unwrap();
    bench.sink.maintain(at(59)).unwrap();
    assert_eq!(contents(&bench.dir), [(A.to_vec(), false)]);
    bench.sink.maintain(at(60)).unwrap();
    assert_eq!(contents(&bench.dir), [(A.to_vec(), true)]);
    bench.sink.write(A, 1, at(100)).unwrap();
    bench.sink.write(B, 1, at(160)).unwrap();
    assert_eq!(contents(&bench.dir), [(A.to_vec(), true), (A.to_vec(), true), (B.to_vec(), false)]);
}

#[test]
fn interrupted_and_short_writes_go_unnoticed() {
    let mut bench = bench(|_| ());
    bench.os.plan(&[Some(Short(3)), Some(Fail(libc::EINTR)), None, Some(Short(1)), Some(Fail(libc::EINTR))]);
    bench.sink.write(AB, 2, at(0)).unwrap();
    assert_eq!(contents(&bench.dir), [(AB.to_vec(), false)]);
}

#[test]
fn a_full_disk_leaves_whole_lines_and_the_retry_goes_on_in_the_same_segment() {
    let mut bench = bench(|_| ());
    bench.os.plan(&[None, Some(Short(A.len() + 4)), Some(Fail(libc::ENOSPC))]);
    let error = bench.sink.write(AB, 2, at(0)).unwrap_err();
    assert_eq!(code(&error), (A.len(), 1, Some(libc::ENOSPC)));
    assert!(fs::read(bench.newest()).unwrap().ends_with(A));
    bench.sink.write(&AB[error.written..], 2 - error.records, at(1)).unwrap();
    bench.sink.close(at(2), b"").unwrap();
    assert_eq!(contents(&bench.dir), [(AB.to_vec(), true)]);
}

#[test]
fn a_failing_file_gets_its_footer_and_the_retry_a_new_segment() {
    for errno in [libc::EIO, libc::EFBIG, libc::ESTALE] {
        let mut bench = bench(|_| ());
        bench.os.plan(&[None, Some(Short(A.len() + 4)), Some(Fail(errno))]);
        let error = bench.sink.write(AB, 2, at(0)).unwrap_err();
        assert_eq!(code(&error), (A.len(), 1, Some(errno)));
        bench.sink.write(B, 1, at(1)).unwrap();
        assert_eq!(contents(&bench.dir), [(A.to_vec(), true), (B.to_vec(), false)]);
        assert_eq!(bench.sink.stats().segments_abandoned, 0);
        assert_eq!(abandoned(&bench.dir), [None, None]);
    }
}

#[test]
fn a_torn_line_that_cannot_be_cut_off_ends_the_segment_without_a_footer() {
    let mut bench = bench(|_| ());
    bench.os.set(|plan| plan.truncate_fails = true);
    bench.os.plan(&[None, Some(Short(A.len() + 4)), Some(Fail(libc::ENOSPC))]);
    let error = bench.sink.write(AB, 2, at(0)).unwrap_err();
    assert_eq!(code(&error), (A.len(), 1, Some(libc::ENOSPC)));
    bench.sink.write(B, 1, at(1)).unwrap();
    assert_eq!(contents(&bench.dir), [(A.to_vec(), false), (B.to_vec(), false)]);
    assert_eq!(bench.sink.stats().segments_abandoned, 1);
    assert_eq!(abandoned(&bench.dir), [None, Some(1)]);
}

#[test]
fn a_batch_that_hit_a_removed_directory_is_written_again_below_a_new_one() {
    let mut bench = bench(|_| ());
    bench.sink.write(A, 1, at(0)).unwrap();
    fs::remove_dir_all(&bench.dir).unwrap();
    bench.sink.write(B, 1, at(1)).unwrap();
    assert_eq!(contents(&bench.dir), [(B.to_vec(), false)]);
    assert_eq!(segments(&bench.dir)[0].1, None);
    assert_eq!(bench.sink.stats().segments, 2);
}

#[test]
fn an_error_in_a_removed_file_asks_for_the_whole_batch_again() {
    let mut bench = bench(|_| ());
    bench.sink.write(A, 1, at(0)).unwrap();
    fs::remove_dir_all(&bench.dir).unwrap();
    // The first file takes a line and fails, and so does the header of the next one.
    bench.os.plan(&[Some(Short(A.len() + 4)), Some(Fail(libc::ENOSPC)), Some(Fail(libc::ENOSPC))]);
    let error = bench.sink.write(AB, 2, at(1)).unwrap_err();
    assert_eq!(code(&error), (0, 0, Some(libc::ENOSPC)));
    bench.sink.write(AB, 2, at(2)).unwrap();
    assert_eq!(contents(&bench.dir), [(AB.to_vec(), false)]);
}

#[test]
fn a_directory_that_is_removed_time_and_again_is_an_error() {
    let mut bench = bench(|_| ());
    bench.os.plan(&[None, Some(RemoveDirFirst), None, Some(RemoveDirFirst)]);
    let error = bench.sink.write(AB, 2, at(0)).unwrap_err();
    assert_eq!((error.written, error.source.kind()), (0, io::ErrorKind::NotFound));
    bench.sink.write(AB, 2, at(1)).unwrap();
    assert_eq!(contents(&bench.dir), [(AB.to_vec(), false)]);
}

#[test]
fn a_removed_segment_is_closed_without_complaint() {
    let mut bench = bench(|_| ());
    bench.sink.write(A, 1, at(0)).unwrap();
    fs::remove_dir_all(&bench.dir).unwrap();
    bench.sink.close(at(1), b"").unwrap();
    assert!(!bench.dir.exists());
}

#[test]
fn a_disk_too_full_for_a_header_leaves_no_file_behind() {
    let mut bench = bench(|_| ());
    for errno in [libc::ENOSPC, libc::EIO, libc::EROFS] {
        bench.os.plan(&[Some(Short(20)), Some(Fail(errno))]);
        let error = bench.sink.write(AB, 2, at(0)).unwrap_err();
        assert_eq!(code(&error), (0, 0, Some(errno)));
        assert_eq!(fs::read_dir(&bench.dir).unwrap().count(), 0);
    }
    bench.sink.write(AB, 2, at(1)).unwrap();
    let name = bench.newest().to_string_lossy().into_owned();
    assert!(name.ends_with("-000001.jsonl"), "{name}");
}

#[test]
fn a_read_only_file_system_is_an_error_until_it_is_writable_again() {
    let mut bench = bench(|_| ());
    bench.os.set(|plan| plan.fail_creates.extend([libc::EROFS, libc::EMFILE]));
    for errno in [libc::EROFS, libc::EMFILE] {
        let error = bench.sink.write(AB, 2, at(0)).unwrap_err();
        assert_eq!(code(&error), (0, 0, Some(errno)));
    }
    bench.sink.write(A, 1, at(1)).unwrap();
    bench.os.plan(&[Some(Fail(libc::EROFS))]);
    assert_eq!(bench.sink.write(B, 1, at(2)).unwrap_err().written, 0);
    bench.sink.write(B, 1, at(3)).unwrap();
    assert_eq!(contents(&bench.dir), [(AB.to_vec(), false)]);
}

#[test]
fn a_footer_that_found_a_full_disk_is_written_by_the_next_call() {
    let mut bench = bench(|config| config.rotate_interval = Duration::from_secs(60));
    bench.sink.write(A, 1, at(0)).unwrap();
    bench.os.plan(&[Some(Short(20)), Some(Fail(libc::ENOSPC)), Some(Fail(libc::ENOSPC))]);
    assert_eq!(bench.sink.maintain(at(60)).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(code(&bench.sink.write(B, 1, at(61)).unwrap_err()), (0, 0, Some(libc::ENOSPC)));
    bench.sink.write(B, 1, at(62)).unwrap();
    bench.os.plan(&[Some(Fail(libc::ENOSPC))]);
    assert!(bench.sink.close(at(63), b"").is_err());
    bench.sink.close(at(64), b"").unwrap();
    assert_eq!(contents(&bench.dir), [(A.to_vec(), true), (B.to_vec(), true)]);
}

#[test]
fn a_footer_that_can_never_be_written_holds_back_no_record() {
    let mut bench = bench(|config| config.rotate_interval = Duration::from_secs(60));
    bench.sink.write(A, 1, at(0)).unwrap();
    bench.os.plan(&[Some(Fail(libc::EIO))]);
    bench.sink.write(B, 1, at(60)).unwrap();
    assert_eq!(contents(&bench.dir), [(A.to_vec(), false), (B.to_vec(), false)]);
    assert_eq!(bench.sink.stats().segments_abandoned, 1);
    assert_eq!(abandoned(&bench.dir), [None, Some(1)]);
}

#[test]
fn a_file_cut_from_outside_does_not_stop_the_sink() {
    let mut bench = bench(|config| config.writeback_bytes = 64);
    bench.sink.write(AB, 2, at(0)).unwrap();
    let path = bench.newest();
    fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    bench.sink.write(B, 1, at(1)).unwrap();
    bench.sink.write(A, 1, at(2)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [B, A].concat());
}

#[test]
fn foreign_files_are_left_alone() {
    let mut bench = bench(|_| ());
    let taken = bench.dir.join("requests-20261121T050000.123Z-00000000deadbeef-000001.jsonl");
    std::os::unix::fs::symlink("elsewhere", &taken).unwrap();
    fs::write(bench.dir.join("latest"), "mine").unwrap();
    bench.sink.write(A, 1, at(0)).unwrap();
    assert_eq!(fs::read_link(&taken).unwrap().to_str(), Some("elsewhere"));
    assert_eq!(fs::read(bench.dir.join("latest")).unwrap(), b"mine");
    assert!(!bench.dir.join("elsewhere").exists());
    let name = bench.newest().to_string_lossy().into_owned();
    assert!(name.ends_with("-000002.jsonl"), "{name}");
}

#[test]
fn a_window_is_waited_for_once_the_next_one_is_on_its_way() {
    let mut bench = bench(|config| {
        config.writeback_bytes = 100;
        config.rotate_bytes = 1;
    });
    let mut lengths = Vec::new();
    for seconds in [0, 1] {
        bench.sink.write(&A.repeat(10), 10, at(seconds)).unwrap();
        let path = bench.newest();
        bench.sink.maintain(at(seconds)).unwrap();
        lengths.push(path);
    }
    bench.sink.close(at(2), b"").unwrap();
    let lengths: Vec<u64> = lengths.iter().map(|path| fs::metadata(path).unwrap().len()).collect();

    // A sealed segment's rest is a window like any other, also for the segment after it.
    let windows = |len: u64| (0..len).step_by(100).map(move |from| from..len.min(from + 100));
    let started: Vec<_> = lengths.iter().flat_map(|&len| windows(len)).collect();
    let mut expected = vec![("start", started[0].clone())];
    for pair in started.windows(2) {
        expected.push(("start", pair[1].clone()));
        expected.push(("finish", pair[0].clone()));
    }
    let calls = bench.os.0.lock().unwrap().writeback.clone();
    assert_eq!(calls, expected);
}

#[test]
fn closing_starts_the_rest_and_waits_for_no_device() {
    let mut bench = bench(|config| config.writeback_bytes = 100);
    bench.sink.write(A, 1, at(0)).unwrap();
    let path = bench.newest();
    bench.sink.close(at(1), b"").unwrap();
    let calls = bench.os.0.lock().unwrap().writeback.clone();
    assert_eq!(calls, [("start", 0..fs::metadata(path).unwrap().len())]);
}

#[test]
fn a_wrong_parameter_is_named_with_its_value() {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for (config, expected) in [
        (FileSinkConfig::new(dir.path(), "a/b", BOOT), "prefix=\"a/b\": must be"),
        (FileSinkConfig::new(dir.path(), ".a", BOOT), "prefix=\".a\": must"),
        (FileSinkConfig::new(dir.path(), "a", "DEADBEEF"), "boot_id=\"DEADBEEF\": must be 16"),
        (FileSinkConfig::new("", "a", BOOT), "directory=\"\": must name"),
        (FileSinkConfig::new(&file, "a", BOOT), "directory=\"/"),
    ] {
        let error: OpenError = FileSink::open(config).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
