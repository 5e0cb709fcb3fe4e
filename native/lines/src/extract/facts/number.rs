//! Numbers of a body.

use crate::json::lex::Scalar;
use crate::json::number;

/// Longest number that is read.
const MAX_NUMBER_BYTES: usize = 64;
/// Floats up to here count integers exactly.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// A JSON number, as exactly as 64 bits allow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Int(i64),
    Uint(u64),
    Float(f64),
}

impl Number {
    pub fn of(value: Scalar<'_>) -> Option<Self> {
        let Scalar::Word(word) = value else { return None };
        if word.len() > MAX_NUMBER_BYTES || !matches!(word.first(), Some(b'-' | b'0'..=b'9')) {
            return None;
        }
        let word = std::str::from_utf8(word).ok()?;
        if let Ok(int) = word.parse() {
            return Some(Self::Int(int));
        }
        if let Ok(uint) = word.parse() {
            return Some(Self::Uint(uint));
        }
        word.parse().ok().filter(|float: &f64| float.is_finite()).map(Self::Float)
    }

    /// An integer, also one that is spelled as a float.
    pub fn whole(value: Scalar<'_>) -> Option<Self> {
        match Self::of(value)? {
            Self::Float(float) if float.fract() == 0.0 && float.abs() <= MAX_EXACT => Some(Self::Int(float as i64)),
            Self::Float(_) => None,
            whole => Some(whole),
        }
    }

    /// An integer that is not negative.
    pub fn count(value: Scalar<'_>) -> Option<Self> {
        Self::whole(value).filter(|number| !matches!(number, Self::Int(int) if *int < 0))
    }

    /// Whether it is not negative.
    pub fn is_amount(&self) -> bool {
        match *self {
            Self::Int(int) => int >= 0,
            Self::Uint(_) => true,
            Self::Float(float) => float >= 0.0,
        }
    }

    pub fn index(self) -> Option<usize> {
        self.unsigned().and_then(|index| usize::try_from(index).ok())
    }

    pub fn unsigned(self) -> Option<u64> {
        match self {
            Self::Int(int) => u64::try_from(int).ok(),
            Self::Uint(uint) => Some(uint),
            Self::Float(_) => None,
        }
    }

    /// The sum of two counts; as many as there can be if it is larger.
    pub fn plus(self, more: Option<Self>) -> Self {
        match (self.unsigned(), more.and_then(Self::unsigned)) {
            (Some(count), Some(more)) => Self::Uint(count.saturating_add(more)),
            _ => self,
        }
    }
}

/// Append a number behind its key.
pub fn push_number(out: &mut Vec<u8>, key: &str, number: Option<Number>) {
    let Some(number) = number else { return };
    out.extend_from_slice(key.as_bytes());
    match number {
        Number::Int(value) => number::push_integer(out, value),
        Number::Uint(value) => number::push_integer(out, value),
        Number::Float(value) => number::push_float(out, value),
    }
}
