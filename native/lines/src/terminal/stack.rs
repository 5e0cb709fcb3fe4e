//! Lines below a record: the rest of its message, and a stack in which the frames of libraries are folded.

use super::layout::{INDENT, Layout, Piece, Style};
use super::safe::{limited, safe};
use std::borrow::Cow;

/// Lines of a message or a stack.
const MOST_LINES: usize = 100;
/// Parts of the paths of code that is installed rather than written here.
const LIBRARIES: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib/python"];
/// Beginnings of lines between stacks.
const BETWEEN: [&str; 3] = ["Traceback ", "During handling of the above", "The above exception was"];

/// Lines below a record's first.
pub(super) enum Block {
    Message(String),
    Stack(String),
}

type Line<'a> = (Cow<'a, str>, Style);

impl Block {
    /// Append the lines, indented.
    pub(super) fn push(&self, out: &mut Vec<u8>, layout: Layout) {
        let mut lines: Vec<Line<'_>> = match self {
            Self::Message(text) => text.trim_end().lines().map(|line| (line.into(), Style::Plain)).collect(),
            Self::Stack(text) => Stack::of(text),
        };
        let surplus = lines.len().saturating_sub(MOST_LINES);
        if surplus > 0 {
            let middle = MOST_LINES / 2..MOST_LINES / 2 + surplus;
            lines.splice(middle, [(format!("… {surplus} lines left out").into(), Style::Dim)]);
        }
        for (line, style) in lines {
            let text = safe(&limited(&line).replace('\t', "    "));
            layout.push(out, &[Piece { text, style }], INDENT, 2 * INDENT);
        }
    }
}

/// A stack being read: what is wrong is red, and of several frames of libraries in a row their number is shown.
#[derive(Default)]
struct Stack<'a> {
    lines: Vec<Line<'a>>,
    /// The frames of libraries that have no line yet.
    frames: Vec<Vec<&'a str>>,
    is_in_library: bool,
}

impl<'a> Stack<'a> {
    fn of(text: &'a str) -> Vec<Line<'a>> {
        let mut stack = Self::default();
        text.trim_end().lines().for_each(|line| stack.line(line));
        stack.fold(1);
        stack.lines
    }

    fn line(&mut self, line: &'a str) {
        if line.trim_start().starts_with("File \"") {
            self.is_in_library = LIBRARIES.iter().any(|part| line.contains(part));
            if self.is_in_library {
                self.frames.push(vec![line]);
            } else {
                self.fold(0);
                self.lines.push((line.into(), Style::Plain));
            }
        } else if line.starts_with(' ') {
            match self.frames.last_mut().filter(|_| self.is_in_library) {
                Some(frame) => frame.push(line),
                None => self.lines.push((line.into(), Style::Plain)),
            }
        } else {
            // The innermost frame is where it happened.
            self.fold(1);
            let is_between = line.is_empty() || BETWEEN.iter().any(|begin| line.starts_with(begin));
            self.lines.push((line.into(), if is_between { Style::Dim } else { Style::Red }));
        }
    }

    /// Write the frames of libraries so far, the last `kept` of them whole.
    fn fold(&mut self, kept: usize) {
        let frames = std::mem::take(&mut self.frames);
        let folded = frames.len().saturating_sub(kept);
        let whole = if folded > 1 {
            self.lines.push((format!("  … {folded} frames of libraries").into(), Style::Dim));
            folded
        } else {
            0
        };
        self.lines.extend(frames.into_iter().skip(whole).flatten().map(|line| (line.into(), Style::Dim)));
    }
}
