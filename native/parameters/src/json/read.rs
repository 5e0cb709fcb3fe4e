//! The reader of a text: one value, as a tree.

use super::{Map, Number, Value, decimal};

/// Brackets that may be open at once.
const DEPTH: usize = 128;

/// Reads one value, with white space around it.
pub fn whole(json: &[u8]) -> Result<Value, String> {
    let text = str::from_utf8(json).map_err(|error| at(json, error.valid_up_to(), "is not UTF-8"))?;
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(DEPTH).and_then(|value| {
        reader.space();
        if reader.at == text.len() { Ok(value) } else { Err("has more behind its value") }
    });
    value.map_err(|what| at(json, reader.at, what))
}

/// The number that a text is.
fn number(text: &str) -> Option<Number> {
    let whole = || text.parse().ok().map(Number::Unsigned);
    // -0 is no whole number of another sign.
    let below = || text.parse().ok().filter(|number| *number < 0).map(Number::Signed);
    let float = || decimal::float(text).map(|number| Number::Float(number, text.into()));
    if super::is_json(text.as_bytes()) { whole().or_else(below).or_else(float) } else { None }
}

/// A sentence with line and column.
fn at(json: &[u8], at: usize, what: &str) -> String {
    let before = &json[..at.min(json.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
    format!("it {what}, at line {line} column {column}")
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

type Read<T> = Result<T, &'static str>;

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Read<Value> {
        self.space();
        match self.peek() {
            Some(b'{' | b'[') if depth == 0 => Err("has too many brackets in each other"),
            Some(b'{') => self.object(depth - 1).map(Value::Object),
            Some(b'[') => self.array(depth - 1).map(Value::Array),
            Some(b'"') => self.string().map(Value::String),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err("has something else than a value"),
            None => Err("ends too early"),
        }
    }

    fn object(&mut self, depth: usize) -> Read<Map> {
        let mut members = Map::default();
        self.at += 1;
        if self.passes(b'}') {
            return Ok(members);
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err("has a member without a name");
            }
            let name = self.string()?;
            if !self.passes(b':') {
                return Err("has a name without a colon");
            }
            members.insert(name, self.value(depth)?);
            if self.passes(b'}') {
                return Ok(members);
            }
            if !self.passes(b',') {
                return Err("has an object without its end");
            }
        }
    }

    fn array(&mut self, depth: usize) -> Read<Vec<Value>> {
        let mut items = Vec::new();
        self.at += 1;
        if self.passes(b']') {
            return Ok(items);
        }
        loop {
            items.push(self.value(depth)?);
            if self.passes(b']') {
                return Ok(items);
            }
            if !self.passes(b',') {
                return Err("has a list without its end");
            }
        }
    }

    fn string(&mut self) -> Read<String> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            // By bytes: a search for characters takes several times as long, and a start reads the texts of the schema.
            let end = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\')).ok_or("has a text without its end")?;
            let (plain, rest) = rest.split_at(end);
            if let Some(control) = plain.bytes().position(|byte| byte < 0x20) {
                self.at += control;
                return Err("has a control character in a text");
            }
            text.push_str(plain);
            self.at += end + 1;
            if rest.starts_with('"') {
                return Ok(text);
            }
            text.push(self.escaped()?);
        }
    }

    /// Reads what follows a backslash.
    fn escaped(&mut self) -> Read<char> {
        let letter = self.peek().ok_or("has a text without its end")?;
        self.at += 1;
        Ok(match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\x08',
            b'f' => '\x0c',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unit().ok_or("has half a character in a text"),
            _ => return Err("has an unknown escape in a text"),
        })
    }

    fn unit(&mut self) -> Option<char> {
        let first = self.hex()?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first);
        }
        self.text[self.at..].starts_with("\\u").then_some(())?;
        self.at += 2;
        let second = self.hex().filter(|unit| (0xdc00..0xe000).contains(unit))?;
        char::from_u32(0x10000 + ((first & 0x3ff) << 10 | second & 0x3ff))
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
        self.at += 4;
        u32::from_str_radix(digits, 16).ok()
    }

    fn number(&mut self) -> Read<Value> {
        let rest = &self.text[self.at..];
        let is_part = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
        let text = &rest[..rest.bytes().position(|byte| !is_part(byte)).unwrap_or(rest.len())];
        let number = number(text).ok_or("has a wrong number, or one that is too large")?;
        self.at += text.len();
        Ok(Value::Number(number))
    }

    fn word(&mut self, word: &str, value: Value) -> Read<Value> {
        if !self.text[self.at..].starts_with(word) {
            return Err("has something else than a value");
        }
        self.at += word.len();
        Ok(value)
    }

    /// Passes white space, and `byte` if it follows. Returns whether it does.
    fn passes(&mut self, byte: u8) -> bool {
        self.space();
        let follows = self.peek() == Some(byte);
        self.at += usize::from(follows);
        follows
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}
