//! JSON for terminals and scripts: ASCII alone, with spaces.

use listen::settings::ascii_json;
use parameters::json::Value;

/// The text of a value.
pub fn text(value: &serde_json::Value) -> String {
    ascii_json(&Value::parse(value.to_string().as_bytes()).unwrap_or_default())
}
