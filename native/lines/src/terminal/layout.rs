//! Pieces of text in lines of the terminal's width.

use unicode_width::UnicodeWidthChar;

/// Where the lines that continue a record begin.
pub(super) const INDENT: usize = 4;
/// A terminal that is narrower wraps lines itself.
const LEAST_COLUMNS: usize = 40;
const ELLIPSIS: &str = "…";
const RESET: &str = "\x1b[0m";

/// The look of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
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
pub(super) struct Piece {
    pub text: String,
    pub style: Style,
}

/// How pieces become lines.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub columns: Option<usize>,
    pub colours: bool,
    /// Text that does not fit goes on in a further line; otherwise it is cut.
    pub is_whole: bool,
}

impl Layout {
    /// Append the pieces as a line that begins with `first` blanks; lines that continue it begin with `further`.
    pub(super) fn push(self, out: &mut Vec<u8>, pieces: &[Piece], first: usize, further: usize) {
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
pub(super) fn width(text: &str) -> usize {
    text.chars().map(|character| character.width().unwrap_or(0)).sum()
}

/// Cut a text to at most `columns`, an ellipsis included.
pub(super) fn cut(text: &mut String, columns: usize) {
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
