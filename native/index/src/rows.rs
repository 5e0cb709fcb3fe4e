//! Answers `rows`: the first records in an order, a page at a time.

use crate::block::Block;
use crate::builder::{ODD, OFFSET, TIME};
use crate::catalog::{Entry, Snapshot};
use crate::columns::{COLUMNS, RESOURCE, SEVERITY};
use crate::image::{Image, Unreadable};
use crate::query::{Order, Query, Wrong};
use crate::record::{Json, Record};
use crate::scan::{View, Visitor, read_record, wanted};
use crate::search::{Reached, search};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Memory};

/// The members that this question has of its own.
pub const MEMBERS: &[&str] = &["order", "limit", "after", "fields", "segments"];

/// The place of a record in the order: the greatest comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    primary: u64,
    time: u64,
    /// Segment and offset; of the oldest first, the other way round.
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Last(Reverse<(Arc<str>, u64)>),
    First((Arc<str>, u64)),
}

impl Key {
    fn new(order: Order, primary: u64, time: u64, segment: &Arc<str>, offset: u64) -> Self {
        let place = (Arc::clone(segment), offset);
        if order == Order::Oldest {
            Self { primary, time: !time, place: Place::Last(Reverse(place)) }
        } else {
            Self { primary, time, place: Place::First(place) }
        }
    }

    fn place(&self) -> &(Arc<str>, u64) {
        match &self.place {
            Place::First(place) | Place::Last(Reverse(place)) => place,
        }
    }

    fn cursor(&self) -> String {
        let (segment, offset) = self.place();
        format!("{:016x}-{:016x}-{offset:016x}-{segment}", self.primary, self.time)
    }

    fn read(cursor: &str, order: Order) -> Option<Self> {
        let mut parts = cursor.splitn(4, '-');
        let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
        let (primary, time, offset) = (number()?, number()?, number()?);
        let time = if order == Order::Oldest { !time } else { time };
        Some(Self::new(order, primary, time, &parts.next()?.into(), offset))
    }
}

/// A float as a number that has its order.
fn ordered(value: f64) -> u64 {
    let bits = (value + 0.0).to_bits(); // -0.0 becomes 0.0
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn primary(order: Order, time: u64, value: f64) -> u64 {
    match order {
        Order::Newest => time,
        Order::Oldest => !time,
        Order::Column { descending: true, .. } => ordered(value),
        Order::Column { descending: false, .. } => !ordered(value),
    }
}

/// Keeps the first records.
struct First<'a> {
    order: Order,
    keep: usize,
    after: Option<Key>,
    fields: Vec<String>,
    segment: Arc<str>,
    heap: BinaryHeap<Reverse<Key>>,
    matched: u64,
    /// Every record is counted, also those below the first ones.
    counts_all: bool,
    /// What the last of a full heap has: nothing below it matters to anyone.
    least: &'a AtomicU64,
}

impl First<'_> {
    fn push(&mut self, time: u64, value: f64, offset: u64) {
        self.matched += 1;
        if value.is_nan() && matches!(self.order, Order::Column { .. }) {
            self.matched -= 1;
            return;
        }
        let primary = primary(self.order, time, value);
        if self.heap.len() == self.keep && self.heap.peek().is_some_and(|Reverse(last)| primary < last.primary) {
            return;
        }
        let key = Key::new(self.order, primary, time, &self.segment, offset);
        if self.after.as_ref().is_some_and(|after| key >= *after) {
            return;
        }
        self.heap.push(Reverse(key));
        if self.heap.len() > self.keep {
            self.heap.pop();
        }
        if self.heap.len() == self.keep
            && let Some(Reverse(last)) = self.heap.peek()
        {
            self.least.fetch_max(last.primary, Memory::Relaxed);
        }
    }
}

impl Visitor for First<'_> {
    fn begin(&mut self, entry: &Entry) {
        self.segment = Arc::clone(&entry.text);
    }

    fn fields(&self) -> &[String] {
        &self.fields
    }

    fn admits(&mut self, block: &Block) -> bool {
        if self.counts_all {
            return true;
        }
        let (best, worst) = match self.order {
            Order::Newest => (block.times.1, block.times.0),
            Order::Oldest => (!block.times.0, !block.times.1),
            Order::Column { .. } if block.section(ODD).is_some() => return true,
            Order::Column { column, descending } => match block.section(column) {
                None => return false,
                Some(section) if descending => (ordered(section.zone.1), ordered(section.zone.0)),
                Some(section) => (!ordered(section.zone.0), !ordered(section.zone.1)),
            },
        };
        best >= self.least.load(Memory::Relaxed) && self.after.as_ref().is_none_or(|after| worst <= after.primary)
    }

    fn columns(&mut self, view: &mut View<'_, '_>, rows: &[u16]) -> Result<(), Unreadable> {
        let values = match self.order {
            Order::Column { column, .. } => Some(view.dense(column)?),
            _ => None,
        };
        let times = view.integers(TIME)?.to_vec();
        let offsets = view.integers(OFFSET)?;
        for row in rows.iter().map(|row| usize::from(*row)) {
            let value = values.as_ref().map_or(0.0, |values| values[row]);
            self.push(times[row].cast_unsigned(), value, offsets[row].cast_unsigned());
        }
        Ok(())
    }

    fn line(&mut self, time: u64, offset: u64, record: &Record) {
        let value = match self.order {
            Order::Column { column, .. } => record.look_up(COLUMNS[column].name).and_then(Json::as_f64),
            _ => Some(0.0),
        };
        self.push(time, value.unwrap_or(f64::NAN), offset);
    }
}

/// Answers a query.
///
/// # Errors
/// The cursor is none of this order.
pub fn rows(query: &Query, snapshot: &Snapshot) -> Result<Value, Wrong> {
    let wrong = |cursor: &String| Wrong(format!("after={cursor:?}: must be what \"next\" was"));
    let after = match &query.after {
        None => None,
        Some(cursor) => Some(Key::read(cursor, query.order).ok_or_else(|| wrong(cursor))?),
    };
    let least = AtomicU64::new(0);
    let fields = match query.order {
        Order::Column { column, .. } => vec![COLUMNS[column].name.to_owned()],
        _ => Vec::new(),
    };
    let make = || First {
        order: query.order,
        keep: query.limit + 1,
        after: after.clone(),
        fields: fields.clone(),
        segment: "".into(),
        heap: BinaryHeap::new(),
        matched: 0,
        counts_all: query.segments.is_some(),
        least: &least,
    };
    let (found, reached) = search(query, snapshot, query.order == Order::Oldest, make);
    let matched: u64 = found.iter().map(|first| first.matched).sum();
    let mut keys: Vec<Key> = found.into_iter().flat_map(|first| first.heap).map(|Reverse(key)| key).collect();
    keys.sort_by(|one, other| other.cmp(one));
    let mut next = (keys.len() > query.limit).then(|| keys[query.limit - 1].cursor());
    keys.truncate(query.limit);
    if let Some(stopped) = reached.stopped_at.filter(|_| query.order == Order::Newest) {
        // What is older has not been searched everywhere: the next page begins there.
        keys.retain(|key| key.time > stopped);
        if next.is_none() || keys.len() < query.limit {
            let end = Key::new(query.order, stopped, stopped, &"\u{7f}".into(), u64::MAX);
            next = Some(end.cursor());
        }
    }
    Ok(answer(query, snapshot, &keys, next, matched, &reached))
}

fn answer(
    query: &Query,
    snapshot: &Snapshot,
    keys: &[Key],
    next: Option<String>,
    matched: u64,
    reached: &Reached,
) -> Value {
    let shown = shown(query, snapshot, keys);
    json!({
        "rows": shown,
        "reached": reached_in(query, snapshot),
        "next": next,
        "matched": (reached.is_complete() && !reached.skipped).then_some(matched),
        "complete": reached.is_complete(),
        "searched_to_ns": reached.stopped_at.map(|time| time.to_string()),
        "scanned_rows": reached.scanned_rows,
        "unindexed_bytes": reached.unindexed_bytes,
    })
}

/// Where the index of each segment that was asked for by name ends.
fn reached_in(query: &Query, snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let Some(segments) = &query.segments else { return BTreeMap::new() };
    let asked = snapshot.iter().filter(|entry| segments.contains_key(&*entry.text));
    asked.filter_map(|entry| Some((entry.text.to_string(), entry.image.as_ref()?.facts.content_bytes))).collect()
}

/// The rows of these places; what is gone by now is left out.
fn shown(query: &Query, snapshot: &Snapshot, keys: &[Key]) -> Vec<Value> {
    let mut of_segments = BTreeMap::<&str, Vec<(u64, usize)>>::new();
    for (at, key) in keys.iter().enumerate() {
        let (segment, offset) = key.place();
        of_segments.entry(segment).or_default().push((*offset, at));
    }
    let default: Vec<String>;
    let fields = match &query.fields {
        Some(fields) => fields,
        None => {
            let indexed = COLUMNS.iter().map(|column| column.name).chain(RESOURCE.iter().copied()).chain([SEVERITY]);
            default = indexed.map(str::to_owned).collect();
            &default
        }
    };
    let names = wanted(fields.iter().map(String::as_str).chain(["event_name"]));
    let mut rows: Vec<Option<Value>> = vec![None; keys.len()];
    for entry in snapshot.iter() {
        let Some(places) = of_segments.get_mut(&*entry.text) else { continue };
        let Some(image) = &entry.image else { continue };
        places.sort_unstable();
        let Ok(mut lines) = entry.lines() else { continue };
        for (offset, at) in places {
            let Some(line) = whole_line(image, &mut lines, *offset) else { continue };
            let Some(record) = read_record(&line, image, &|name| names.iter().any(|one| one == name)) else { continue };
            let key = &keys[*at];
            let time = if query.order == Order::Oldest { !key.time } else { key.time };
            rows[*at] = Some(row(&entry.text, *offset, time, &record, fields));
        }
    }
    rows.into_iter().flatten().collect()
}

fn row(segment: &str, offset: u64, time: u64, record: &Record, fields: &[String]) -> Value {
    let mut row = Map::new();
    row.insert("key".into(), format!("{segment}:{offset}").into());
    row.insert("timestamp_ns".into(), time.to_string().into());
    if let Some(event) = record.look_up("event_name") {
        row.insert("event_name".into(), event.to_value());
    }
    for field in fields {
        if let Some(value) = record.look_up(field) {
            row.insert(field.clone(), value.to_value());
        }
    }
    Value::Object(row)
}

/// Bytes that most lines fit into.
const USUAL_LINE: usize = 4096;
const LONGEST_LINE: usize = 128 << 20;

/// The line that begins at an offset, if one does.
fn whole_line(image: &Image, lines: &mut crate::source::Lines, offset: u64) -> Option<Vec<u8>> {
    let left = image.facts.content_bytes.checked_sub(offset)?;
    let mut most = USUAL_LINE;
    loop {
        let line = lines.until_newline(offset, most.min(left as usize)).ok()?;
        if let Some(line) = line {
            return Some(line.to_vec());
        }
        if most as u64 >= left || most >= LONGEST_LINE {
            return None;
        }
        most *= 16;
    }
}

/// Returns the line of a record by its key; None if it is gone.
#[must_use]
pub fn line(snapshot: &Snapshot, key: &str) -> Option<Vec<u8>> {
    lines(snapshot, &[key]).pop().flatten()
}

/// Returns the lines of records by their keys, None for each that is gone. Each segment is opened and read once.
#[must_use]
pub fn lines(snapshot: &Snapshot, keys: &[&str]) -> Vec<Option<Vec<u8>>> {
    let mut found = vec![None; keys.len()];
    let mut of_segments = BTreeMap::<&str, Vec<(u64, usize)>>::new();
    for (at, key) in keys.iter().enumerate() {
        let place = key.rsplit_once(':').and_then(|(segment, offset)| Some((segment, offset.parse().ok()?)));
        if let Some((segment, offset)) = place {
            of_segments.entry(segment).or_default().push((offset, at));
        }
    }
    for entry in snapshot.iter() {
        let Some(places) = of_segments.get_mut(&*entry.text) else { continue };
        let Some(image) = &entry.image else { continue };
        let Ok(mut lines) = entry.lines() else { continue };
        places.sort_unstable();
        for (offset, at) in places {
            found[*at] = record_at(image, &mut lines, *offset);
        }
    }
    found
}

/// The line of a record that begins at an offset, if one does.
fn record_at(image: &Image, lines: &mut crate::source::Lines, offset: u64) -> Option<Vec<u8>> {
    if offset > 0 {
        // The end of the line before it.
        lines.read(offset - 1, 0, false).ok()??;
    }
    let line = whole_line(image, lines, offset)?;
    Record::read(&line, |_| false).ok()?;
    Some(line)
}
