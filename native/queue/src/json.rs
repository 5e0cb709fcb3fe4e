//! Whether a text is JSON: without recursion, and with no memory but a bit for each open bracket.

/// Brackets that may be open at once. A deeper text counts as no JSON.
const DEPTH: u32 = u128::BITS;

/// Whether `text` is one value of JSON, with white space around it. The characters of texts are not checked.
#[must_use]
pub fn is_json(text: &[u8]) -> bool {
    Check { rest: text, is_object: 0, depth: 0 }.run().is_some()
}

struct Check<'a> {
    rest: &'a [u8],
    /// A bit for each open bracket, the innermost the lowest: whether it is an object's.
    is_object: u128,
    depth: u32,
}

impl Check<'_> {
    fn run(&mut self) -> Option<()> {
        loop {
            if self.value()? {
                continue;
            }
            loop {
                self.space();
                if self.depth == 0 {
                    return self.rest.is_empty().then_some(());
                }
                let is_object = self.is_object & 1 == 1;
                match (self.next()?, is_object) {
                    (b',', true) => {
                        self.name()?;
                        break;
                    }
                    (b',', false) => break,
                    (b'}', true) | (b']', false) => self.leave(),
                    _ => return None,
                }
            }
        }
    }

    /// Passes a value; true: it was the beginning of one, and another value follows.
    fn value(&mut self) -> Option<bool> {
        self.space();
        match self.next()? {
            b'{' => {
                self.enter(true)?;
                if self.ends(b'}') {
                    return Some(false);
                }
                self.name()?;
                return Some(true);
            }
            b'[' => {
                self.enter(false)?;
                return Some(!self.ends(b']'));
            }
            b'"' => self.text()?,
            b't' => self.word(b"rue")?,
            b'f' => self.word(b"alse")?,
            b'n' => self.word(b"ull")?,
            b'-' => {
                let first = self.next()?;
                self.number(first)?;
            }
            first => self.number(first)?,
        }
        Some(false)
    }

    fn enter(&mut self, is_object: bool) -> Option<()> {
        if self.depth == DEPTH {
            return None;
        }
        self.is_object = self.is_object << 1 | u128::from(is_object);
        self.depth += 1;
        Some(())
    }

    fn leave(&mut self) {
        self.is_object >>= 1;
        self.depth -= 1;
    }

    /// Whether the bracket that was just opened is closed at once.
    fn ends(&mut self, end: u8) -> bool {
        self.space();
        let ends = self.rest.first() == Some(&end);
        if ends {
            self.rest = &self.rest[1..];
            self.leave();
        }
        ends
    }

    /// Passes the name of a member, and the colon.
    fn name(&mut self) -> Option<()> {
        self.space();
        self.word(b"\"")?;
        self.text()?;
        self.space();
        self.word(b":")
    }

    fn text(&mut self) -> Option<()> {
        loop {
            match self.next()? {
                b'"' => return Some(()),
                b'\\' => match self.next()? {
                    b'u' => {
                        let (digits, rest) = self.rest.split_at_checked(4)?;
                        self.rest = rest;
                        digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                    }
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                    _ => return None,
                },
                0..0x20 => return None,
                _ => {}
            }
        }
    }

    /// Passes a number whose sign and first digit were passed.
    fn number(&mut self, first: u8) -> Option<()> {
        match first {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            _ => return None,
        }
        if self.rest.first() == Some(&b'.') {
            self.rest = &self.rest[1..];
            self.digit()?;
        }
        if let Some(b'e' | b'E') = self.rest.first() {
            self.rest = &self.rest[1..];
            if let Some(b'+' | b'-') = self.rest.first() {
                self.rest = &self.rest[1..];
            }
            self.digit()?;
        }
        Some(())
    }

    /// Passes one digit, and all that follow.
    fn digit(&mut self) -> Option<()> {
        self.next().filter(u8::is_ascii_digit)?;
        self.digits();
        Some(())
    }

    fn digits(&mut self) {
        let end = self.rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(())
    }

    fn space(&mut self) {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let end = self.rest.iter().position(|byte| !is_space(byte)).unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }
}
