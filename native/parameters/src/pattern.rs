//! The patterns of the schema: alternatives, groups, classes and repetitions of a regular expression that is anchored at
//! both ends. No more is needed for names, paths and addresses, and no more fits into a small library.

/// Rounds of a repeated group: each takes some of the stack. A text that needs more does not match.
const ROUNDS: usize = 100;

/// Whether the whole `text` matches. A pattern of another form matches nothing.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some(alternatives) = parsed(pattern) else { return false };
    let text: Vec<char> = text.chars().collect();
    any(&alternatives, &text, 0, &mut |end| end == text.len())
}

/// Whether a pattern has the form that is understood here.
#[must_use]
pub fn is_known(pattern: &str) -> bool {
    parsed(pattern).is_some()
}

type Alternatives = Vec<Vec<Piece>>;

/// Something with the number of its repetitions.
struct Piece {
    what: What,
    least: usize,
    most: usize,
}

enum What {
    Letter(Class),
    Group(Alternatives),
}

/// Ranges of letters; `is_inverted`: all others.
struct Class {
    ranges: Vec<(char, char)>,
    is_inverted: bool,
}

fn any(alternatives: &[Vec<Piece>], text: &[char], at: usize, then: &mut dyn FnMut(usize) -> bool) -> bool {
    alternatives.iter().any(|pieces| all(pieces, text, at, then))
}

fn all(pieces: &[Piece], text: &[char], at: usize, then: &mut dyn FnMut(usize) -> bool) -> bool {
    let Some((first, rest)) = pieces.split_first() else { return then(at) };
    first.repeated(text, at, 0, &mut |at| all(rest, text, at, then))
}

impl Piece {
    fn repeated(&self, text: &[char], at: usize, rounds: usize, then: &mut dyn FnMut(usize) -> bool) -> bool {
        match &self.what {
            What::Letter(class) => {
                let longest = text[at..].iter().take(self.most).take_while(|letter| class.has(**letter)).count();
                (self.least..=longest).rev().any(|count| then(at + count))
            }
            What::Group(alternatives) => {
                let is_new = |end: usize| end > at || rounds < self.least;
                let mut again = |end: usize| is_new(end) && self.repeated(text, end, rounds + 1, then);
                (rounds < self.most.min(ROUNDS) && any(alternatives, text, at, &mut again))
                    || (rounds >= self.least && then(at))
            }
        }
    }
}

impl Class {
    fn has(&self, letter: char) -> bool {
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&letter)) != self.is_inverted
    }
}

fn parsed(pattern: &str) -> Option<Alternatives> {
    let mut parser = Parser(pattern.strip_prefix('^')?.strip_suffix('$')?);
    parser.alternatives().filter(|_| parser.0.is_empty())
}

struct Parser<'a>(&'a str);

impl Parser<'_> {
    fn alternatives(&mut self) -> Option<Alternatives> {
        let mut found = vec![Vec::new()];
        while let Some(letter) = self.peek().filter(|letter| *letter != ')') {
            if letter == '|' {
                self.next();
                found.push(Vec::new());
            } else {
                let piece = self.piece()?;
                found.last_mut()?.push(piece);
            }
        }
        Some(found)
    }

    fn piece(&mut self) -> Option<Piece> {
        let what = match self.next()? {
            '(' => {
                self.passes("?:").then_some(())?;
                let alternatives = self.alternatives()?;
                self.passes(")").then_some(What::Group(alternatives))?
            }
            '[' => What::Letter(self.class()?),
            // These would mean something that is not understood here.
            '.' | '^' | '$' | '*' | '+' | '?' | '{' => return None,
            letter => {
                let letter = self.unescaped(letter)?;
                What::Letter(Class { ranges: vec![(letter, letter)], is_inverted: false })
            }
        };
        let (least, most) = match self.peek() {
            Some('*') => (0, usize::MAX),
            Some('+') => (1, usize::MAX),
            Some('?') => (0, 1),
            Some('{') => return self.counted(what),
            _ => return Some(Piece { what, least: 1, most: 1 }),
        };
        self.next();
        Some(Piece { what, least, most })
    }

    /// `{3}` or `{0,3}`.
    fn counted(&mut self, what: What) -> Option<Piece> {
        let (counts, rest) = self.0.strip_prefix('{')?.split_once('}')?;
        self.0 = rest;
        let (least, most) = counts.split_once(',').unwrap_or((counts, counts));
        Some(Piece { what, least: least.parse().ok()?, most: most.parse().ok()? })
    }

    fn class(&mut self) -> Option<Class> {
        let is_inverted = self.passes("^");
        let mut ranges = Vec::new();
        loop {
            let first = match self.next()? {
                ']' => return Some(Class { ranges, is_inverted }),
                letter => self.unescaped(letter)?,
            };
            let is_range = self.0.starts_with('-') && !self.0.starts_with("-]");
            if is_range {
                self.next();
            }
            let last = if is_range { self.next().and_then(|letter| self.unescaped(letter))? } else { first };
            ranges.push((first, last));
        }
    }

    /// The letter that `first` stands for, which a backslash may begin.
    fn unescaped(&mut self, first: char) -> Option<char> {
        if first != '\\' {
            return Some(first);
        }
        Some(match self.next()? {
            't' => '\t',
            'n' => '\n',
            'r' => '\r',
            'f' => '\x0c',
            'v' => '\x0b',
            'x' => {
                let (digits, rest) = self.0.split_at_checked(2)?;
                self.0 = rest;
                char::from(u8::from_str_radix(digits, 16).ok()?)
            }
            letter if letter.is_ascii_alphanumeric() => return None,
            letter => letter,
        })
    }

    fn passes(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn peek(&self) -> Option<char> {
        self.0.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.0 = &self.0[letter.len_utf8()..];
        Some(letter)
    }
}
