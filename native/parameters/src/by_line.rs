//! A configuration of lines, each with a name and a value: `queue_bytes: 64KiB`. A value is JSON, or a plain text. The lines
//! are YAML too, so a listener reads the same file.
//!
//! A library for small machines has no other reader. It checks what it needs itself. What only the listener uses, such as
//! sinks and redaction, it checks by name and form, and notes in the queue directory: a listener whose own file says
//! something else does not write these records.

use crate::common::{Audit, Common, expanded, severity};
use crate::json::{ascii, quoted, unquoted};
use crate::sources::{self, Form as _, VERSION};
use crate::words::{ParametersError, shown, size, unknown};
use queue::json::is_json;
use std::path::PathBuf;

include!(concat!(env!("OUT_DIR"), "/lines.rs"));

/// A parameter of the table that the build script makes of the schema.
pub struct Described {
    name: &'static str,
    form: Form,
    /// As JSON.
    default: &'static str,
    allowed: &'static str,
}

enum Form {
    /// Bytes, perhaps with a unit: the least, the most.
    Size(u64, u64),
    /// The least, the most, and whether it is a whole number.
    Number(f64, f64, bool),
    Choice(&'static [&'static str]),
    /// The pattern of a service's name, by hand: this library has no regular expressions. A test compares the two.
    Name,
    /// What the default is: a text, a list or a mapping; a text or nothing where the default is null.
    Any,
}

/// A value as JSON in ASCII.
#[derive(Clone)]
pub struct Json(String);

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self(quoted(text))
    }
}

/// Reads the text of lines, perhaps with the `version`.
///
/// # Errors
/// One sentence for each line or parameter that is wrong.
pub fn from_text(text: &[u8]) -> Result<Common, ParametersError> {
    let given = values(text).map_err(|why| vec![format!("the configuration: {why}")])?;
    let faults: Vec<String> = given.iter().filter_map(|(name, value)| value.fault(name)).collect();
    if faults.is_empty() { checked(&given) } else { Err(faults.into()) }
}

/// Reads a configuration: `keywords` by name, then `environment`, then the file that either names.
///
/// # Errors
/// As [`from_text`].
pub fn from_sources(
    keywords: &[(&str, &str)],
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Common, ParametersError> {
    checked(&sources::gathered::<Json>(keywords, environment)?)
}

/// The names and values of lines; empty lines and comments are left out. None: there is none, or another line.
pub(crate) fn split(text: &[u8]) -> Option<Vec<(&str, &str)>> {
    let lines = std::str::from_utf8(text).ok()?.lines().map(str::trim_end);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pairs: Vec<_> = lines.map(|line| line.split_once(": ")).collect::<Option<_>>()?;
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    (!pairs.is_empty() && pairs.iter().all(|(name, _)| is_name(name))).then_some(pairs)
}

/// Whether a text needs no quotes in a line, since it means the same in YAML.
pub(crate) fn is_plain(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'+' | b'-' | b':');
    // A zero at the beginning is another base in YAML.
    let begins = text.starts_with(|first: char| matches!(first, '/' | '.' | '1'..='9' | 'A'..='Z' | 'a'..='z'));
    begins && !text.ends_with(':') && text.bytes().all(is_part)
}

fn values(text: &[u8]) -> Result<Vec<(String, Json)>, String> {
    let lines = split(text).ok_or("must be lines of a name, a colon, a space and a value")?;
    let twice = lines.iter().enumerate().find(|(at, (name, _))| lines[..*at].iter().any(|(known, _)| known == name));
    if let Some((_, (name, _))) = twice {
        return Err(format!("{name}: stands twice"));
    }
    let value = |(name, value): (&str, &str)| {
        let value = value.trim_start();
        let json = is_json(value.as_bytes()).then(|| ascii(value)).flatten();
        let json = json.or_else(|| is_plain(value).then(|| quoted(value)));
        let json =
            json.ok_or_else(|| format!("{name}: {value}: a text of other than letters and digits needs quotes"))?;
        Ok((name.to_owned(), Json(json)))
    };
    lines.into_iter().map(value).collect()
}

impl sources::Form for Json {
    fn of_variable(name: &str, text: &str) -> Self {
        let is_number = |known: &&&Described| known.name == name && matches!(known.form, Form::Number(..));
        let is_value = text.starts_with(['[', '{']) || KNOWN.iter().any(|known| is_number(&known));
        let json = (is_value && is_json(text.as_bytes())).then(|| ascii(text)).flatten();
        json.map_or_else(|| Self::from(text), Self)
    }

    fn of_file(bytes: &[u8]) -> Result<Vec<(String, Self)>, String> {
        let mut given = values(bytes)?;
        if !given.iter().any(|(name, _)| name == VERSION) {
            given.push((VERSION.to_owned(), Self("null".to_owned())));
        }
        Ok(given)
    }

    fn fault(&self, name: &str) -> Option<String> {
        let refused = |allowed: &str| Some(format!("{name}={}: must be {allowed}", shown(&self.0)));
        if name == VERSION {
            return if self.0 == "1" { None } else { refused("1") };
        }
        match KNOWN.iter().find(|known| known.name == name) {
            Some(known) if known.form.allows(&self.0, known.default) => None,
            Some(known) => refused(known.allowed),
            None if OTHERS.contains(&name) => None,
            None => Some(unknown(name, KNOWN.iter().map(|known| known.name).chain(OTHERS.iter().copied()))),
        }
    }
}

impl Form {
    fn allows(&self, json: &str, default: &str) -> bool {
        let text = unquoted(json).map(|(text, _)| text);
        let plain = text.as_deref().unwrap_or(json);
        match self {
            Self::Size(least, most) => size(plain).is_some_and(|bytes| (*least..=*most).contains(&bytes)),
            Self::Number(least, most, is_whole) => json
                .parse::<f64>()
                .is_ok_and(|number| *least <= number && number <= *most && !(*is_whole && number.fract() != 0.0)),
            // `false` is `off`. Levels are in capital letters, and may be in others.
            Self::Choice(choices) if text.is_some() => {
                choices.contains(&plain) || choices.contains(&plain.to_ascii_uppercase().as_str())
            }
            Self::Choice(choices) => choices.contains(&json) || json == "false" && choices.contains(&"off"),
            Self::Name => {
                let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
                let begins = plain.starts_with(|first: char| first.is_ascii_alphanumeric());
                text.is_some() && begins && plain.len() <= 64 && plain.bytes().all(is_part)
            }
            Self::Any if default == "null" => json == "null" || text.is_some(),
            Self::Any => json.as_bytes().first() == default.as_bytes().first(),
        }
    }
}

/// The parameters of values without a fault.
fn checked(given: &[(String, Json)]) -> Result<Common, ParametersError> {
    let found = |name: &str| given.iter().find_map(|(known, json)| (known == name).then_some(json.0.as_str()));
    let json = |of: &Described| found(of.name).unwrap_or(of.default);
    let text = |of: &Described| match json(of) {
        "false" => "off".to_owned(),
        json => unquoted(json).map_or_else(|| json.to_owned(), |(text, _)| text),
    };
    let bytes = |of: &Described| size(&text(of)).unwrap_or_default();
    let number = |of: &Described| json(of).parse::<f64>().unwrap_or_default();
    let path = |of: &Described| PathBuf::from(expanded(text(of)));
    let maybe_path = |of: &Described| (!matches!(json(of), "null" | "\"\"")).then(|| path(of));
    let compared = [
        &SERVICE_NAME, &SINK, &FALLBACK, &ADDITIONAL_SINKS, &REDACT_FIELDS, &REDACT_PATTERNS, &REDACT_CUSTOM,
        &REDACT_REPLACEMENT,
    ];
    let audit = (text(&AUDIT) == "on").then(|| Audit {
        sink: text(&AUDIT_SINK),
        chain: text(&AUDIT_CHAIN),
        directory: maybe_path(&AUDIT_DIRECTORY),
        chain_key_file: maybe_path(&AUDIT_CHAIN_KEY_FILE),
    });
    let common = Common {
        service_name: text(&SERVICE_NAME),
        queue_directory: maybe_path(&QUEUE_DIRECTORY),
        directory: path(&DIRECTORY),
        enabled: !matches!(text(&ENABLED).as_str(), "off" | "false"),
        least_severity: severity(&text(&LEVEL)),
        queue_bytes: bytes(&QUEUE_BYTES).next_power_of_two(),
        max_record_bytes: bytes(&MAX_RECORD_BYTES),
        in_flight_slots: number(&IN_FLIGHT_SLOTS) as u32,
        overflow_info_ratio: number(&OVERFLOW_INFO_RATIO),
        flush_bytes: bytes(&FLUSH_BYTES),
        capture_hash_key_file: maybe_path(&CAPTURE_HASH_KEY_FILE),
        audit,
        compared: compared.map(|of| (of.name, json(of).to_owned())),
        noted: None,
    };
    match common.record_in_queue() {
        Some(sentence) => Err(vec![sentence].into()),
        None => Ok(common),
    }
}
