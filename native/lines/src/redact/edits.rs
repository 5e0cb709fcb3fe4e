//! The replacements in a line: collected in any order, applied in one pass.

use std::ops::Range;

use crate::json::escape;

struct Edit {
    range: Range<usize>,
    text: Vec<u8>,
    /// Replaces a whole value, quotes included.
    is_value: bool,
}

/// Replacements in one line.
#[derive(Default)]
pub struct Edits {
    all: Vec<Edit>,
    /// Keys that were changed, so that no two become alike.
    keys: usize,
}

impl Edits {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn truncate(&mut self, len: usize) {
        self.all.truncate(len);
    }

    pub fn clear(&mut self) {
        self.all.clear();
        self.keys = 0;
    }

    /// Replace a whole value, within `quoting` strings, by a string.
    pub fn value(&mut self, range: Range<usize>, text: &str, quoting: usize) {
        let mut quoted = Vec::with_capacity(text.len() + 2);
        escape::push_string(&mut quoted, text.as_bytes());
        self.all.push(Edit { range, text: escaped(quoted, quoting), is_value: true });
    }

    /// Replace a part of a text, within `quoting` strings.
    pub fn text(&mut self, range: Range<usize>, text: &str, quoting: usize) {
        self.all.push(Edit { range, text: escaped(text.as_bytes().to_vec(), quoting), is_value: false });
    }

    /// As `text`, in a key: the second one and those after it get numbers.
    pub fn key(&mut self, range: Range<usize>, text: &str, quoting: usize) {
        self.keys += 1;
        if self.keys == 1 {
            return self.text(range, text, quoting);
        }
        self.text(range, &format!("{text}#{}", self.keys), quoting);
    }

    /// Append `line` with all replacements to `out`, and forget them. If several overlap, the first one replaces all of
    /// them, and a value takes precedence over a text in it.
    pub fn apply(&mut self, line: &[u8], out: &mut Vec<u8>) {
        self.all.sort_by(|a, b| {
            let order = (a.range.start, !a.is_value, b.range.end);
            order.cmp(&(b.range.start, !b.is_value, a.range.end))
        });
        let mut end = 0;
        for edit in &self.all {
            if edit.range.start >= end {
                out.extend_from_slice(&line[end..edit.range.start]);
                out.extend_from_slice(&edit.text);
            }
            end = end.max(edit.range.end);
        }
        out.extend_from_slice(&line[end..]);
        self.clear();
    }
}

/// Escapes a text that is in a string of a string, and so on.
fn escaped(text: Vec<u8>, times: usize) -> Vec<u8> {
    (0..times).fold(text, |text, _| {
        let mut quoted = Vec::with_capacity(text.len() + 2);
        escape::push_string(&mut quoted, &text);
        quoted[1..quoted.len() - 1].to_vec()
    })
}
