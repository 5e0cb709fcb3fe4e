//! JSON of headers, footers and reports: each crate that parses by `serde_json::from_slice` gets a parser of its own.

use serde_json::Value;

/// Reads JSON by the parser that is compiled once, within `serde_json`.
///
/// # Errors
/// What is wrong with it, in words.
pub fn read(text: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    text.parse().map_err(|error: serde_json::Error| error.to_string())
}
