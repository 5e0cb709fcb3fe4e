//! What is shown of a record, and in which order.

use super::record::{Record, is_plain_word, limited, safe, text};
use super::{Block, INDENT, Layout, Piece, Style, cut, duration, three_digits, width};

const LEVEL_WIDTH: usize = 5;
const METHOD_WIDTH: usize = 4;
const STATUS_WIDTH: usize = 3;
const DURATION_WIDTH: usize = 7;
/// Digits of a request's id: enough for the requests on a screen to differ.
const ID_DIGITS: usize = 8;
/// Columns of a path that stay on a narrow terminal.
const LEAST_PATH: usize = 16;
/// Longest value of a field, in columns.
const MOST_VALUE: usize = 200;
const REQUESTS: [&str; 2] = ["request", "websocket.connection"];
/// Ids, what has a place of its own, and uvicorn's message again, with colours.
const LEFT_OUT: [&str; 23] = [
    "timestamp", "severity_text", "event_name", "boot_id", "pid", "seq", "trace_id", "span_id", "parent_span_id",
    "trace_flags", "request_id", "client_request_id", "resource", "chunk_gaps_us", "logger", "message",
    "exception.type", "exception.message", "exception.stacktrace", "code.file.path", "code.line.number",
    "code.function.name", "color_message",
];

/// How records are shown.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Width of the terminal; None: lines have no limit.
    pub columns: Option<usize>,
    pub colours: bool,
    /// Stacks and long texts are shown to their ends, in further lines; otherwise a record is one line, cut at the width.
    pub is_whole: bool,
}

impl Look {
    /// Append the text of a record, with its process if there are several.
    pub fn push(&self, out: &mut Vec<u8>, record: &Record<'_>, shows_pid: bool) {
        let is_cut = !self.is_whole;
        let mut shown = Shown { look: *self, record, pieces: Vec::with_capacity(16), blocks: Vec::new(), is_cut };
        let event = record.text("event_name").unwrap_or_default();
        if event == "sink.dropped" && record.text("sink").as_deref() == Some("console") {
            shown.left_out();
        } else if record.is_empty() {
            shown.add("a line that is no record", Style::Dim);
        } else {
            shown.head(shows_pid);
            if REQUESTS.contains(&event.as_str()) {
                shown.request(&event)
            } else {
                shown.other(&event)
            }
            // What the listener reports can be long; the segment has all of it.
            shown.is_cut |= !REQUESTS.contains(&event.as_str()) && event != "log";
        }
        shown.write(out);
    }
}

struct Shown<'r> {
    look: Look,
    record: &'r Record<'r>,
    pieces: Vec<Piece>,
    /// Texts below the line.
    blocks: Vec<Block>,
    is_cut: bool,
}

impl Shown<'_> {
    fn write(self, out: &mut Vec<u8>) {
        let Look { columns, colours, is_whole } = self.look;
        let layout = Layout { columns, colours, is_whole };
        Layout { is_whole: !self.is_cut, ..layout }.push(out, &self.pieces, 0, INDENT);
        for block in self.blocks.iter().filter(|_| is_whole) {
            block.push(out, layout);
        }
    }

    /// Add a text of ours.
    fn add(&mut self, text: &str, style: Style) {
        self.pieces.push(Piece { text: text.to_owned(), style });
    }

    /// Add a text of a stranger.
    fn add_safe(&mut self, text: &str, style: Style) {
        self.pieces.push(Piece { text: safe(limited(text)), style });
    }

    fn left_out(&mut self) {
        let records = self.record.number("dropped").unwrap_or(0.0);
        let noun = if records == 1.0 { "line" } else { "lines" };
        self.add(&format!("… {records} {noun} left out: the terminal did not keep up"), Style::Yellow);
    }

    fn head(&mut self, shows_pid: bool) {
        let stamp = self.record.text("timestamp").unwrap_or_default();
        self.add_safe(&format!("{} ", stamp.get(11..23).unwrap_or(&stamp)), Style::Dim);
        let level = self.record.text("severity_text").unwrap_or_default();
        let style = match level.trim_end_matches(['2', '3', '4']) {
            "INFO" => Style::Green,
            "WARN" => Style::Yellow,
            "ERROR" | "FATAL" => Style::BoldRed,
            _ => Style::Dim,
        };
        self.add_safe(&format!("{level:<LEVEL_WIDTH$} "), style);
        if let Some(pid) = self.record.number("pid").filter(|_| shows_pid) {
            self.add(&format!("[{pid}] "), Style::Dim);
        }
    }

    fn request(&mut self, event: &str) {
        let record = self.record;
        let method = record.text("http.request.method");
        let method = method.unwrap_or_else(|| if event == "request" { String::new() } else { "WS".to_owned() });
        self.add_safe(&format!("{method:<METHOD_WIDTH$} "), Style::Bold);
        self.status();
        let taken = record.number("duration_s").map_or_else(|| "–".to_owned(), duration);
        self.add(&format!("{taken:>DURATION_WIDTH$} "), Style::Plain);
        let places = ["url.path", "http.route", "rpc.method", "triton.model_name"];
        let path = self.pieces.len();
        self.add_safe(&places.iter().find_map(|name| record.text(name)).unwrap_or_default(), Style::Plain);
        self.facts();
        self.outcome();
        self.id();
        self.shorten(path);
        self.stack();
    }

    fn status(&mut self) {
        let status = self.record.number("http.response.status_code");
        let style = match status.unwrap_or(0.0) {
            s if s >= 500.0 => Style::BoldRed,
            s if s >= 400.0 => Style::Yellow,
            s if s >= 300.0 => Style::Cyan,
            s if s >= 200.0 => Style::Green,
            _ => Style::Dim,
        };
        let text = status.map_or_else(|| "–".to_owned(), |status| status.to_string());
        self.add(&format!("{text:>STATUS_WIDTH$} "), style);
    }

    /// What was measured of the answer, as far as it is known.
    fn facts(&mut self) {
        let number = |name: &str| self.record.number(name);
        let count = |name: &str| number(name).map_or_else(|| "?".to_owned(), |count| count.to_string());
        let usage = ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"];
        let tokens = usage.iter().any(|name| number(name).is_some());
        let messages = ["websocket.messages_received", "websocket.messages_sent"];
        let has_messages = messages.iter().any(|name| number(name).is_some());
        let facts = [
            number("gen_ai.response.time_to_first_chunk").map(|seconds| format!("first {}", duration(seconds))),
            tokens.then(|| format!("{}/{} tokens", count(usage[0]), count(usage[1]))),
            number("gen_ai.response.output_tokens_per_second").map(|rate| format!("{}/s", three_digits(rate))),
            has_messages.then(|| format!("{}/{} messages", count(messages[0]), count(messages[1]))),
        ];
        let facts: Vec<String> = facts.into_iter().flatten().collect();
        if !facts.is_empty() {
            self.add(&format!("  {}", facts.join(" · ")), Style::Cyan);
        }
    }

    fn outcome(&mut self) {
        let (ends, errors) = (["outcome", "after_response_outcome"], ["error.type", "after_response_error_type"]);
        for ((end, error), when) in ends.iter().zip(errors).zip(["", "after the answer: "]) {
            let Some(outcome) = self.record.text(end).filter(|outcome| outcome != "ok") else { continue };
            let exception = || self.record.text("exception.type").filter(|_| when.is_empty());
            // The error of a process that died is that it died.
            let error =
                self.record.text(error).or_else(exception).filter(|error| *error != outcome).unwrap_or_default();
            self.add_safe(format!("  {when}{outcome} {error}").trim_end(), Style::Red);
        }
    }

    fn id(&mut self) {
        if let Some(id) = self.record.text("request_id") {
            self.add_safe(&format!("  {}", id.chars().take(ID_DIGITS).collect::<String>()), Style::Dim);
        }
    }

    /// Cut the path, so that what stands behind it stays on the line.
    fn shorten(&mut self, path: usize) {
        let Some(columns) = self.look.columns else { return };
        let all: usize = self.pieces.iter().map(|piece| width(&piece.text)).sum();
        let path = &mut self.pieces[path].text;
        let room = (columns + width(path)).saturating_sub(all).max(LEAST_PATH);
        cut(path, room);
    }

    /// A record that is no request: who says what, then its fields.
    fn other(&mut self, event: &str) {
        match self.record.text("logger").filter(|_| event == "log") {
            Some(logger) => self.add_safe(&format!("{logger}: "), Style::Cyan),
            None if event == "log" => {}
            None => self.add_safe(event, Style::Bold),
        }
        self.message();
        for (key, value) in self.record.members() {
            let is_shown = !LEFT_OUT.iter().any(|name| name.as_bytes() == *key);
            if is_shown {
                self.add_safe(&format!(" {}=", word(&[b"\"", *key, b"\""].concat())), Style::Dim);
                self.value(value);
            }
        }
        self.place();
        self.id();
        self.stack();
    }

    fn message(&mut self) {
        let Some(message) = self.record.text("message") else { return };
        match message.trim_end().split_once('\n').filter(|_| self.look.is_whole) {
            Some((first, rest)) => {
                self.add_safe(first.trim_end(), Style::Plain);
                self.blocks.push(Block::Message(rest.to_owned()));
            }
            None => self.add_safe(message.trim_end(), Style::Plain),
        }
    }

    fn value(&mut self, value: &[u8]) {
        self.add_safe(&word(value), Style::Plain);
        if let Some(piece) = self.pieces.last_mut() {
            cut(&mut piece.text, MOST_VALUE);
        }
    }

    /// The file and the line that made the record.
    fn place(&mut self) {
        if let (Some(path), Some(line)) = (self.record.text("code.file.path"), self.record.number("code.line.number")) {
            let file = path.rsplit('/').next().unwrap_or_default();
            self.add_safe(&format!("  {file}:{line}"), Style::Dim);
        }
    }

    fn stack(&mut self) {
        let text = |name: &str| self.record.text(name);
        let short = || Some([text("exception.type")?, text("exception.message").unwrap_or_default()].join(": "));
        let stack = text("exception.stacktrace").filter(|stack| !stack.is_empty()).or_else(short);
        self.blocks.extend(stack.map(Block::Stack));
    }
}

/// A value as one word: text without quotes, or JSON.
fn word(value: &[u8]) -> String {
    text(value).filter(|text| is_plain_word(text)).unwrap_or_else(|| String::from_utf8_lossy(value).into_owned())
}
