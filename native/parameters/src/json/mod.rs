//! JSON as a configuration needs it: a small tree, its text, and a check of a text that allocates nothing.
//!
//! The library for small machines has no room for a general one.

use std::fmt::{self, Display, Formatter};

mod check;
mod decimal;
mod read;

pub use check::is_json;

/// A value of JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Value>),
    Object(Map),
}

/// A number, in the form that it has in the text: 1 and 1.0 are different.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    Unsigned(u64),
    /// Below zero.
    Signed(i64),
    /// With its text, since a small library cannot write such a number.
    Float(f64, Box<str>),
}

/// The members of an object, in their order. Small enough that a search from the beginning is fast.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Map(Vec<(String, Value)>);

impl Value {
    /// Reads a text.
    ///
    /// # Errors
    /// What is wrong with it, with line and column.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        read::whole(json)
    }

    /// The member of an object.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.as_object()?.get(name)
    }

    /// The number that a text is, which may also begin or end with its point, or begin with `+`.
    #[must_use]
    pub fn decimal(text: &str) -> Option<Self> {
        let number = decimal::float(text).filter(|_| decimal::is_decimal(text));
        number.map(|number| Self::Number(Number::Float(number, text.into())))
    }

    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    #[must_use]
    pub fn as_array(&self) -> Option<&Vec<Self>> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    #[must_use]
    pub fn as_object(&self) -> Option<&Map> {
        if let Self::Object(members) = self { Some(members) } else { None }
    }

    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        let Self::Number(number) = self else { return None };
        Some(match number {
            Number::Unsigned(number) => *number as f64,
            Number::Signed(number) => *number as f64,
            Number::Float(number, _) => *number,
        })
    }

    /// The number, if it is written as a whole one.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        if let Self::Number(Number::Unsigned(number)) = self { Some(*number) } else { None }
    }
}

impl Map {
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.iter().find_map(|(known, value)| (known == name).then_some(value))
    }

    #[must_use]
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Sets a member; one that is there keeps its place. Returns the value that it had.
    pub fn insert(&mut self, name: String, value: Value) -> Option<Value> {
        if let Some((_, found)) = self.0.iter_mut().find(|(known, _)| *known == name) {
            return Some(std::mem::replace(found, value));
        }
        self.0.push((name, value));
        None
    }

    /// Takes a member out; the others keep their order.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }

    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.iter().map(|(_, value)| value)
    }
}

impl IntoIterator for Map {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<(String, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(members: I) -> Self {
        let mut map = Self::default();
        for (name, value) in members {
            map.insert(name, value);
        }
        map
    }
}

impl FromIterator<Value> for Value {
    fn from_iter<I: IntoIterator<Item = Value>>(items: I) -> Self {
        Self::Array(items.into_iter().collect())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(Number::Unsigned(number))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(u64::try_from(number).map_or(Number::Signed(number), Number::Unsigned))
    }
}

impl Display for Value {
    /// As JSON without spaces.
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => to.write_str("null"),
            Self::Bool(is_true) => write!(to, "{is_true}"),
            Self::Number(Number::Unsigned(number)) => write!(to, "{number}"),
            Self::Number(Number::Signed(number)) => write!(to, "{number}"),
            Self::Number(Number::Float(_, text)) => to.write_str(text),
            Self::String(text) => quoted(text, to),
            Self::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    write!(to, "{}{item}", if at == 0 { "[" } else { "," })?;
                }
                to.write_str(if items.is_empty() { "[]" } else { "]" })
            }
            Self::Object(members) => {
                for (at, (name, value)) in members.iter().enumerate() {
                    to.write_str(if at == 0 { "{" } else { "," })?;
                    quoted(name, to)?;
                    write!(to, ":{value}")?;
                }
                to.write_str(if members.0.is_empty() { "{}" } else { "}" })
            }
        }
    }
}

fn quoted(text: &str, to: &mut Formatter<'_>) -> fmt::Result {
    to.write_str("\"")?;
    for letter in text.chars() {
        match letter {
            '"' => to.write_str("\\\"")?,
            '\\' => to.write_str("\\\\")?,
            '\n' => to.write_str("\\n")?,
            '\r' => to.write_str("\\r")?,
            '\t' => to.write_str("\\t")?,
            '\x08' => to.write_str("\\b")?,
            '\x0c' => to.write_str("\\f")?,
            '\0'..'\x20' => write!(to, "\\u{:04x}", letter as u32)?,
            _ => write!(to, "{letter}")?,
        }
    }
    to.write_str("\"")
}
