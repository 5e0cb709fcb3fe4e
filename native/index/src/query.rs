//! What is asked: a query as JSON, checked by name and value.

use crate::columns::{self, COLUMNS, Kind};
use crate::condition::{Condition, strip};
use crate::record::{Json, Record};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

const MOST_ROWS: u64 = 1000;
const DEFAULT_ROWS: u64 = 100;
const MOST_BUCKETS: u64 = 2000;
const DEFAULT_BUCKETS: u64 = 120;
const MOST_GROUPS: u64 = 200;
const DEFAULT_GROUPS: u64 = 20;
const MOST_HEATMAP_ROWS: u64 = 200;
const DEFAULT_HEATMAP_ROWS: u64 = 40;
const MOST_BUDGET_S: f64 = 3600.0;
/// Without a budget: long enough for anything.
const NO_BUDGET: Duration = Duration::from_secs(3600);

/// A query is wrong; the sentence names what and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(pub String);

/// One of the conditions that a record must fulfil, all of them.
#[derive(Clone, Debug)]
pub enum Filter {
    Condition(Condition),
    Events(Vec<String>),
    /// The first digits of its trace id.
    Trace(String),
}

impl Filter {
    /// Returns the field that it looks at.
    #[must_use]
    pub fn field(&self) -> &str {
        match self {
            Self::Condition(condition) => &condition.field,
            Self::Events(_) => "event_name",
            Self::Trace(_) => "trace_id",
        }
    }

    /// Returns whether a record fulfils it.
    #[must_use]
    pub fn holds(&self, record: &Record) -> bool {
        let of = |name: &str| record.members.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        match self {
            Self::Condition(condition) => condition.holds(record),
            Self::Events(names) => matches!(of("event_name"), Some(Json::Text(name)) if names.contains(name)),
            Self::Trace(digits) => {
                of("trace_id").map_or(digits.is_empty(), |value| value.to_python_text().starts_with(digits))
            }
        }
    }
}

/// The order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Newest,
    Oldest,
    /// By a column, the largest first or last; records without a value are left out.
    Column {
        column: usize,
        descending: bool,
    },
}

/// A query.
#[derive(Clone, Debug)]
pub struct Query {
    pub filters: Vec<Filter>,
    /// Only segments of these directories, as they were given.
    pub directories: Option<Vec<String>>,
    /// Only these segments, and of each only lines from an offset on.
    pub segments: Option<HashMap<String, u64>>,
    pub from_ns: u64,
    /// Not included.
    pub to_ns: u64,
    pub text: Option<Vec<u8>>,
    pub order: Order,
    pub limit: usize,
    pub after: Option<String>,
    pub fields: Option<Vec<String>>,
    pub field: Option<String>,
    pub buckets: usize,
    pub group_by: Option<String>,
    pub groups_limit: usize,
    pub heatmap: Option<String>,
    pub heatmap_rows: usize,
    pub deadline: Instant,
}

/// The members that all questions have.
const COMMON: &[&str] = &["where", "events", "from_ns", "to_ns", "trace", "text", "directories", "budget_s"];

impl Query {
    /// Reads a query that has the common members and `own` ones.
    ///
    /// # Errors
    /// It is no JSON object, or a member is unknown or wrong.
    pub fn read(json: &[u8], own: &[&str]) -> Result<Self, Wrong> {
        let value = segments::json::read(json).map_err(|error| Wrong(format!("query: not JSON: {error}")))?;
        let Value::Object(members) = value else { return Err(Wrong("query: must be a JSON object".into())) };
        let known = |name: &&String| COMMON.contains(&name.as_str()) || own.contains(&name.as_str());
        if let Some(unknown) = members.keys().find(|name| !known(name)) {
            return Err(Wrong(format!("query: no such member: {unknown:?}")));
        }
        let members = Members(&members);
        let budget = members.seconds("budget_s")?.unwrap_or(NO_BUDGET);
        Ok(Self {
            filters: members.filters()?,
            directories: members.texts("directories")?,
            segments: members.offsets("segments")?,
            from_ns: members.nanos("from_ns")?.unwrap_or(0),
            to_ns: members.nanos("to_ns")?.unwrap_or(u64::MAX),
            text: members.text("text")?.filter(|text| !text.is_empty()).map(String::into_bytes),
            order: members.order()?,
            limit: members.count("limit", DEFAULT_ROWS, MOST_ROWS)?,
            after: members.text("after")?,
            fields: members.texts("fields")?,
            field: members.text("field")?,
            buckets: members.count("buckets", DEFAULT_BUCKETS, MOST_BUCKETS)?,
            group_by: members.text("group_by")?,
            groups_limit: members.count("groups_limit", DEFAULT_GROUPS, MOST_GROUPS)?,
            heatmap: members.text("heatmap")?,
            heatmap_rows: members.count("heatmap_rows", DEFAULT_HEATMAP_ROWS, MOST_HEATMAP_ROWS)?,
            deadline: Instant::now() + budget,
        })
    }
}

impl Query {
    /// Returns the offset from which lines of a segment are asked for; None if it is not asked for at all.
    #[must_use]
    pub fn begin_in(&self, segment: &str, directory: &Path) -> Option<u64> {
        let is_chosen = |all: &Vec<String>| all.iter().any(|one| Path::new(one) == directory);
        if !self.directories.as_ref().is_none_or(is_chosen) {
            return None;
        }
        self.segments.as_ref().map_or(Some(0), |offsets| offsets.get(segment).copied())
    }
}

struct Members<'a>(&'a Map<String, Value>);

impl Members<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn wrong(name: &str, value: &Value, must: &str) -> Wrong {
        let shown: String = value.to_string().chars().take(100).collect();
        Wrong(format!("{name}={shown}: must be {must}"))
    }

    fn text(&self, name: &str) -> Result<Option<String>, Wrong> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_str().map(|text| Some(text.to_owned())).ok_or_else(|| Self::wrong(name, value, "a text"))
    }

    fn texts(&self, name: &str) -> Result<Option<Vec<String>>, Wrong> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let wrong = || Self::wrong(name, value, "a list of texts");
        let list = value.as_array().ok_or_else(wrong)?;
        list.iter().map(|one| one.as_str().map(str::to_owned).ok_or_else(wrong)).collect::<Result<_, _>>().map(Some)
    }

    fn offsets(&self, name: &str) -> Result<Option<HashMap<String, u64>>, Wrong> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let wrong = || Self::wrong(name, value, "offsets by the names of segments");
        let offsets = value.as_object().ok_or_else(wrong)?;
        let read = |(name, offset): (&String, &Value)| Some((name.clone(), offset.as_u64()?));
        offsets.iter().map(read).collect::<Option<_>>().map(Some).ok_or_else(wrong)
    }

    fn nanos(&self, name: &str) -> Result<Option<u64>, Wrong> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
        number.map(Some).ok_or_else(|| Self::wrong(name, value, "nanoseconds since 1970, from 0 to 2^64-1"))
    }

    fn count(&self, name: &str, default: u64, most: u64) -> Result<usize, Wrong> {
        let Some(value) = self.get(name) else { return Ok(default as usize) };
        let count = value.as_u64().filter(|count| (1..=most).contains(count));
        count.map(|count| count as usize).ok_or_else(|| Self::wrong(name, value, &format!("from 1 to {most}")))
    }

    fn seconds(&self, name: &str) -> Result<Option<Duration>, Wrong> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let seconds = value.as_f64().filter(|seconds| (0.0..=MOST_BUDGET_S).contains(seconds));
        let must = format!("from 0 to {MOST_BUDGET_S} seconds");
        seconds.map(|seconds| Some(Duration::from_secs_f64(seconds))).ok_or_else(|| Self::wrong(name, value, &must))
    }

    fn filters(&self) -> Result<Vec<Filter>, Wrong> {
        let mut filters = Vec::new();
        if let Some(names) = self.texts("events")?.filter(|names| !names.is_empty()) {
            filters.push(Filter::Events(names));
        }
        if let Some(trace) = self.text("trace")? {
            filters.push(Filter::Trace(strip(&trace).to_lowercase()));
        }
        for text in self.texts("where")?.unwrap_or_default() {
            let wrong = || Wrong(format!("where={text:?}: must be FIELD, one of = != < <= > >= ~, and VALUE"));
            filters.push(Filter::Condition(Condition::parse(&text).ok_or_else(wrong)?));
        }
        Ok(filters)
    }

    fn order(&self) -> Result<Order, Wrong> {
        let Some(text) = self.text("order")? else { return Ok(Order::Newest) };
        match text.as_str() {
            "newest" => Ok(Order::Newest),
            "oldest" => Ok(Order::Oldest),
            name => {
                let (name, descending) = name.strip_prefix('-').map_or((name, false), |name| (name, true));
                let is_number = |column: &usize| matches!(COLUMNS[*column].kind, Kind::Int | Kind::Float);
                let column = columns::of(name).filter(is_number);
                let must = "newest, oldest, or an indexed number, with - for the largest first";
                let column = column.ok_or_else(|| Self::wrong("order", &Value::from(text.as_str()), must))?;
                Ok(Order::Column { column, descending })
            }
        }
    }
}
