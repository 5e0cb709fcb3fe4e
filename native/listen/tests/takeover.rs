//! A new leader after one that died inside its last write: each record is in the segments exactly once.

use crate::support::{
    INFO, Intercepted, WARN, append, assert_books_balance, dense, emit, listener_settings, numbers, queue_settings,
    register,
};
use listen::delivery::{Delivery, NamedSink, Sinks};
use listen::leader::{Leader, Round};
use listen::sink::file::{FileSink, FileSinkConfig};
use listen::sink::{Now, Segments, Sink, WriteError};
use listen::takeover::{self, Inquiry, Write};
use queue::control::Control;
use queue::layout::Reason;
use queue::producer::Producer;
use queue::queue_file;
use segments::compress;
use segments::segment::{self, Form, SegmentName};
use segments::segment_store::RealStore;
use serde_json::Value;
use std::collections::HashSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

const NOW: Now = Now { unix_nano: 1_000_000_000, monotonic: std::time::Duration::from_secs(1) };

fn file_sink(directory: &Path, boot_id: u64) -> FileSink {
    FileSink::open(FileSinkConfig::new(directory, "test", format!("{boot_id:016x}"))).unwrap()
}

fn leader(queues: &Path, sinks: impl Into<Sinks>) -> Leader {
    let control = Control::open(queues).unwrap();
    Leader::new(listener_settings(queues), control, Delivery::here(sinks, control, NOW), NOW)
}

fn boxed(sink: impl Sink + 'static) -> Box<dyn Sink> {
    Box::new(sink)
}

/// A sink whose process dies when `cut` bytes of a write are in the file, after `spared` writes that succeed and `failures`
/// that each take a line; each failure continues in another segment if it `moves`.
fn dying(segments: &Path, mut spared: usize, cut: usize, mut failures: usize, moves: bool) -> Sinks {
    let sink = Intercepted::new(file_sink(segments, 1), move |inner, path, lines, records, now| {
        if spared > 0 {
            spared -= 1;
            return inner.write(lines, records, now);
        }
        if failures > 0 {
            failures -= 1;
            let line = lines.split_inclusive(|byte| *byte == b'\n').next().unwrap();
            // Through the sink, which then knows that its segment has grown.
            inner.write(line, 1, now).unwrap();
            if moves {
                inner.close(now, b"").unwrap();
            }
            return Err(WriteError::after(line, io::Error::other("on command")));
        }
        append(path, &lines[..cut.min(lines.len())]);
        std::panic::resume_unwind(Box::new("killed"));
    });
    boxed(sink).into()
}

/// The segments in either form, but not the link to the newest.
fn segment_names(directory: &Path) -> Vec<(SegmentName, Form)> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<(SegmentName, Form)> = files.filter_map(|file| SegmentName::parse_file(&file)).collect();
    names.sort_by(|(one, _), (other, _)| one.cmp(other));
    names
}

/// Every line of every segment; each must be whole and valid.
fn lines(directory: &Path) -> Vec<Value> {
    let texts = segment_names(directory).into_iter().map(|(name, form)| {
        let path = directory.join(name.file_name(form));
        let bytes = if form == Form::Plain { std::fs::read(path) } else { compress::read_lines(&path, 0, u64::MAX) };
        String::from_utf8(bytes.unwrap()).unwrap()
    });
    texts.flat_map(|text| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>()).collect()
}

/// Compresses the segment that the dead leader was writing, as the housekeeper of another queue directory may.
fn compress_all(directory: &Path) {
    for (name, form) in segment_names(directory) {
        let plain = std::fs::File::open(directory.join(name.file_name(form))).unwrap();
        compress::compress(&mut RealStore, directory, &name, &plain, 1, &mut |_| true).unwrap();
    }
}

/// The bytes behind the last whole line of each segment: (file name, offset, bytes), as a repair reports them.
fn torn_ends(directory: &Path) -> Vec<(String, u64, u64)> {
    let plain = segment_names(directory).into_iter().filter(|(_, form)| *form == Form::Plain);
    let ends = plain.map(|(name, form)| {
        let text = std::fs::read(directory.join(name.file_name(form))).unwrap();
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        (name.file_name(form), whole as u64, (text.len() - whole) as u64)
    });
    ends.filter(|(_, _, bytes)| *bytes > 0).collect()
}

/// Twelve records of three processes, each of which has also lost one; a first leader that dies; a second one that
/// finishes the work, and reports its repairs.
fn die_and_go_on(first: impl FnOnce(&Path) -> Sinks, meanwhile: impl Fn(&Path), message: &str) {
    go_on(first, meanwhile, 0, message);
}

fn go_on(first: impl FnOnce(&Path) -> Sinks, meanwhile: impl Fn(&Path), filled: u64, message: &str) {
    let (lines, torn) = die_with(|_| (), first, meanwhile, filled);
    for thread in 0..3 {
        assert_eq!(numbers(&lines, thread), dense(4), "{message}");
    }
    let reported: Vec<(String, u64, u64)> = lines.iter().filter_map(repair).collect();
    assert_eq!(reported, torn, "{message}");
    assert_eq!(losses(&lines), [1, 1, 1], "{message}: the loss of each process is reported once");
}

/// The reported losses of the three processes.
fn losses(lines: &[Value]) -> Vec<u64> {
    let producers: HashSet<_> = lines
        .iter()
        .filter(|line| line["thread"].as_u64().is_some_and(|thread| thread < 3))
        .map(|line| line["boot_id"].to_string())
        .collect();
    let reported = lines.iter().filter(|line| line["event_name"] == "log.dropped");
    reported
        .filter(|line| producers.contains(&line["boot_id"].to_string()))
        .map(|line| line["dropped"].as_u64().unwrap())
        .collect()
}

/// The lines that both leaders leave, and the torn end of the first one's; `prepare` is applied to each process before
/// it leads, and the second one's own process offers `filled` records.
fn die_with(
    prepare: impl Fn(&Producer),
    first: impl FnOnce(&Path) -> Sinks,
    meanwhile: impl Fn(&Path),
    filled: u64,
) -> (Vec<Value>, Vec<(String, u64, u64)>) {
    let (queues, segments) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let producers: Vec<Producer> = (0..3).map(|_| Producer::open(queue_settings(queues.path())).unwrap()).collect();
    for (thread, producer) in producers.iter().enumerate() {
        let event = register(producer);
        (0..4).for_each(|n| assert!(emit(producer, event, INFO, thread as u64, n)));
        assert!(!producer.emit(event, INFO, &[0; 10_000]), "too large");
    }
    producers.iter().for_each(prepare);
    let (mut first, mut now) = (leader(queues.path(), first(segments.path())), NOW);
    let rounds = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..20 {
            if let Round::Idle(pause) = first.round(now, true) {
                now.monotonic += pause;
            }
        }
    }));
    assert!(rounds.is_err(), "died in the write");
    // Its locks end with it.
    drop(first);
    producers.iter().for_each(Producer::close);
    meanwhile(segments.path());
    let torn = torn_ends(segments.path());
    let own = Producer::open(queue_settings(queues.path())).unwrap();
    let event = register(&own);
    let kept = (0..filled).filter(|n| emit(&own, event, WARN, 3, *n)).count() as u64;
    assert_eq!(kept < filled, filled > 0, "a queue that is full");
    let reports = Some(Arc::clone(&own.queue().unwrap().file));
    let mut second = leader(queues.path(), Sinks { reports, ..boxed(file_sink(segments.path(), 2)).into() });
    while second.has_work() || own.queue().unwrap().file.counts().in_queue > 0 {
        second.round(NOW, true);
    }
    own.close();
    while second.has_work() || !queue_file::list(queues.path()).unwrap().is_empty() {
        second.round(NOW, true);
    }
    second.close(NOW);
    assert_books_balance(queues.path(), "after a death");
    (lines(segments.path()), torn)
}

fn repair(line: &Value) -> Option<(String, u64, u64)> {
    let number = |field: &str| line[field].as_u64().unwrap();
    (line["event_name"] == "segment.repaired").then(|| {
        assert_eq!(line["severity_text"], "WARN");
        (line["segment"].as_str().unwrap().to_owned(), number("offset"), number("bytes"))
    })
}

#[test]
fn a_leader_that_dies_in_its_write_loses_and_doubles_nothing_wherever_it_is_cut() {
    // 12 lines of about 150 bytes: a cut in each part of each line, before the first, behind the last.
    for cut in (0..2400).step_by(37) {
        die_and_go_on(|segments| dying(segments, 0, cut, 0, false), |_| (), &format!("cut at {cut}"));
    }
}

#[test]
fn a_repair_that_the_own_queue_has_no_room_to_report_is_reported_in_the_next_batch() {
    // More than fit: the last ones are refused, and so is the report.
    for cut in [100, 250] {
        go_on(|segments| dying(segments, 0, cut, 0, false), |_| (), 5000, &format!("cut at {cut}"));
    }
}

#[test]
fn a_repair_is_reported_before_it_is_made() {
    let segments = tempfile::tempdir().unwrap();
    let name = "test-20261121T050000.123Z-0000000000000001-000001.jsonl";
    let path = segments.path().join(name);
    let header = segment::header_line(0, "0000000000000001", 1, "");
    let (begin, end) = (header.len() as u64, header.len() as u64 + 3);
    std::fs::write(&path, format!("{header}{{}}\n{{\"torn")).unwrap();
    let (mut reports, inquiry) = (Vec::new(), Inquiry { place: Some((path.clone(), begin)), ..Inquiry::default() });
    let own = Some(Segments { directory: segments.path(), prefix: "test" });
    takeover::repair(&inquiry, own, Write::Plain, &mut |torn| {
        reports.push((torn.segment, torn.offset, torn.bytes, std::fs::metadata(&path).unwrap().len()));
    })
    .unwrap();
    assert_eq!(reports, vec![(name.to_owned(), end, 6, end + 6)]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), header + "{}\n");
}

#[test]
fn a_write_that_a_thread_left_behind_still_has_under_way_is_waited_for() {
    let segments = tempfile::tempdir().unwrap();
    let path = segments.path().join("test-20261121T050000.123Z-0000000000000001-000001.jsonl");
    let header = segment::header_line(0, "0000000000000001", 1, "");
    std::fs::write(&path, &header).unwrap();
    let place = Some((path.clone(), header.len() as u64));
    let own = Some(Segments { directory: segments.path(), prefix: "test" });
    let ask = || {
        let inquiry = Inquiry { place: place.clone(), ..Inquiry::default() };
        takeover::repair(&inquiry, own, Write::Plain, &mut |_| panic!("nothing is cut off")).map(|_| ())
    };
    let file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    let lock = segments::segment::LiveLock::hold(Arc::new(file));
    assert_eq!(ask().unwrap_err().kind(), io::ErrorKind::WouldBlock, "nothing of it is there");
    append(&path, b"{}\n{");
    assert_eq!(ask().unwrap_err().kind(), io::ErrorKind::WouldBlock, "a line of it is not whole");
    append(&path, b"}\n");
    ask().expect("all of it is there");
    drop(lock);
    ask().expect("nobody writes any more");
}

#[test]
fn a_leader_that_dies_after_writes_that_failed_in_the_middle_loses_and_doubles_nothing() {
    for (failures, cut) in [(1, 0), (1, 500), (3, 0), (3, 700), (5, 5000)] {
        let message = format!("{failures} failures, then cut at {cut}");
        die_and_go_on(|segments| dying(segments, 0, cut, failures, false), |_| (), &message);
    }
}

#[test]
fn a_leader_that_dies_when_parts_of_its_batch_are_in_several_segments_loses_and_doubles_nothing() {
    for (failures, cut) in [(1, 0), (1, 500), (1, 5000), (2, 0), (2, 700), (2, 5000)] {
        let sinks = |segments: &Path| dying(segments, 0, cut, failures, true);
        die_and_go_on(sinks, |_| (), &format!("{failures} other segments, then cut at {cut}"));
    }
}

#[test]
fn a_leader_that_dies_in_its_write_to_the_fallback_loses_and_doubles_nothing() {
    for cut in (0..2400).step_by(111) {
        let sinks = |segments: &Path| {
            let missing = segments.join("missing");
            let primary = FileSink::open(FileSinkConfig::new(&missing, "test", "0000000000000003")).unwrap();
            std::fs::remove_dir(&missing).unwrap();
            std::fs::write(&missing, b"in the way").unwrap();
            let fallback = Some(NamedSink { name: "fallback".into(), ..dying(segments, 0, cut, 0, false).primary });
            Sinks { fallback, fallback_delay: std::time::Duration::ZERO, ..boxed(primary).into() }
        };
        die_and_go_on(sinks, |_| (), &format!("cut at {cut}"));
    }
}

#[test]
fn a_dead_leaders_segment_that_was_compressed_before_the_successor_came_is_settled_like_a_plain_one() {
    for cut in (0..2400).step_by(37) {
        die_and_go_on(|segments| dying(segments, 0, cut, 0, false), compress_all, &format!("cut at {cut}"));
    }
}

#[test]
fn a_file_whose_creator_died_before_it_was_finished_is_removed_and_a_fresh_one_is_not() {
    let queues = tempfile::tempdir().unwrap();
    let (unfinished, fresh) =
        (queues.path().join(".00000000000000aa.new"), queues.path().join(".00000000000000bb.new"));
    std::fs::write(&unfinished, [0; 100]).unwrap();
    std::fs::write(&fresh, []).unwrap();
    queue_file::remove_unfinished(queues.path());
    assert_eq!((unfinished.exists(), fresh.exists()), (false, true));
}

#[test]
fn what_is_reported_about_a_process_is_reported_once_wherever_the_leader_is_cut() {
    let refuse_and_close = |producer: &Producer| {
        producer.refuse(Reason::Oversize, INFO);
        producer.close();
    };
    // The first batch has the records and the refused ones, the second the ends of the processes.
    for (spared, cut) in [0, 1].into_iter().flat_map(|spared| (0..3000).step_by(61).map(move |cut| (spared, cut))) {
        let sinks = |segments: &Path| dying(segments, spared, cut, 0, false);
        let (lines, _) = die_with(refuse_and_close, sinks, |_| (), 0);
        let message = format!("cut at {cut} after {spared} writes");
        let of = |name: &str| lines.iter().filter(|line| line["event_name"] == name).collect::<Vec<_>>();
        for thread in 0..3 {
            assert_eq!(numbers(&lines, thread), dense(4), "{message}");
        }
        assert_eq!(losses(&lines), [2, 2, 2], "{message}");
        // The second leader's own process may have reports, too.
        let producers: HashSet<_> = of("test").iter().map(|line| line["boot_id"].to_string()).collect();
        let ended = of("process.ended").into_iter().map(|line| line["boot_id"].to_string());
        let ended: Vec<_> = ended.filter(|boot_id| producers.contains(boot_id)).collect();
        assert_eq!((ended.len(), ended.iter().collect::<HashSet<_>>().len()), (3, 3), "{message}");
    }
}
