//! The fields of one record, parsed, with the meaning that they have in Python.

use crate::json::{self, NotJson, Token};
use lines::json::text::unescape_onto;
use std::collections::HashMap;
use std::fmt::Write;

/// Above it, equal keys are found by hashing.
const FEW_MEMBERS: usize = 16;

/// A value of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// The fields of a record that were asked for, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    pub members: Vec<(String, Json)>,
}

impl Record {
    /// Reads the members of a line whose key is `wanted`; of equal keys the last value counts.
    ///
    /// # Errors
    /// The line is no JSON object.
    pub fn read(line: &[u8], wanted: impl Fn(&str) -> bool) -> Result<Self, NotJson> {
        std::str::from_utf8(line).map_err(|_| NotJson)?;
        let mut members = Vec::new();
        json::members(line, |key, escaped, token| {
            if escaped {
                let name = text(key, true);
                if wanted(&name) {
                    members.push((name, Json::of(token)));
                }
            } else if let Ok(name) = std::str::from_utf8(key)
                && wanted(name)
            {
                members.push((name.to_owned(), Json::of(token)));
            }
        })?;
        Ok(Self { members: without_repeats(members) })
    }

    /// Returns the value of a field: by its name, which may hold dots, else by its path through nested values.
    #[must_use]
    pub fn look_up(&self, field: &str) -> Option<&Json> {
        look_up(&self.members, field)
    }

    /// Adds a member, unless the record has one of this name.
    pub fn add(&mut self, name: &str, value: Json) {
        if !self.members.iter().any(|(key, _)| key == name) {
            self.members.push((name.to_owned(), value));
        }
    }
}

fn look_up<'a>(members: &'a [(String, Json)], field: &str) -> Option<&'a Json> {
    let of = |name: &str| members.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    if let Some(value) = of(field) {
        return Some(value);
    }
    let dots = field.match_indices('.').map(|(at, _)| at).filter(|at| *at > 0);
    for at in dots {
        if let Some(Json::Object(inner)) = of(&field[..at]) {
            return look_up(inner, &field[at + 1..]);
        }
    }
    None
}

/// The text between the quotes of a line.
#[must_use]
pub fn text(raw: &[u8], escaped: bool) -> String {
    let mut bytes = Vec::with_capacity(raw.len());
    if escaped {
        unescape_onto(&mut bytes, raw);
    } else {
        bytes.extend_from_slice(raw);
    }
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn without_repeats(members: Vec<(String, Json)>) -> Vec<(String, Json)> {
    let repeats = if members.len() <= FEW_MEMBERS {
        members.iter().enumerate().any(|(at, (key, _))| members[..at].iter().any(|(other, _)| other == key))
    } else {
        true
    };
    if !repeats {
        return members;
    }
    let mut places = HashMap::<String, usize>::new();
    let mut kept: Vec<(String, Json)> = Vec::with_capacity(members.len());
    for (key, value) in members {
        match places.get(&key) {
            Some(place) => kept[*place].1 = value,
            None => {
                places.insert(key.clone(), kept.len());
                kept.push((key, value));
            }
        }
    }
    kept
}

impl Json {
    /// Parses a value that [`json::members`] has found.
    #[must_use]
    pub fn of(token: Token<'_>) -> Self {
        match token {
            Token::Null => Self::Null,
            Token::True => Self::Bool(true),
            Token::False => Self::Bool(false),
            Token::Text { raw, escaped } => Self::Text(text(raw, escaped)),
            Token::Number { digits, whole } => number(digits, whole),
            Token::List(bytes) => {
                let mut list = Vec::new();
                json::elements(bytes, |token| list.push(Self::of(token)));
                Self::List(list)
            }
            Token::Object(bytes) => {
                let mut members = Vec::new();
                let _ = json::members(bytes, |key, escaped, token| members.push((text(key, escaped), Self::of(token))));
                Self::Object(without_repeats(members))
            }
        }
    }

    /// Returns the value as a number; a truth value is none.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the text that a condition sees: strings without quotes, truth values as in JSON, all else as Python
    /// writes it.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Bool(true) => "true".into(),
            Self::Bool(false) => "false".into(),
            Self::Null => "null".into(),
            other => other.to_python(),
        }
    }

    /// Returns `str(value)` of Python's value.
    #[must_use]
    pub fn to_python_text(&self) -> String {
        if let Self::Text(text) = self { text.clone() } else { self.to_python() }
    }

    fn to_python(&self) -> String {
        let mut out = String::new();
        self.push_python(&mut out);
        out
    }

    fn push_python(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("None"),
            Self::Bool(value) => out.push_str(if *value { "True" } else { "False" }),
            Self::Int(value) => {
                let _ = write!(out, "{value}");
            }
            Self::Float(value) => push_python_float(out, *value),
            Self::Text(text) => push_python_string(out, text),
            Self::List(list) => {
                out.push('[');
                for (at, value) in list.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    value.push_python(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (at, (key, value)) in members.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    push_python_string(out, key);
                    out.push_str(": ");
                    value.push_python(out);
                }
                out.push('}');
            }
        }
    }

    /// Returns the value for an answer.
    #[must_use]
    pub fn to_value(&self) -> serde_json::Value {
        use serde_json::{Number, Value};
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => i64::try_from(*value)
                .map(Value::from)
                .or_else(|_| u64::try_from(*value).map(Value::from))
                .unwrap_or(Value::Null),
            Self::Float(value) => Number::from_f64(*value).map_or(Value::Null, Value::Number),
            Self::Text(text) => Value::String(text.clone()),
            Self::List(list) => Value::Array(list.iter().map(Self::to_value).collect()),
            Self::Object(members) => {
                Value::Object(members.iter().map(|(key, value)| (key.clone(), value.to_value())).collect())
            }
        }
    }
}

/// Whole numbers of up to 64 bits stay whole; -0 is 0.
fn number(digits: &[u8], whole: bool) -> Json {
    let whole_number = || std::str::from_utf8(digits).ok()?.parse::<i128>().ok();
    match whole.then(whole_number).flatten() {
        Some(value) if (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value) => Json::Int(value),
        _ => Json::Float(json::float(digits)),
    }
}

/// As Python's `repr`: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
pub fn push_python_float(out: &mut String, value: f64) {
    let shortest = format!("{value:e}");
    let Some((digits, exponent)) = shortest.split_once('e') else {
        out.push_str(&shortest.to_lowercase());
        return;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{value}");
        out.push_str(&plain);
        out.push_str(if plain.contains('.') { "" } else { ".0" });
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{digits}e{sign}{:02}", exponent.abs());
    }
}

/// As Python's `repr` of a string.
fn push_python_string(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character == quote => out.extend(['\\', character]),
            _ if is_printable(character) => out.push(character),
            _ => {
                let code = u32::from(character);
                let _ = match code {
                    0..=0xFF => write!(out, "\\x{code:02x}"),
                    0x100..=0xFFFF => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// By the standard library's table; behind a letter, where it escapes no combining character.
fn is_printable(character: char) -> bool {
    let mut pair = [0; 8];
    pair[0] = b'a';
    let len = 1 + character.encode_utf8(&mut pair[1..]).len();
    let pair = std::str::from_utf8(&pair[..len]).unwrap_or("a");
    matches!(character, '"' | '\'') || pair.escape_debug().eq(pair.chars())
}
