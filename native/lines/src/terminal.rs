//! A line of JSON as people read it on a terminal: the look of a server's console and of `inference-logging tail`.
//!
//! What holds for every line, whatever is in it:
//!
//! * The text has no control character but `\n` and the colours of [`Style`]; what reorders text or is invisible is
//!   escaped (`safe`).
//! * On a terminal whose width is known no line is wider, so only a record begins at the left edge.
//! * Nothing is built as a tree and nothing recurses; values, messages and stacks have limits.
//!
//! ```text
//! look                         what is shown of a record, and in which order
//!   └ record                   the members of a line, and text that does nothing to a terminal
//! ```
//!
//! Below are what both write: pieces of text in lines of the terminal's width, lines below a record, and durations.

mod look;
mod record;

use record::limited;
use std::borrow::Cow;
use unicode_width::UnicodeWidthChar;

pub use look::Look;
pub use record::{Record, is_plain_word, push_escaped, safe, safe_utf16};

/// Where the lines that continue a record begin.
const INDENT: usize = 4;
/// A terminal that is narrower wraps lines itself.
const LEAST_COLUMNS: usize = 40;
const ELLIPSIS: &str = "…";
const RESET: &str = "\x1b[0m";

/// The look of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Plain,
    Dim,
    Bold,
    Green,
    Cyan,
    Yellow,
    Red,
    BoldRed,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Dim => "\x1b[2m",
            Self::Bold => "\x1b[1m",
            Self::Green => "\x1b[32m",
            Self::Cyan => "\x1b[36m",
            Self::Yellow => "\x1b[33m",
            Self::Red => "\x1b[31m",
            Self::BoldRed => "\x1b[1;31m",
        }
    }
}

/// Text that is safe on a terminal, and its style.
struct Piece {
    pub text: String,
    pub style: Style,
}

/// How pieces become lines.
#[derive(Clone, Copy)]
struct Layout {
    pub columns: Option<usize>,
    pub colours: bool,
    /// Text that does not fit goes on in a further line; otherwise it is cut.
    pub is_whole: bool,
}

impl Layout {
    /// Append the pieces as a line that begins with `first` blanks; lines that continue it begin with `further`.
    fn push(self, out: &mut Vec<u8>, pieces: &[Piece], first: usize, further: usize) {
        let columns = self.columns.filter(|columns| *columns >= LEAST_COLUMNS);
        let total = first + pieces.iter().map(|piece| width(&piece.text)).sum::<usize>();
        let line = columns.filter(|columns| total > *columns).unwrap_or(usize::MAX);
        out.extend(std::iter::repeat_n(b' ', first));
        let is_cut = !self.is_whole && line < total;
        let mut page = Page { out, line, further, column: first, blanks: 0, is_cut, colours: self.colours };
        page.pieces(pieces);
        page.out.push(b'\n');
    }
}

struct Page<'o> {
    out: &'o mut Vec<u8>,
    /// Columns of a line.
    line: usize,
    further: usize,
    column: usize,
    /// Blanks that are written once something follows them on the line.
    blanks: usize,
    /// The text is too long and is to be cut.
    is_cut: bool,
    colours: bool,
}

impl Page<'_> {
    fn pieces(&mut self, pieces: &[Piece]) {
        // A word can have several styles: `key=` and the value.
        let mut word: Vec<(&str, Style)> = Vec::new();
        for Piece { text, style } in pieces {
            for part in text.split_inclusive(' ') {
                let letters = part.strip_suffix(' ').unwrap_or(part);
                word.extend((!letters.is_empty()).then_some((letters, *style)));
                if letters.len() < part.len() {
                    if self.word(&word) {
                        return;
                    }
                    word.clear();
                    self.blanks += 1;
                }
            }
        }
        self.word(&word);
    }

    /// Write a word; return whether the line is full, and is to have no more.
    fn word(&mut self, word: &[(&str, Style)]) -> bool {
        if word.is_empty() {
            return false;
        }
        let needed: usize = word.iter().map(|(text, _)| width(text)).sum();
        if !self.is_cut && self.column + self.blanks + needed > self.line && self.column > self.further {
            self.break_line();
        }
        let blanks = std::mem::take(&mut self.blanks);
        (0..blanks).any(|_| self.character(' ')) || word.iter().any(|(text, style)| self.coloured(text, *style))
    }

    fn coloured(&mut self, text: &str, style: Style) -> bool {
        let has_colour = self.colours && style != Style::Plain;
        self.out.extend_from_slice(if has_colour { style.code() } else { "" }.as_bytes());
        let is_full = text.chars().any(|character| self.character(character));
        self.out.extend_from_slice(if has_colour { RESET } else { "" }.as_bytes());
        is_full
    }

    fn character(&mut self, character: char) -> bool {
        let needed = character.width().unwrap_or(0);
        if self.is_cut && self.column + needed + 1 > self.line {
            self.out.extend_from_slice(ELLIPSIS.as_bytes());
            return true;
        }
        if self.column + needed > self.line {
            self.break_line();
        }
        self.column += needed;
        self.out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        false
    }

    fn break_line(&mut self) {
        self.out.push(b'\n');
        self.out.extend(std::iter::repeat_n(b' ', self.further));
        (self.column, self.blanks) = (self.further, 0);
    }
}

/// The columns that a text takes.
fn width(text: &str) -> usize {
    text.chars().map(|character| character.width().unwrap_or(0)).sum()
}

/// Cut a text to at most `columns`, an ellipsis included.
fn cut(text: &mut String, columns: usize) {
    if width(text) <= columns {
        return;
    }
    let mut taken = 0;
    let fits = |(_, character): &(usize, char)| {
        taken += character.width().unwrap_or(0);
        taken < columns
    };
    let end = text.char_indices().take_while(fits).last().map_or(0, |(at, character)| at + character.len_utf8());
    text.truncate(end);
    text.push_str(ELLIPSIS);
}

// Lines below a record: the rest of its message, and a stack in which the frames of libraries are folded.

/// Lines of a message or a stack.
const MOST_LINES: usize = 100;
/// Parts of the paths of code that is installed rather than written here.
const LIBRARIES: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib/python"];
/// Beginnings of lines between stacks.
const BETWEEN: [&str; 3] = ["Traceback ", "During handling of the above", "The above exception was"];

/// Lines below a record's first.
enum Block {
    Message(String),
    Stack(String),
}

type Line<'a> = (Cow<'a, str>, Style);

impl Block {
    /// Append the lines, indented.
    fn push(&self, out: &mut Vec<u8>, layout: Layout) {
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

/// Return `35.3 ms` for 0.0353 seconds.
fn duration(seconds: f64) -> String {
    // What rounds to a thousand has the next unit.
    let (value, unit) = match seconds {
        s if s >= 0.9995 => (s, "s"),
        s if s >= 0.000_999_5 => (s * 1e3, "ms"),
        s if s > 0.0 => (s * 1e6, "µs"),
        _ => (0.0, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Return a number with three significant digits, without zeroes at the end.
fn three_digits(value: f64) -> String {
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}
