//! Answers `values`: how often each value of a field occurs.

use crate::block::Block;
use crate::catalog::Snapshot;
use crate::image::Unreadable;
use crate::labels::Labels;
use crate::query::{Query, Wrong};
use crate::record::{Json, Record};
use crate::scan::{View, Visitor};
use crate::search::{Reached, search};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The members that this question has of its own.
pub const MEMBERS: &[&str] = &["field", "limit"];
/// Different values that are counted; those that come later are not.
const MOST_VALUES: usize = 100_000;
/// Longer ones are not counted.
const LONGEST_VALUE: usize = 1024;

/// The values with their counts, by the text that distinguishes them.
pub type Counts = HashMap<String, (Json, u64)>;

struct Counter {
    fields: Vec<String>,
    counts: Counts,
}

impl Counter {
    fn add(&mut self, value: &Json, count: u64) {
        let text = name(value);
        if let Some(found) = self.counts.get_mut(&text) {
            found.1 += count;
        } else if self.counts.len() < MOST_VALUES && text.len() <= LONGEST_VALUE {
            self.counts.insert(text, (value.clone(), count));
        }
    }
}

/// Returns the text by which equal values are found; 1 and 1.0 are equal, 1 and "1" are not.
#[must_use]
pub fn name(value: &Json) -> String {
    match value {
        Json::Text(text) => format!("={text}"),
        Json::Float(float) if float.fract() == 0.0 && float.abs() < 1e15 => format!("{float:.0}"),
        other => other.to_python_text(),
    }
}

impl Visitor for Counter {
    fn fields(&self) -> &[String] {
        &self.fields
    }

    fn admits(&mut self, _block: &Block) -> bool {
        true
    }

    fn columns(&mut self, view: &mut View<'_, '_>, rows: &[u16]) -> Result<(), Unreadable> {
        let labels = Labels::read(view, &self.fields[0])?;
        let mut counts = vec![0_u64; labels.values.len() + 1];
        rows.iter().for_each(|row| counts[labels.of_rows[usize::from(*row)] as usize] += 1);
        for (value, count) in labels.values.iter().zip(&counts[1..]).filter(|(_, count)| **count > 0) {
            self.add(value, *count);
        }
        Ok(())
    }

    fn line(&mut self, _time: u64, _offset: u64, record: &Record) {
        if let Some(value) = record.look_up(&self.fields[0]).cloned() {
            self.add(&value, 1);
        }
    }
}

/// Counts the values of a field.
#[must_use]
pub fn counts(query: &Query, snapshot: &Snapshot, field: &str) -> (Counts, Reached) {
    let make = || Counter { fields: vec![field.to_owned()], counts: Counts::new() };
    let (counters, reached) = search(query, snapshot, false, make);
    let mut all = make();
    for counter in counters {
        counter.counts.values().for_each(|(value, count)| all.add(value, *count));
    }
    (all.counts, reached)
}

/// Returns the most frequent values, and their counts, the first ones by `limit`.
#[must_use]
pub fn most_frequent(counts: Counts, limit: usize) -> Vec<(Json, u64)> {
    let mut all: Vec<(String, (Json, u64))> = counts.into_iter().collect();
    all.sort_by(|(name, (_, count)), (other_name, (_, other))| other.cmp(count).then_with(|| name.cmp(other_name)));
    all.into_iter().take(limit).map(|(_, found)| found).collect()
}

/// Answers a query.
///
/// # Errors
/// It names no field.
pub fn values(query: &Query, snapshot: &Snapshot) -> Result<Value, Wrong> {
    let field = query.field.as_ref().ok_or_else(|| Wrong("field: must be given".into()))?;
    let (counts, _) = counts(query, snapshot, field);
    let found = most_frequent(counts, query.limit);
    Ok(found.iter().map(|(value, count)| json!({"value": value.to_value(), "count": count})).collect())
}
