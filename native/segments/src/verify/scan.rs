//! Reads one segment: its sequences, its rare lines, and whether it matches its footer.

use super::Problem;
use super::listing::Listed;
use crate::chain::{self, ALGORITHMS, Algorithm, Broken, Chain, START, Value as ChainValue};
use crate::line::{self, LONGEST_LINE, LinePrefix, Piece, Process};
use crate::segment::{self, Form};
use crate::segment_account;
use serde_json::Value;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// How many broken lines of one segment are named.
const NAMED: u64 = 20;

/// Records of one process with consecutive sequences, in the order of the lines.
#[derive(Clone, Debug)]
pub struct Run {
    pub boot_id: u64,
    pub pid: u32,
    pub first: u64,
    pub last: u64,
    pub first_time: [u8; 30],
    pub last_time: [u8; 30],
    /// Where it begins, counted from 1.
    pub line: u64,
}

/// The chain of a segment.
#[derive(Clone, Debug)]
pub struct Links {
    pub algorithm: Algorithm,
    pub keyed: bool,
    /// Whether the key that it needs was there.
    pub checked: bool,
    pub previous: ChainValue,
    pub last: ChainValue,
}

/// The content of a segment.
#[derive(Default)]
pub struct Found {
    pub live: bool,
    pub sealed: bool,
    /// Of the content: a compressed segment counts with its uncompressed size.
    pub bytes: u64,
    pub lines: u64,
    pub torn_bytes: u64,
    pub runs: Vec<Run>,
    /// Lines about processes and segments, parsed.
    pub reported: Vec<Value>,
    /// Processes' counts in the footer.
    pub processes: Vec<Value>,
    /// By boot id: records that the footer counts and that are missing.
    pub short: HashMap<u64, u64>,
    pub links: Option<Links>,
    /// The segment before it that its listener gave up, as its header says.
    pub abandoned: Option<u64>,
    pub(super) problems: Vec<Problem>,
}

/// Reads a segment; None if it is gone.
///
/// # Errors
/// It cannot be opened.
pub fn scan(listed: &Listed, key: Option<ChainValue>) -> io::Result<Option<Found>> {
    if let Some(database) = &listed.database {
        let reading = Reading::new(listed, key);
        return Ok(Some(match (database.open)() {
            Ok(lines) => reading.read(lines),
            Err(error) => reading.damaged(&error),
        }));
    }
    let plain = listed.plain.then(|| listed.path(Form::Plain));
    let file = match plain.as_deref().map(open) {
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Some(Ok(file)) => Some(file),
        _ => None,
    };
    if let Some(file) = file {
        // Checked before it is read: an unfinished line in a segment without a writer stays unfinished.
        let live = !segment::try_lock(&file).unwrap_or(true);
        let reading = Reading::new(listed, key);
        return Ok(Some(Found { live, ..reading.read(file) }));
    }
    match open(&listed.path(Form::Compressed)) {
        Ok(file) => {
            let reading = Reading::new(listed, key);
            Ok(Some(match zstd::stream::read::Decoder::new(file) {
                Ok(content) => reading.read(content),
                Err(error) => reading.damaged(&error),
            }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

struct Reading<'a> {
    listed: &'a Listed,
    key: Option<ChainValue>,
    found: Found,
    /// The last run of each process, and the process of the last line.
    open: HashMap<u64, usize>,
    last: Option<usize>,
    checksum: crc32fast::Hasher,
    records: u64,
    record_bytes: u64,
    footer: Option<Value>,
    chain: Option<Chain>,
    /// Lines that are not records, and those that break the chain.
    unreadable: u64,
    broken: u64,
}

impl<'a> Reading<'a> {
    fn new(listed: &'a Listed, key: Option<ChainValue>) -> Self {
        Self {
            listed,
            key,
            found: Found::default(),
            open: HashMap::new(),
            last: None,
            checksum: crc32fast::Hasher::new(),
            records: 0,
            record_bytes: 0,
            footer: None,
            chain: None,
            unreadable: 0,
            broken: 0,
        }
    }

    fn problem(&mut self, kind: &'static str, text: String) -> &mut Problem {
        let line = self.found.lines;
        self.found.problems.push(Problem::of_segment(kind, self.listed, text).at_line(line));
        self.found.problems.last_mut().expect("just pushed")
    }

    fn damaged(mut self, error: &io::Error) -> Found {
        self.problem("segment_damaged", format!("it cannot be read further: {error}"));
        self.found
    }

    fn read(mut self, from: impl Read) -> Found {
        match line::read_pieces(from, |piece| self.take_piece(piece)) {
            Ok(unfinished) => self.found.torn_bytes = unfinished,
            Err(error) => return self.damaged(&error),
        }
        if self.found.torn_bytes > LONGEST_LINE as u64 {
            self.found.lines += 1;
            self.take_long();
        }
        self.finish()
    }

    fn take_piece(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Lines(lines) => self.take(lines),
            Piece::OfLong { bytes, is_end } => {
                self.found.bytes += bytes.len() as u64;
                self.record_bytes += bytes.len() as u64;
                self.checksum.update(bytes);
                if is_end {
                    (self.found.lines, self.records) = (self.found.lines + 1, self.records + 1);
                    self.take_long();
                }
            }
        }
    }

    fn take_long(&mut self) {
        self.problem("line_unreadable", format!("longer than any line that a listener writes, {LONGEST_LINE} bytes"));
    }

    fn take(&mut self, lines: &[u8]) {
        self.found.bytes += lines.len() as u64;
        let (mut start, mut summed) = (0, 0);
        for text in line::whole_lines(lines) {
            let end = start + text.len() + 1;
            self.found.lines += 1;
            let head = LinePrefix::read(text);
            if self.is_framing(head.as_ref(), text) {
                self.checksum.update(&lines[summed..start]);
                summed = end;
            } else {
                self.records += 1;
                self.record_bytes += text.len() as u64 + 1;
                self.take_record(head, text);
            }
            if let Err(broken) = self.check_chain(text) {
                self.take_broken(text, broken);
            }
            start = end;
        }
        self.checksum.update(&lines[summed..]);
    }

    fn check_chain(&mut self, text: &[u8]) -> Result<(), Broken> {
        let is_database = self.listed.database.is_some();
        if is_database && self.chain.is_none() {
            self.begin_chain(text);
        }
        let Some(chain) = &mut self.chain else { return Ok(()) };
        let previous = chain.value();
        match chain.check(text) {
            Err(Broken::Differs) if is_database => self.go_on_otherwise(text, previous),
            checked => checked,
        }
    }

    /// Only the lines of a database show how its chain is computed.
    fn begin_chain(&mut self, text: &[u8]) {
        if chain::value_of(text).is_some() {
            self.chain = Some(Chain::new(Algorithm::Blake3, self.key, START));
            let (algorithm, keyed, checked) = (Algorithm::Blake3, self.key.is_some(), true);
            self.found.links = Some(Links { algorithm, keyed, checked, previous: START, last: START });
        }
    }

    /// Whether the line follows if the chain is computed in one of the other ways, as after a change of configuration.
    fn go_on_otherwise(&mut self, text: &[u8], previous: ChainValue) -> Result<(), Broken> {
        for algorithm in ALGORITHMS {
            for key in [self.key, None] {
                let mut chain = Chain::new(algorithm, key, previous);
                if chain.check(text).is_ok() {
                    self.chain = Some(chain);
                    let keyed = key.is_some();
                    self.found.links = self.found.links.take().map(|links| Links { algorithm, keyed, ..links });
                    return Ok(());
                }
            }
        }
        Err(Broken::Differs)
    }

    /// Whether the line is the segment's own.
    fn is_framing(&mut self, head: Option<&LinePrefix<'_>>, text: &[u8]) -> bool {
        if self.listed.database.is_some() {
            return false;
        }
        // A record names its process, whatever its event is called.
        let event = head.filter(|head| head.process.is_none()).map(|head| head.event);
        match event {
            Some(b"segment.header") => self.take_header(text),
            Some(b"segment.footer") => match line::parse(text) {
                Ok(footer) => self.footer = Some(footer),
                Err(error) => drop(self.problem("line_unreadable", format!("a footer that is no JSON: {error}"))),
            },
            _ if self.found.lines == 1 => {
                self.problem("header_missing", "its first line is no header".to_owned());
                return false;
            }
            _ => return false,
        }
        true
    }

    fn take_header(&mut self, text: &[u8]) {
        if self.found.lines > 1 {
            self.problem("line_unreadable", "a header that is not the first line".to_owned());
        }
        let header = line::parse(text).unwrap_or_default();
        self.found.abandoned = header["abandoned"].as_u64();
        let Some((algorithm, keyed, previous)) = chain::of_header(text) else { return };
        let checked = !keyed || self.key.is_some();
        self.chain = checked.then(|| Chain::new(algorithm, self.key.filter(|_| keyed), previous));
        self.found.links = Some(Links { algorithm, keyed, checked, previous, last: previous });
    }

    fn take_record(&mut self, head: Option<LinePrefix<'_>>, text: &[u8]) {
        if self.footer.is_some() {
            self.problem("line_added", "a line behind the footer".to_owned());
        }
        let head = head.filter(|_| text.ends_with(b"}"));
        let Some((head, process)) = head.and_then(|head| Some((head, head.process?))) else {
            self.unreadable += 1;
            if self.unreadable <= NAMED {
                self.problem("line_unreadable", "a line that no listener has written so".to_owned());
            }
            return;
        };
        if is_reported(head.event, process.seq) {
            match line::parse(text) {
                Ok(line) => self.found.reported.push(line),
                Err(error) => drop(self.problem("line_unreadable", format!("no JSON: {error}"))),
            }
        }
        if let Some(seq) = process.seq {
            self.take_sequence(process, seq, head.timestamp);
        }
    }

    fn take_sequence(&mut self, process: Process, seq: u64, timestamp: &[u8]) {
        let Ok(time) = timestamp.try_into() else { return };
        let same = self.last.filter(|run| self.found.runs[*run].boot_id == process.boot_id);
        let known = same.or_else(|| self.open.get(&process.boot_id).copied());
        match known.map(|run| (run, &mut self.found.runs[run])) {
            Some((position, run)) if run.last.checked_add(1) == Some(seq) => {
                (run.last, run.last_time) = (seq, time);
                self.last = Some(position);
            }
            _ => {
                let Process { boot_id, pid, .. } = process;
                let line = self.found.lines;
                self.last = Some(self.found.runs.len());
                self.open.insert(boot_id, self.found.runs.len());
                let run = Run { boot_id, pid, first: seq, last: seq, first_time: time, last_time: time, line };
                self.found.runs.push(run);
            }
        }
    }

    fn take_broken(&mut self, text: &[u8], broken: Broken) {
        self.broken += 1;
        if self.broken > 1 {
            return;
        }
        let what = match broken {
            Broken::Missing => "the first line without a value of the chain",
            Broken::Differs if self.found.lines == 1 => {
                "its first line does not begin it: altered, or not the first, or the chain has another key (--chain-key-file)"
            }
            Broken::Differs => {
                "the first line that does not follow from the one before: it, or one before it, was altered, removed or added"
            }
        };
        let process = LinePrefix::read(text).and_then(|head| head.process);
        let problem = self.problem("chain_broken", what.to_owned());
        if let Some(process) = process {
            problem.of_process(process.boot_id);
            (problem.first, problem.last) = (process.seq, process.seq);
        }
    }

    fn finish(mut self) -> Found {
        if let (Some(chain), Some(links)) = (&self.chain, &mut self.found.links) {
            links.last = chain.value();
        }
        self.found.sealed = self.footer.is_some();
        if let Some(footer) = self.footer.take() {
            self.compare(&footer);
        }
        self.found
    }

    fn disagrees(&mut self, text: String) {
        self.found.problems.push(Problem::of_segment("footer_disagrees", self.listed, text));
    }

    /// Compares the content with the footer.
    fn compare(&mut self, footer: &Value) {
        let listed_number = self.listed.name.number;
        if footer["segment"].as_u64() != Some(listed_number) {
            self.disagrees(format!("its footer is of segment {}", footer["segment"]));
        }
        let counts = [("records", self.records), ("bytes", self.record_bytes)];
        let differing = counts.iter().filter(|(name, found)| footer[*name].as_u64() != Some(*found));
        let texts: Vec<String> =
            differing.map(|(name, found)| format!("{name} {found}, not {}", footer[*name])).collect();
        let crc = format!("{:08x}", self.checksum.clone().finalize());
        let altered = footer["crc32"].as_str().is_some_and(|reported| reported != crc);
        if !texts.is_empty() {
            self.problem(
                "footer_disagrees",
                format!("lines were removed, added or altered since: {}", texts.join(", ")),
            );
        } else if altered {
            self.disagrees("lines were altered since: the checksum differs".to_owned());
        }
        self.find_short(footer);
        self.found.processes = footer["processes"].as_array().cloned().unwrap_or_default();
    }

    fn find_short(&mut self, footer: &Value) {
        let mut found = HashMap::<u64, u64>::new();
        for run in &self.found.runs {
            *found.entry(run.boot_id).or_default() += run.last - run.first + 1;
        }
        for span in segment_account::read_footer(footer).unwrap_or_default() {
            let short = span.records.saturating_sub(found.get(&span.boot_id).copied().unwrap_or(0));
            if short > 0 {
                self.found.short.insert(span.boot_id, short);
            }
        }
    }
}

/// Lines that report on processes or segments. A listener writes them beside the records of a process, or as records of
/// its own process.
fn is_reported(event: &[u8], seq: Option<u64>) -> bool {
    match event {
        b"log.dropped" | b"process.ended" | b"sink.fallback" => seq.is_none(),
        b"segments.removed" | b"segment.repaired" => true,
        _ => false,
    }
}
