//! Standard output, on pipes and files; and the sink that keeps nothing.

use std::fs::{self, File};
use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;

use listen::sink::{NullSink, Sink, StdoutSink};

use crate::sink::bench::{A, AB, B, Fail, FaultyOs, Short, at, code};

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
