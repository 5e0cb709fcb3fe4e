//! The text of the parameters that decide where records go and what is replaced in them: one a line.
//!
//! The text has the form of a configuration file, and stands in each queue directory as `configuration.yaml`
//! ([`queue::configuration`]). Its fingerprint is part of directory names, so no byte of it may change.

use crate::Parameters;
use crate::json::Value;
use crate::keys::digest;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

const COMPARED: [&str; 8] = [
    "service_name",
    "sink",
    "fallback",
    "additional_sinks",
    "redact_fields",
    "redact_patterns",
    "redact_custom",
    "redact_replacement",
];

impl Parameters {
    /// Returns the text: parameters compared as they are, absolute directories, and digests of keys.
    #[must_use]
    pub fn configuration(&self) -> String {
        if let Some(noted) = &self.noted {
            return noted.clone();
        }
        let values = &self.values;
        let mut text = "version: 1\n".to_owned();
        let mut line = |name: &str, value: &Value| text += &format!("{name}: {}\n", ascii_json(value));
        COMPARED.iter().for_each(|name| line(name, values.json(name)));
        line("directory", &absolute(Path::new(values.text("directory"))));
        let has_audit = values.is("audit", "on");
        if has_audit {
            ["audit", "audit_sink", "audit_chain"].iter().for_each(|name| line(name, values.json(name)));
            line("audit_directory", &absolute(&self.audit_directory()));
        }
        let mut key = |name: &str, path: Option<PathBuf>| {
            if let Some(path) = path {
                text += &format!("# {name}: {}\n", digest(&path));
            }
        };
        key("capture_hash_key", values.maybe_path("capture_hash_key_file"));
        if has_audit && !values.is("audit_chain", "off") {
            key("audit_chain_key", values.maybe_path("audit_chain_key_file"));
        }
        text
    }
}

/// An absolute path without `.` and `..`. Links are not followed: where they lead can change.
fn absolute(path: &Path) -> Value {
    let whole = std::env::current_dir().unwrap_or_default().join(path);
    let mut clean = PathBuf::new();
    for component in whole.components() {
        match component {
            Component::ParentDir => drop(clean.pop()),
            Component::CurDir => {}
            other => clean.push(other),
        }
    }
    // POSIX leaves the meaning of exactly two slashes at the beginning to the system.
    let text = whole.to_string_lossy();
    let first = if text.starts_with("//") && !text.starts_with("///") { "/" } else { "" };
    Value::String(format!("{first}{}", clean.display()))
}

/// JSON of ASCII characters alone, with a space behind commas and colons.
#[must_use]
pub fn ascii_json(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(ascii_json).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{}: {}", quoted(name), ascii_json(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for unit in text.encode_utf16() {
        let _ = match u8::try_from(unit) {
            Ok(byte @ (b'"' | b'\\')) => write!(quoted, "\\{}", char::from(byte)),
            Ok(byte @ b' '..=b'~') => write!(quoted, "{}", char::from(byte)),
            Ok(b'\n') => write!(quoted, "\\n"),
            Ok(b'\r') => write!(quoted, "\\r"),
            Ok(b'\t') => write!(quoted, "\\t"),
            Ok(0x08) => write!(quoted, "\\b"),
            Ok(0x0c) => write!(quoted, "\\f"),
            _ => write!(quoted, "\\u{unit:04x}"),
        };
    }
    quoted + "\""
}
