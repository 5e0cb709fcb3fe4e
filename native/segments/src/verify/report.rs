//! The result of a verification, as JSON.

use super::listing::Listed;
use serde_json::{Map, Value, json};
use std::io;
use std::path::Path;

/// A count that does not balance, or a part that does not fit. Without any, the books balance.
#[derive(Clone, Debug, Default)]
pub struct Problem {
    pub kind: &'static str,
    pub text: String,
    /// Path of a segment, or of a queue.
    pub segment: Option<String>,
    /// Counted from 1.
    pub line: Option<u64>,
    pub boot_id: Option<String>,
    /// Sequences.
    pub first: Option<u64>,
    pub last: Option<u64>,
}

impl Problem {
    /// A problem of a segment.
    #[must_use]
    pub fn of_segment(kind: &'static str, listed: &Listed, text: String) -> Self {
        Self { kind, text, segment: Some(path_of(listed)), ..Self::default() }
    }

    /// A problem of a file in a queue directory.
    #[must_use]
    pub fn of_queue(path: &Path, error: &io::Error) -> Self {
        let text = format!("what is in it is not known: {error}");
        Self { kind: "queue_unreadable", text, segment: Some(path.display().to_string()), ..Self::default() }
    }

    /// A problem of a process.
    #[must_use]
    pub fn of(kind: &'static str, boot_id: u64, text: String) -> Self {
        let mut own = Self { kind, text, ..Self::default() };
        own.of_process(boot_id);
        own
    }

    /// Names the line; 0: none.
    #[must_use]
    pub fn at_line(mut self, line: u64) -> Self {
        self.line = (line > 0).then_some(line);
        self
    }

    /// Names the records.
    #[must_use]
    pub fn at(mut self, first: u64, last: u64) -> Self {
        (self.first, self.last) = (Some(first), Some(last));
        self
    }

    /// Names the process.
    pub fn of_process(&mut self, boot_id: u64) {
        self.boot_id = Some(format!("{boot_id:016x}"));
    }

    /// The problem as JSON, without unknown members.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let members = [
            ("kind", Some(json!(self.kind))),
            ("text", Some(json!(self.text))),
            ("segment", self.segment.as_ref().map(|path| json!(path))),
            ("line", self.line.map(|line| json!(line))),
            ("boot_id", self.boot_id.as_ref().map(|boot_id| json!(boot_id))),
            ("first", self.first.map(|first| json!(first))),
            ("last", self.last.map(|last| json!(last))),
        ];
        let known = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(known.collect::<Map<_, _>>())
    }
}

/// The path of a segment for display: its plain form's, or the compressed one's if there is no other.
#[must_use]
pub fn path_of(listed: &Listed) -> String {
    let form = if listed.plain { crate::segment::Form::Plain } else { crate::segment::Form::Compressed };
    listed.path(form).display().to_string()
}
