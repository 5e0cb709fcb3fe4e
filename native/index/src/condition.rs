//! Conditions on records, with the grammar and the meaning of `--where` (`inference_logging/read/where.py`).

use crate::record::{Json, Record};
use std::cmp::Ordering;

/// Longest whole number that Python reads; a longer one is a float.
const MOST_DIGITS: usize = 4300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Contains,
}

/// The number that a condition's value can be read as.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    Int(i128),
    /// Beyond 127 bits: sign and digits.
    Huge(bool, String),
    Float(f64),
}

/// One condition on a field.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub field: String,
    pub operator: Operator,
    pub value: String,
    pub number: Option<Number>,
}

impl Condition {
    /// Reads `FIELD OPERATOR VALUE`; None if the text has another form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (field, rest) = text.split_at(text.find(['=', '!', '<', '>', '~'])?);
        let (operator, value) = Operator::read(rest)?;
        let (field, value) = (strip(field), strip(value));
        let number = Number::read(value);
        (!field.is_empty()).then(|| Self { field: field.into(), operator, value: value.into(), number })
    }

    /// Returns whether a record fulfils the condition.
    #[must_use]
    pub fn holds(&self, record: &Record) -> bool {
        self.holds_for(record.look_up(&self.field))
    }

    /// Returns whether a value, or its absence, fulfils the condition.
    #[must_use]
    pub fn holds_for(&self, found: Option<&Json>) -> bool {
        match (found, self.operator) {
            (found, Operator::NotEqual) => found.is_none_or(|value| !self.is_any(value, Operator::Equal)),
            (None, _) => false,
            (Some(value), operator) => self.is_any(value, operator),
        }
    }

    fn is_any(&self, found: &Json, by: Operator) -> bool {
        match found {
            Json::List(list) => list.iter().any(|element| self.is_any(element, by)),
            found if by == Operator::Contains => found.to_text().contains(&self.value),
            Json::Int(value) => self.number.as_ref().is_some_and(|number| by.accepts(number.compare_int(*value))),
            Json::Float(value) => self.number.as_ref().is_some_and(|number| by.accepts(number.compare_float(*value))),
            Json::Text(text) => by.accepts(Some(text.as_str().cmp(&self.value))),
            other => by == Operator::Equal && other.to_text() == self.value,
        }
    }

    /// Returns whether a text fulfils it.
    #[must_use]
    pub fn holds_for_text(&self, text: &str) -> bool {
        match self.operator {
            Operator::NotEqual => text != self.value,
            Operator::Contains => text.contains(&self.value),
            by => by.accepts(Some(text.cmp(&self.value))),
        }
    }
}

impl Operator {
    fn read(text: &str) -> Option<(Self, &str)> {
        let all = [
            ("!=", Self::NotEqual),
            ("<=", Self::LessOrEqual),
            (">=", Self::GreaterOrEqual),
            ("=", Self::Equal),
            ("<", Self::Less),
            (">", Self::Greater),
            ("~", Self::Contains),
        ];
        all.into_iter().find_map(|(sign, operator)| Some((operator, text.strip_prefix(sign)?)))
    }

    /// Whether the order of found value and condition is one that the operator asks for; None: they have no order.
    #[must_use]
    pub fn accepts(self, order: Option<Ordering>) -> bool {
        let Some(order) = order else { return self == Self::NotEqual };
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
            Self::Contains => false,
        }
    }
}

impl Number {
    /// Reads what Python's `int` or else its `float` reads.
    fn read(text: &str) -> Option<Self> {
        let plain = ascii_digits(text)?;
        let (sign, digits) = match plain.strip_prefix(['-', '+']) {
            Some(digits) => (plain.starts_with('-'), digits),
            None => (false, plain.as_str()),
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) || digits.len() > MOST_DIGITS {
            return plain.parse().ok().map(Self::Float);
        }
        Some(plain.parse().map_or_else(|_| Self::Huge(sign, digits.trim_start_matches('0').into()), Self::Int))
    }

    /// The order of a whole number of a record to this one.
    #[must_use]
    pub fn compare_int(&self, found: i128) -> Option<Ordering> {
        match self {
            Self::Int(value) => Some(found.cmp(value)),
            Self::Huge(is_negative, _) => Some(if *is_negative { Ordering::Greater } else { Ordering::Less }),
            Self::Float(value) => compare(found, *value),
        }
    }

    /// The order of a float of a record to this number.
    #[must_use]
    pub fn compare_float(&self, found: f64) -> Option<Ordering> {
        match self {
            Self::Int(value) => compare(*value, found).map(Ordering::reverse),
            Self::Huge(is_negative, digits) => Some(compare_huge(found, *is_negative, digits)),
            Self::Float(value) => found.partial_cmp(value),
        }
    }
}

/// Exactly, as Python does it.
fn compare(whole: i128, float: f64) -> Option<Ordering> {
    const BEYOND: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0; // 2^127
    if float.is_nan() {
        return None;
    }
    if float >= BEYOND {
        return Some(Ordering::Less);
    }
    if float < -BEYOND {
        return Some(Ordering::Greater);
    }
    let rest = float - float.trunc();
    Some(whole.cmp(&(float.trunc() as i128)).then(0.0_f64.partial_cmp(&rest)?))
}

/// A float and a number beyond 127 bits, by their digits.
fn compare_huge(found: f64, is_negative: bool, digits: &str) -> Ordering {
    let sign = if is_negative { Ordering::Less } else { Ordering::Greater };
    if (found < 0.0) != is_negative {
        return sign.reverse();
    }
    if found.is_infinite() {
        return sign;
    }
    let of_float = format!("{:.0}", found.abs());
    let order = of_float.len().cmp(&digits.len()).then_with(|| of_float.as_str().cmp(digits));
    if is_negative { order.reverse() } else { order }
}

/// The text with digits of all scripts as ASCII, and without underscores between digits; None where one stands elsewhere.
fn ascii_digits(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    let mut after_digit = false;
    while let Some(character) = characters.next() {
        if character == '_' {
            if !after_digit || characters.peek().is_none_or(|next| digit(*next).is_none()) {
                return None;
            }
            after_digit = false;
            continue;
        }
        let value = digit(character);
        after_digit = value.is_some();
        plain.push(value.map_or(character, |value| char::from(b'0' + value)));
    }
    Some(plain)
}

/// The first of each ten decimal digits of Unicode 14, which Python 3.11 has.
const ZEROS: &[u32] = &[
    0x30, 0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xDE6, 0xE50, 0xED0,
    0xF20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620,
    0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10, 0x104A0, 0x10D30, 0x11066, 0x110F0, 0x11136, 0x111D0,
    0x112F0, 0x11450, 0x114D0, 0x11650, 0x116C0, 0x11730, 0x118E0, 0x11950, 0x11C50, 0x11D50, 0x11DA0, 0x16A60,
    0x16AC0, 0x16B50, 0x1D7CE, 0x1D7D8, 0x1D7E2, 0x1D7EC, 0x1D7F6, 0x1E140, 0x1E2F0, 0x1E950, 0x1FBF0,
];

fn digit(character: char) -> Option<u8> {
    let code = u32::from(character);
    if code < 0x80 {
        return character.to_digit(10).map(|value| value as u8);
    }
    let zero = ZEROS[..ZEROS.partition_point(|zero| *zero <= code)].last()?;
    u8::try_from(code - zero).ok().filter(|value| *value < 10)
}

/// As Python's `strip`.
#[must_use]
pub fn strip(text: &str) -> &str {
    text.trim_matches(|character: char| character.is_whitespace() || ('\x1c'..='\x1f').contains(&character))
}
