//! JSON for terminals and scripts: ASCII alone, with spaces.

use parameters::json;
use serde_json::Value;

/// The text of a value.
pub fn text(value: &Value) -> String {
    json::ascii(&value.to_string()).unwrap_or_default()
}
