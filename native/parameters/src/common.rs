//! What every producer needs of its configuration, and the text of the parameters that decide where records go and what is
//! replaced in them: one a line.
//!
//! The text has the form of a configuration file, and stands in each queue directory as `configuration.yaml`
//! ([`queue::configuration`]). Its fingerprint is part of directory names, so no byte of it may change.

use crate::json::quoted;
use crate::keys::digest;
use queue::event::{ERROR, INFO, WARN};
use queue::producer::QueueSettings;
use std::path::{Component, Path, PathBuf};

/// The parameters of a valid configuration that every producer needs.
#[derive(Clone, Debug)]
pub struct Common {
    pub service_name: String,
    pub queue_directory: Option<PathBuf>,
    pub directory: PathBuf,
    pub enabled: bool,
    /// The least severity of an application's messages, as OpenTelemetry's number.
    pub least_severity: u8,
    pub queue_bytes: u64,
    pub max_record_bytes: u64,
    pub in_flight_slots: u32,
    pub overflow_info_ratio: f64,
    pub flush_bytes: u64,
    pub capture_hash_key_file: Option<PathBuf>,
    /// None: there is no audit lane.
    pub audit: Option<Audit>,
    /// The parameters that are compared as they are, in the order of the text, with their values as JSON in ASCII.
    pub(crate) compared: [(&'static str, String); 8],
    /// The text of the queue directory's producers, if this is the configuration of one of many directories.
    pub(crate) noted: Option<String>,
}

/// What a producer notes of an audit lane.
#[derive(Clone, Debug)]
pub struct Audit {
    /// `audit_sink` and `audit_chain`.
    pub sink: String,
    pub chain: String,
    pub directory: Option<PathBuf>,
    pub chain_key_file: Option<PathBuf>,
}

impl Common {
    /// The settings of the queue of a process that serves, in this directory; of any configuration, and without events of its
    /// own.
    #[must_use]
    pub fn queue(&self, directory: PathBuf) -> QueueSettings {
        QueueSettings {
            directory,
            queue_bytes: self.queue_bytes,
            in_flight_slots: self.in_flight_slots,
            max_record_bytes: self.max_record_bytes.min(self.queue_bytes / 4) as u32,
            overflow_info_ratio: self.overflow_info_ratio,
            wake_bytes: self.flush_bytes,
            configuration: None,
            events: Vec::new(),
        }
    }

    /// Returns the text: parameters compared as they are, absolute directories, and digests of keys.
    #[must_use]
    pub fn configuration(&self) -> String {
        if let Some(noted) = &self.noted {
            return noted.clone();
        }
        let mut text = "version: 1\n".to_owned();
        let mut line = |name: &str, json: &str| text += &format!("{name}: {json}\n");
        self.compared.iter().for_each(|(name, json)| line(name, json));
        line("directory", &quoted(&absolute(&self.directory)));
        if let Some(audit) = &self.audit {
            line("audit", "\"on\"");
            line("audit_sink", &quoted(&audit.sink));
            line("audit_chain", &quoted(&audit.chain));
            line("audit_directory", &quoted(&absolute(&self.beside(audit.directory.as_deref()))));
        }
        let mut key = |name: &str, path: Option<&PathBuf>| {
            text += &path.map_or_else(String::new, |path| format!("# {name}: {}\n", digest(path)));
        };
        key("capture_hash_key", self.capture_hash_key_file.as_ref());
        let chain = self.audit.as_ref().filter(|audit| audit.chain != "off");
        key("audit_chain_key", chain.and_then(|audit| audit.chain_key_file.as_ref()));
        text
    }

    /// The directory of the audit lane's output.
    pub(crate) fn beside(&self, audit_directory: Option<&Path>) -> PathBuf {
        audit_directory.map_or_else(|| self.directory.join("audit"), Path::to_owned)
    }

    /// Returns a sentence where a record is too large for the queue.
    pub(crate) fn record_in_queue(&self) -> Option<String> {
        let (record, queue, largest) = (self.max_record_bytes, self.queue_bytes, self.queue_bytes / 4);
        let sentence =
            || format!("max_record_bytes={record}: must be at most {largest}, a quarter of queue_bytes={queue}");
        (record > largest).then(sentence)
    }
}

/// The severity of a level's name.
pub(crate) fn severity(level: &str) -> u8 {
    match level.to_ascii_uppercase().as_str() {
        "DEBUG" => 5,
        "WARN" => WARN,
        "ERROR" => ERROR,
        _ => INFO,
    }
}

/// An absolute path without `.` and `..`. Links are not followed: where they lead can change.
fn absolute(path: &Path) -> String {
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
    format!("{first}{}", clean.display())
}

/// A path whose `~` is the home directory.
pub(crate) fn expanded(path: String) -> String {
    let rest = path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
    match (rest, std::env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{}{rest}", home.trim_end_matches('/')),
        _ => path,
    }
}
