//! Reading JSON from its start: a pull lexer over bytes that may end anywhere.
//!
//! Every method returns None where the bytes end early or are not JSON; what was read before stays valid. Linear time,
//! no recursion, no allocation.

/// A position in JSON text.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// One JSON value. Strings are raw: between the quotes, still escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Text(&'a [u8]),
    Number(&'a [u8]),
    Bool(bool),
    Null,
    /// The whole text of an object, braces included.
    Object(&'a [u8]),
    /// The whole text of an array, brackets included.
    Array(&'a [u8]),
}

/// Visits the members of the object that `bytes` begin with, as far as they reach.
pub fn members<'a>(bytes: &'a [u8], mut visit: impl FnMut(&'a [u8], Value<'a>)) -> Option<()> {
    let mut reader = Reader { bytes, at: 0 };
    reader.expect(b'{')?;
    while reader.peek()? != b'}' {
        let Value::Text(key) = reader.value()? else { return None };
        reader.expect(b':')?;
        visit(key, reader.value()?);
        if reader.peek()? == b',' {
            reader.at += 1;
        }
    }
    Some(())
}

/// Visits the elements of the array that `bytes` begin with, as far as they reach.
pub fn elements<'a>(bytes: &'a [u8], mut visit: impl FnMut(Value<'a>)) -> Option<()> {
    let mut reader = Reader { bytes, at: 0 };
    reader.expect(b'[')?;
    while reader.peek()? != b']' {
        visit(reader.value()?);
        if reader.peek()? == b',' {
            reader.at += 1;
        }
    }
    Some(())
}

impl<'a> Reader<'a> {
    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        while self.bytes.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        Some(self.bytes[self.at])
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn value(&mut self) -> Option<Value<'a>> {
        match self.peek()? {
            b'"' => self.text().map(Value::Text),
            b'{' => self.nested().map(Value::Object),
            b'[' => self.nested().map(Value::Array),
            _ => self.scalar(),
        }
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            match self.bytes.get(at)? {
                b'"' => break,
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
        self.at = at + 1;
        Some(&self.bytes[start..at])
    }

    fn nested(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match *self.bytes.get(self.at)? {
                b'"' => {
                    self.text()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => (),
            }
            self.at += 1;
            if depth == 0 {
                return Some(&self.bytes[start..self.at]);
            }
        }
    }

    fn scalar(&mut self) -> Option<Value<'a>> {
        let start = self.at;
        while is_scalar(*self.bytes.get(self.at)?) {
            self.at += 1;
        }
        scalar(&self.bytes[start..self.at])
    }
}

/// Whether a byte can be part of a number or literal.
pub const fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

/// Reads a number or literal.
pub fn scalar(token: &[u8]) -> Option<Value<'_>> {
    match token {
        b"true" => Some(Value::Bool(true)),
        b"false" => Some(Value::Bool(false)),
        b"null" => Some(Value::Null),
        number => is_number(number).then_some(Value::Number(number)),
    }
}

/// Whether `token` is a number by the grammar of JSON, and short enough to be meant.
fn is_number(token: &[u8]) -> bool {
    const LONGEST: usize = 40;
    let digits = |from: &[u8]| from.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = token.strip_prefix(b"-").unwrap_or(token);
    let whole = digits(rest);
    let mut valid = token.len() <= LONGEST && whole > 0 && (whole == 1 || rest[0] != b'0');
    let mut rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let count = digits(fraction);
        valid &= count > 0;
        rest = &fraction[count..];
    }
    if let Some(exponent) = rest.strip_prefix(b"e").or_else(|| rest.strip_prefix(b"E")) {
        let exponent = exponent.strip_prefix(b"+").or_else(|| exponent.strip_prefix(b"-")).unwrap_or(exponent);
        let count = digits(exponent);
        valid &= count > 0;
        rest = &exponent[count..];
    }
    valid && rest.is_empty()
}
