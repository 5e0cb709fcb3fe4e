//! Questions and answers as JSON: what the faces of the core offer.

use crate::catalog::{Catalog, Progress};
use crate::columns::{COLUMNS, Kind, RESOURCE, SEVERITY, TIMESTAMP};
use crate::export::{self, Refused};
use crate::query::{Query, Wrong};
use crate::{aggregate, rows, values};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::BufWriter;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Most keys of one list.
const MOST_KEYS: usize = 5000;

/// Answers `rows`.
///
/// # Errors
/// The query is wrong.
pub fn rows(catalog: &Catalog, query: &[u8]) -> Result<Vec<u8>, Wrong> {
    rows::rows(&Query::read(query, rows::MEMBERS)?, &catalog.snapshot()).map(|answer| bytes(&answer))
}

/// Answers `aggregate`.
///
/// # Errors
/// The query is wrong.
pub fn aggregate(catalog: &Catalog, query: &[u8]) -> Result<Vec<u8>, Wrong> {
    aggregate::aggregate(&Query::read(query, aggregate::MEMBERS)?, &catalog.snapshot()).map(|answer| bytes(&answer))
}

/// Answers `values`.
///
/// # Errors
/// The query is wrong.
pub fn values(catalog: &Catalog, query: &[u8]) -> Result<Vec<u8>, Wrong> {
    values::values(&Query::read(query, values::MEMBERS)?, &catalog.snapshot()).map(|answer| bytes(&answer))
}

/// Returns whole records by a list of their keys: a list of the same length, with null for each that is gone.
///
/// # Errors
/// It is no list of texts, or too long.
pub fn lines(catalog: &Catalog, keys: &[u8]) -> Result<Vec<u8>, Wrong> {
    let wrong = |problem: &str| Wrong(format!("keys: must be a list of texts{problem}"));
    let keys = segments::json::read(keys).map_err(|error| wrong(&format!(": {error}")))?;
    let keys: Option<Vec<&str>> = keys.as_array().and_then(|keys| keys.iter().map(Value::as_str).collect());
    let keys = keys.ok_or_else(|| wrong(""))?;
    if keys.len() > MOST_KEYS {
        return Err(Wrong(format!("keys: {} are too many, at most {MOST_KEYS}", keys.len())));
    }
    let found = rows::lines(&catalog.snapshot(), &keys);
    let found: Vec<&[u8]> = found.iter().map(|line| line.as_deref().unwrap_or(b"null")).collect();
    Ok([b"[".as_slice(), &found.join(b",".as_slice()), b"]"].concat())
}

/// Writes `fields` of an event's records, or of all, as CSV into a new file, which only this user can read.
///
/// # Errors
/// Columns do not have it all, or the file cannot be written.
pub fn export(catalog: &Catalog, fields: &[String], event: Option<&str>, path: &Path) -> Result<u64, Refused> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    export::export(&catalog.snapshot(), fields, event, &mut BufWriter::new(file))
}

/// Returns the indexed fields with their types, those of DuckDB.
#[must_use]
pub fn fields() -> Vec<u8> {
    let of = |name: &str, kind: &str| json!({"name": name, "type": kind, "indexed": true});
    let columns = COLUMNS.iter().map(|column| {
        of(
            column.name,
            match column.kind {
                Kind::Int => "BIGINT",
                Kind::Float => "DOUBLE",
                Kind::Text | Kind::Hex(_) => "VARCHAR",
            },
        )
    });
    let resource = RESOURCE.iter().map(|name| of(name, "VARCHAR"));
    let derived = [of(TIMESTAMP, "TIMESTAMP"), of(SEVERITY, "BIGINT")];
    bytes(&Value::Array(derived.into_iter().chain(columns).chain(resource).collect()))
}

/// Returns what a refresh has reached.
#[must_use]
pub fn progress(progress: &Progress) -> Vec<u8> {
    bytes(&json!({
        "segments": progress.segments,
        "indexed_segments": progress.indexed_segments,
        "bytes": progress.bytes,
        "indexed_bytes": progress.indexed_bytes,
        "rows": progress.rows,
        "live_rows": progress.live_rows,
        "done": progress.done,
        "problems": progress.problems,
    }))
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}
