//! The console over a pipe: text for each record, and an end where nobody reads any more.

use listen::sink::console::ConsoleSink;
use listen::sink::{Now, RealOs, Sink, StdoutSink};
use std::fs::File;
use std::io::{PipeReader, Read, pipe};
use std::os::fd::OwnedFd;

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
