//! Records as rows: the members of a line in columns of types, in one pass, by the parser of `serde_json`.
//!
//! A line is *plain* if the columns have exactly what a reader finds in it: it is an object of valid JSON with a process
//! and a time; each member that has a column comes once and is of its type; and none means the same as a column by
//! another name, as `"gen_ai": {…}` does.

use crate::segment::Utc;
use memchr::memmem;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::collections::HashMap;
use std::fmt;

/// Whole numbers from here on are not all floats.
const EXACT: f64 = (1_u64 << 53) as f64;
/// A place of rows: offset, length, and whether the row is odd.
const PLACE: [(&str, Kind); 3] = [("offset", Kind::Signed), ("length", Kind::Signed), ("odd", Kind::Bool)];
const TIMESTAMP: &str = "timestamp";
const PID: &str = "pid";

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Signed,
    Unsigned,
    Float,
    Bool,
    /// Nanoseconds since the Unix epoch; in the line RFC 3339, UTC.
    Time,
}

impl Kind {
    /// The type that SQL calls so.
    fn of(column: &str) -> Option<Self> {
        Some(match column {
            "VARCHAR" => Self::Text,
            "BIGINT" => Self::Signed,
            "UBIGINT" => Self::Unsigned,
            "DOUBLE" => Self::Float,
            "BOOLEAN" => Self::Bool,
            "TIMESTAMP_NS" => Self::Time,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy)]
enum Member {
    Column(usize),
    /// Without a column, and plain if it is a text.
    Text,
    /// No plain line has it.
    Refused,
    Other,
}

/// The columns, and what other members mean for a line.
pub struct Shape {
    columns: Vec<(String, Kind)>,
    members: Vec<(String, Member)>,
    /// Where each is among the members.
    places: HashMap<String, usize>,
    required: [usize; 2],
}

impl Shape {
    /// Make one of names and SQL types; `texts` must be texts in plain lines, and `refused` are in none. None: a type is
    /// unknown, or there is no column for time or process.
    pub fn new(
        columns: &[(String, String)],
        texts: impl IntoIterator<Item = String>,
        refused: impl IntoIterator<Item = String>,
    ) -> Option<Self> {
        let mut all: Vec<_> = PLACE.map(|(name, kind)| (name.to_owned(), kind)).to_vec();
        let mut members = Vec::new();
        for (name, column) in columns {
            members.push((name.clone(), Member::Column(all.len())));
            all.push((name.clone(), Kind::of(column)?));
        }
        let at = |name| all.iter().position(|(column, _)| column == name);
        let required = [at(TIMESTAMP)?, at(PID)?];
        members.extend(texts.into_iter().map(|name| (name, Member::Text)));
        members.extend(refused.into_iter().map(|name| (name, Member::Refused)));
        let places = members.iter().enumerate().map(|(place, (name, _))| (name.clone(), place)).collect();
        Some(Self { columns: all, members, places, required })
    }

    /// Name and type of each column: those of the place, and those given.
    pub fn columns(&self) -> &[(String, Kind)] {
        &self.columns
    }
}

/// The values of a column.
#[derive(Debug)]
pub enum Values {
    /// Texts one after the other, and where each ends.
    Texts(Vec<i32>, Vec<u8>),
    /// 64 bits each: numbers and times.
    Words(Vec<u64>),
    Bools(Vec<bool>),
}

/// A column: its values, and which of them are there.
#[derive(Debug)]
pub struct Column {
    pub present: Vec<bool>,
    pub values: Values,
}

impl Column {
    fn new(kind: Kind) -> Self {
        let values = match kind {
            Kind::Text => Values::Texts(vec![0], Vec::new()),
            Kind::Bool => Values::Bools(Vec::new()),
            _ => Values::Words(Vec::new()),
        };
        Self { present: Vec::new(), values }
    }

    /// Makes it as long as `len` rows, with nothing in the new ones, or without the last ones.
    fn resize(&mut self, len: usize) {
        self.present.resize(len, false);
        match &mut self.values {
            Values::Texts(ends, text) => {
                ends.truncate(len + 1);
                text.truncate(ends[ends.len() - 1] as usize);
                ends.resize(len + 1, text.len() as i32);
            }
            Values::Words(words) => words.resize(len, 0),
            Values::Bools(bools) => bools.resize(len, false),
        }
    }

    fn push_word(&mut self, word: u64) {
        if let Values::Words(words) = &mut self.values {
            words.push(word);
            self.present.push(true);
        }
    }

    fn push_bool(&mut self, value: bool) {
        if let Values::Bools(bools) = &mut self.values {
            bools.push(value);
            self.present.push(true);
        }
    }

    /// Returns whether there is room.
    fn push_text(&mut self, text: &str) -> bool {
        let Values::Texts(ends, all) = &mut self.values else { return false };
        let Ok(end) = i32::try_from(all.len() + text.len()) else { return false };
        all.extend_from_slice(text.as_bytes());
        ends.push(end);
        self.present.push(true);
        true
    }
}

/// Rows of one segment, in the order of its lines.
pub struct Rows<'a> {
    shape: &'a Shape,
    columns: Vec<Column>,
    /// The member that last came after each, and first of all: lines resemble each other, and to compare is cheaper than to look up.
    following: Vec<usize>,
    /// Number of rows.
    pub len: usize,
    /// How many of them are odd: their columns do not have what the line does.
    pub odd: usize,
    /// The earliest and the latest time.
    pub times: Option<(u64, u64)>,
    /// The time of the last row.
    pub last_ns: u64,
}

impl<'a> Rows<'a> {
    /// Begin; `last_ns` is the time of the record before.
    pub fn new(shape: &'a Shape, last_ns: u64) -> Self {
        let columns = shape.columns.iter().map(|(_, kind)| Column::new(*kind)).collect();
        Self { shape, columns, following: vec![0; shape.members.len() + 1], len: 0, odd: 0, times: None, last_ns }
    }

    /// Take the row of a plain line; returns false for another line, which has none then.
    pub fn take(&mut self, line: &[u8], offset: u64) -> bool {
        let is_plain = std::str::from_utf8(line).is_ok_and(|text| {
            // Half a pair of surrogates is no text, which a parser does not see in what it ignores.
            let has_pairs = [r"\ud", r"\uD"].iter().any(|pair| memmem::find(line, pair.as_bytes()).is_some());
            let mut parser = serde_json::Deserializer::from_str(text);
            parser.deserialize_map(Record { rows: self, has_pairs }).is_ok() && parser.end().is_ok()
        });
        let [time, _] = self.shape.required;
        match &self.columns[time].values {
            Values::Words(words) if is_plain => self.end(words[self.len], line.len(), offset, false),
            _ => {
                self.columns.iter_mut().filter(|one| one.present.len() > self.len).for_each(|one| one.resize(self.len))
            }
        }
        is_plain
    }

    /// Take the row of an odd record; without a readable time it has that of the record before.
    pub fn take_odd(&mut self, time: &str, length: usize, offset: u64) {
        let time = Utc::parse(time).unwrap_or(self.last_ns);
        self.columns[self.shape.required[0]].resize(self.len);
        self.columns[self.shape.required[0]].push_word(time);
        self.end(time, length, offset, true);
    }

    /// Return the columns of [`Shape::columns`].
    pub fn finish(mut self) -> Vec<Column> {
        self.columns.iter_mut().for_each(|column| column.resize(self.len));
        self.columns
    }

    fn end(&mut self, time: u64, length: usize, offset: u64, odd: bool) {
        self.columns[0].push_word(offset);
        self.columns[1].push_word(length as u64);
        self.columns[2].push_bool(odd);
        self.len += 1;
        self.odd += usize::from(odd);
        let (first, last) = self.times.unwrap_or((time, time));
        (self.times, self.last_ns) = (Some((first.min(time), last.max(time))), time);
    }
}

struct Record<'r, 'a> {
    rows: &'r mut Rows<'a>,
    has_pairs: bool,
}

impl<'de> Visitor<'de> for Record<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Rows { shape, columns, following, len, .. } = self.rows;
        let mut at = shape.members.len();
        while let Some(member) = map.next_key_seed(Key { shape, following, at: &mut at })? {
            match member {
                Member::Column(at) if columns[at].present.len() <= *len => {
                    columns[at].resize(*len);
                    map.next_value_seed(Cell { kind: shape.columns[at].1, column: &mut columns[at] })?;
                }
                Member::Text => map.next_value_seed(Cell { kind: Kind::Text, column: &mut Column::new(Kind::Text) })?,
                Member::Other if self.has_pairs => drop(map.next_value::<serde_json::Value>()?),
                Member::Other => drop(map.next_value::<IgnoredAny>()?),
                Member::Column(_) | Member::Refused => return Err(A::Error::custom("not plain")),
            }
        }
        let has_all = shape.required.iter().all(|at| columns[*at].present.len() > *len);
        has_all.then_some(()).ok_or_else(|| A::Error::custom("not plain"))
    }
}

/// A key; `at` is the member before, and then this one.
struct Key<'a> {
    shape: &'a Shape,
    following: &'a mut [usize],
    at: &'a mut usize,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Member;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Member, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Member;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Member, E> {
        let Self { shape, following, at } = self;
        let likely = &mut following[*at];
        if shape.members[*likely].0 != key {
            let Some(place) = shape.places.get(key) else { return Ok(Member::Other) };
            *likely = *place;
        }
        *at = *likely;
        Ok(shape.members[*at].1)
    }
}

/// A value that goes into a column.
struct Cell<'c> {
    kind: Kind,
    column: &'c mut Column,
}

impl<'de> DeserializeSeed<'de> for Cell<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.kind {
            Kind::Text | Kind::Time => deserializer.deserialize_str(self),
            Kind::Signed => deserializer.deserialize_i64(self),
            Kind::Unsigned => deserializer.deserialize_u64(self),
            Kind::Float => deserializer.deserialize_f64(self),
            Kind::Bool => deserializer.deserialize_bool(self),
        }
    }
}

impl Visitor<'_> for Cell<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        let is_kept = match self.kind {
            Kind::Text => self.column.push_text(text),
            Kind::Time => Utc::parse(text).map(|time| self.column.push_word(time)).is_some(),
            _ => false,
        };
        is_kept.then_some(()).ok_or_else(|| E::custom("not plain"))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        match self.kind {
            Kind::Unsigned => self.column.push_word(number),
            Kind::Signed if i64::try_from(number).is_ok() => self.column.push_word(number),
            Kind::Float => return self.visit_f64(number as f64),
            _ => return Err(E::custom("not plain")),
        }
        Ok(())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        match self.kind {
            Kind::Signed => self.column.push_word(number as u64),
            Kind::Float => return self.visit_f64(number as f64),
            _ => return Err(E::custom("not plain")),
        }
        Ok(())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        if self.kind != Kind::Float || number.abs() >= EXACT {
            return Err(E::custom("not plain"));
        }
        self.column.push_word(number.to_bits());
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.column.push_bool(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Rows, Shape, Values};

    const RECORD: &str = r#""timestamp":"2026-11-21T05:00:00.000000001Z","pid":7"#;

    fn shape() -> Shape {
        let columns = [
            ("timestamp", "TIMESTAMP_NS"),
            ("pid", "BIGINT"),
            ("seq", "UBIGINT"),
            ("s", "DOUBLE"),
            ("t", "VARCHAR"),
            ("b", "BOOLEAN"),
        ];
        let columns = columns.map(|(name, column)| (name.to_owned(), column.to_owned()));
        Shape::new(&columns, ["way".to_owned()], ["gen_ai".to_owned()]).unwrap()
    }

    #[test]
    fn a_plain_line_has_its_values_in_columns_and_no_other_line_leaves_anything() {
        let shape = shape();
        let mut rows = Rows::new(&shape, 5);
        let plain =
            format!(r#"{{{RECORD},"seq":18446744073709551615,"s":1,"t":"a\u00e9","b":true,"x":[{{"y":null}}]}}"#);
        let values = r#""pid":7 "seq":-1 "s":9007199254740992 "t":null "t":1 "b":"true" "way":{} "gen_ai":1"#;
        let invalid = r#""x":"\ud800" "x":{"\ud800":1} "x":"~" "x":[1,] "x":NaN "\u0070id":1 }"#;
        for more in [values, invalid].map(|all| all.split(' ')).into_iter().flatten() {
            let line = format!("{{{RECORD},{more}}}").replace('~', "\t");
            assert!(!rows.take(line.as_bytes(), 0), "{more}");
        }
        for line in ["", "[]", r#"{"pid":7}"#, r#"{"timestamp":"2026-11-21T05:00:00.000000001Z"}"#] {
            assert!(!rows.take(line.as_bytes(), 0), "{line}");
        }
        assert!(!rows.take(plain.replace("05:00:00.0", "05:00:60.0").as_bytes(), 0));
        assert!(!rows.take(plain.replace("11-21", "11-31").as_bytes(), 0));
        assert!(rows.take(plain.as_bytes(), 9));
        rows.take_odd("", 3, 99);
        assert!(rows.take(format!("{{{RECORD}}}").as_bytes(), 102));
        let second = 1_795_237_200_000_000_001;
        assert_eq!((rows.len, rows.odd, rows.times, rows.last_ns), (3, 1, Some((second, second)), second));
        let columns = rows.finish();
        let found: Vec<_> = columns
            .iter()
            .zip(shape.columns())
            .map(|(column, (name, kind))| {
                assert_eq!(column.present.len(), 3);
                let words = matches!(&column.values, Values::Words(words) if words.len() == 3);
                assert_eq!(words, !matches!(kind, Kind::Text | Kind::Bool), "{name}");
                column.present[1]
            })
            .collect();
        assert_eq!(found, [true, true, true, true, false, false, false, false, false]);
        assert!(matches!(&columns[0].values, Values::Words(offsets) if *offsets == [9, 99, 102]));
        assert!(matches!(&columns[5].values, Values::Words(numbers) if numbers[0] == u64::MAX));
        assert!(matches!(&columns[6].values, Values::Words(floats) if floats[0] == 1_f64.to_bits()));
        assert!(
            matches!(&columns[7].values, Values::Texts(ends, text) if *ends == [0, 3, 3, 3] && text == "aé".as_bytes())
        );
    }
}
