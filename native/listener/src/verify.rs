//! `verify`: proves that no record is missing in the segments of directories, or names each gap.

use super::application::{named_by_segments, resolved};
use super::command::Host;
use super::command::{self, Failure};
use super::options::{Options, Syntax};
use super::report;
use crate::options::Configuration;
use listen::settings::{entries, plain};
use parameters::keys::reason;
use segments::chain;
use segments::verify::listing::Database;
use segments::verify::{Request, verify};
use serde_json::Value;
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The audit lane's folder, below a directory of segments and below a queue directory.
const AUDIT: &str = "audit";
const AUDIT_SUFFIX: &str = "-audit";

static SYNTAX: Syntax = Syntax {
    name: "verify",
    help: HELP,
    valued: &["queue-directory", "config", "service-name", "prefix", "chain-key-file"],
    flags: &["json"],
    most_arguments: usize::MAX,
};
const HELP: &str = "\
Usage: inference-logging-listener verify [OPTIONS] [DIR]...

  Prove that no record is missing in the segments of each DIR (default: the configured one), or name each gap.

  Per process: accepted = written + removed by retention + torn or corrupt + in its queue. All that belongs to one set
  of processes must be given together: the sink's directory and its fallback's. Segments are read plain, compressed
  and while they are written; those of the audit lane in DIR/audit too, and their hash chain is checked. A sealed
  segment is compared with the counts and the checksum in its footer, so that lines altered since are found. The last
  value of a chain is printed. Note it elsewhere: nothing else shows that its end was removed.

  Exit code: 0 only if the books balance, 1 if they do not or something cannot be read, 2 for a wrong command line or
  configuration.

Options:
  --queue-directory PATH  Directory of the processes' queues; may be repeated. Without it, those that the segments
                          name, and that of a configured DIR.
  --config PATH           JSON file, as if config_file named it.
  --service-name TEXT     As service_name of the servers.
  --prefix NAME           Only segments of this service_name; may be repeated. Without it, all.
  --chain-key-file PATH   Key of the audit lane's chain, as audit_chain_key_file. Without it, the configured one.
  --json                  JSON instead of words.
  -h, --help              Show this message and exit.
";

/// Runs the command to its end.
///
/// # Errors
/// The command line or the configuration is wrong, or something cannot be read.
pub fn run(host: &Host, arguments: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let options = Options::read(host, &SYNTAX, arguments)?;
    let configuration = Configuration::read(host, &options, &["config", "service-name"])?;
    let (request, chosen) = request(host, &options, &configuration)?;
    let found = verify(&request).map_err(|error| Failure::Open(error.to_string()))?;
    if found["segments"]["files"] == 0 && is_empty(&found["processes"]) && is_empty(&found["problems"]) {
        let places: Vec<String> = chosen.iter().map(|path| path.display().to_string()).collect();
        let configured = configuration.settings.directory().display().to_string();
        let places = if places.is_empty() { configured } else { places.join(", ") };
        return Err(options.wrong(&format!("no segments in {places}, and no queues")));
    }
    let text = if options.has("json") { report::json(&found) } else { report::words(&found) };
    Ok(command::show(&text, if found["balanced"] == true { command::OK } else { command::FAILED }))
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

/// What to read, and which of its directories the command line or the configuration names.
fn request(host: &Host, options: &Options, configuration: &Configuration) -> Result<(Request, Vec<PathBuf>), Failure> {
    let configured = configuration.settings.directory();
    let mut chosen = paths(options.arguments());
    if chosen.is_empty() {
        chosen.push(configured.clone());
    }
    let queues = queue_directories(&chosen, &paths(options.texts("queue-directory")), configuration);
    if options.arguments().is_empty() && !queues.is_empty() && !configured.is_dir() {
        chosen.clear(); // servers have begun to produce, and no listener to write
    }
    if let Some(missing) = chosen.iter().chain(&queues).find(|directory| !directory.is_dir()) {
        return Err(options.wrong(&format!("{}: no such directory", missing.display())));
    }
    let names = options.texts("prefix").iter().chain(options.texts("service-name").last());
    let names: Vec<&String> = names.collect();
    let directories = with_audit(&chosen, Some(configuration));
    let databases = databases(host, &directories, &names)?;
    let request = Request {
        directories,
        databases,
        queue_directories: with_audit(&queues, None),
        prefixes: names.iter().flat_map(|name| [(*name).clone(), format!("{name}{AUDIT_SUFFIX}")]).collect(),
        chain_key: chain_key(options, configuration)?,
        most_waiting: configuration.settings.most_waiting(),
    };
    Ok((request, chosen))
}

fn paths(texts: &[String]) -> Vec<PathBuf> {
    texts.iter().map(|text| plain(Path::new(text))).collect()
}

/// The directories and, if it exists, that of the audit lane (below them, or as configured); each once.
fn with_audit(directories: &[PathBuf], configuration: Option<&Configuration>) -> Vec<PathBuf> {
    let mut audit: Vec<PathBuf> = directories.iter().map(|directory| directory.join(AUDIT)).collect();
    if let Some(settings) = configuration.map(|configuration| &configuration.settings)
        && has(directories, &settings.directory())
    {
        audit.push(settings.audit_directory());
    }
    let mut seen = HashSet::new();
    let there = directories.iter().cloned().chain(audit.into_iter().filter(|directory| directory.is_dir()));
    there.filter(|directory| seen.insert(resolved(directory))).collect()
}

fn has(directories: &[PathBuf], directory: &Path) -> bool {
    let wanted = resolved(directory);
    directories.iter().any(|one| resolved(one) == wanted)
}

/// The audit lane's databases. Without a host that can read them, their records would count as missing.
fn databases(host: &Host, directories: &[PathBuf], prefixes: &[&String]) -> Result<Vec<Database>, Failure> {
    let mut found = Vec::new();
    for path in directories.iter().flat_map(|directory| entries(directory)) {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(prefix) = file.strip_suffix(".sqlite") else { continue };
        let Some(name) = prefix.strip_suffix(AUDIT_SUFFIX) else { continue };
        if prefixes.is_empty() || prefixes.iter().any(|prefix| *prefix == name) {
            let refused =
                || Failure::Open(format!("{}: a database is read by `inference-logging verify`", path.display()));
            let open = Arc::from(host.databases.as_ref().ok_or_else(refused)?.reader(&path));
            found.push(Database { prefix: prefix.to_owned(), path, open });
        }
    }
    Ok(found)
}

/// The queue directories: those given, or found among the directories, or named by the segments; and a configured
/// one's.
fn queue_directories(directories: &[PathBuf], given: &[PathBuf], configuration: &Configuration) -> Vec<PathBuf> {
    let own = directories.iter().filter(|directory| directory.join("leader.lock").exists());
    let found: Vec<PathBuf> = given.iter().chain(own).cloned().collect();
    if !found.is_empty() {
        return found;
    }
    let mut found: Vec<PathBuf> = directories.iter().flat_map(|directory| named_by_segments(directory)).collect();
    let queues = &configuration.queue_directory;
    if has(directories, &configuration.settings.directory()) && queues.is_dir() && !has(&found, queues) {
        found.push(queues.clone());
    }
    found
}

fn chain_key(options: &Options, configuration: &Configuration) -> Result<Option<chain::Value>, Failure> {
    let Some(path) = options.text("chain-key-file") else {
        return configuration.settings.audit_chain_key().map_err(|sentence| options.wrong(&sentence));
    };
    let unread = |error| options.wrong(&format!("chain_key_file={path}: {}", reason(&error)));
    let content = std::fs::read(path).map_err(unread)?;
    let wrong = || options.wrong(&format!("chain_key_file={path}: must hold 64 lowercase hexadecimal digits"));
    chain::parse_hex(content.trim_ascii()).map(Some).ok_or_else(wrong)
}
