//! Questions and answers as JSON: what the faces of the core offer.

use crate::catalog::{Catalog, Progress};
use crate::columns::{COLUMNS, Kind, RESOURCE, SEVERITY, TIMESTAMP};
use crate::query::{Query, Wrong};
use crate::{aggregate, rows, values};
use serde_json::{Value, json};

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
