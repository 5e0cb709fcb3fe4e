//! The application that a command means: its queue directories, found by its settings and by the segments in its folder.
//!
//! Another application's servers are never meant by chance: not because they run on the same machine, and not because
//! they have the same service name by default.

use listen::settings::{Settings, entries, is_own, queue_directories};
use queue::configuration;
use segments::line;
use segments::segment::Form;
use segments::verify::listing;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

const LONGEST_HEADER_BYTES: u64 = 16_384;

/// The queue directory that a command acts on; with `all`, each that there is. Empty: there is none. `by_name`: the
/// command line names the service, which may then be in any folder.
///
/// # Errors
/// A sentence that lists several directories, none of which is more meant than the others.
pub fn meant(settings: &Settings, by_name: bool, all: bool) -> Result<Vec<PathBuf>, String> {
    let exact = settings.resolved_queue_directory();
    if !all && (settings.configured_queue_directory().is_some() || exact.is_dir()) {
        return Ok(vec![exact]);
    }
    let found = every(settings, by_name);
    let (used, ended): (Vec<PathBuf>, Vec<PathBuf>) = found.into_iter().partition(|path| has_queues(path));
    let found = if used.is_empty() { ended } else { used };
    if all || found.len() < 2 {
        return Ok(found);
    }
    let listed: Vec<String> = found.iter().map(|path| shown(path)).collect();
    Err(format!(
        "{} queue directories are meant, and nothing is done; name one with --queue-directory: {}",
        found.len(),
        listed.join(", ")
    ))
}

/// The one queue directory that a command means.
///
/// # Errors
/// A sentence: there is none, or there are several.
pub fn one(settings: &Settings, by_name: bool) -> Result<PathBuf, String> {
    let found = meant(settings, by_name, false)?.into_iter().next();
    let directory = found.unwrap_or_else(|| settings.resolved_queue_directory());
    if directory.is_dir() { Ok(directory) } else { Err(missing(&directory)) }
}

/// What is wrong with a queue directory that is not there.
pub fn missing(directory: &Path) -> String {
    format!(
        "queue_directory={}: does not exist: no server with this configuration has run. Name another one with \
         --config, --service-name or --queue-directory",
        directory.display()
    )
}

/// Every queue directory of the application: the configured one; else the default one of this very configuration, and
/// those whose segments go to the configured folder.
/// A service name that is given means this service only; with `by_name` wherever it is, if it is not there.
pub fn every(settings: &Settings, by_name: bool) -> Vec<PathBuf> {
    if let Some(configured) = settings.configured_queue_directory() {
        return vec![configured];
    }
    let name = settings.gives("service_name").then(|| settings.service_name());
    let (folder, own) = (resolved(&settings.directory()), queue_directories(name));
    let is_of_service = |path: &PathBuf| name.is_none() || noted(path, "service_name").as_deref() == name;
    let mut found: Vec<PathBuf> = named_by_segments(&folder).into_iter().filter(is_of_service).collect();
    let is_of_folder =
        |path: &&PathBuf| noted(path, "directory").is_some_and(|text| resolved(Path::new(&text)) == folder);
    for path in own.iter().filter(is_of_folder) {
        if !found.contains(path) {
            found.push(path.clone());
        }
    }
    let exact = settings.resolved_queue_directory();
    if is_own(&exact) && !found.contains(&exact) {
        found.push(exact);
    }
    if found.is_empty() && by_name { own } else { found }
}

/// The queue directories that a folder's segments come from, if they still exist.
///
/// Compressed segments are skipped: the newest ones are plain.
pub(crate) fn named_by_segments(folder: &Path) -> Vec<PathBuf> {
    let listed = listing::list(folder, &[]).unwrap_or_default();
    let mut named = Vec::<(PathBuf, String)>::new();
    for segment in listed.iter().filter(|segment| segment.plain) {
        let Some(origin) = origin(&segment.path(Form::Plain)) else { continue };
        if !named.contains(&origin) {
            named.push(origin);
        }
    }
    let mut found = Vec::new();
    for path in named.iter().filter_map(|(queues, fingerprint)| of_configuration(queues, fingerprint)) {
        if !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// A path that can be compared with others.
pub fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// The queue directory and the fingerprint in the header of a segment.
fn origin(segment: &Path) -> Option<(PathBuf, String)> {
    let mut line = Vec::new();
    let file = std::fs::File::open(segment).ok()?;
    BufReader::new(file.take(LONGEST_HEADER_BYTES)).read_until(b'\n', &mut line).ok()?;
    let header = line::parse(&line).ok().filter(|header| header["event_name"] == "segment.header")?;
    let fingerprint = header.get("configuration").map_or(Some(""), Value::as_str)?;
    Some((PathBuf::from(header["queue_directory"].as_str()?), fingerprint.to_owned()))
}

/// The directory, if it is this user's and for that configuration; or a directory that was moved aside in it.
fn of_configuration(queues: &Path, fingerprint: &str) -> Option<PathBuf> {
    let is_meant = |path: &PathBuf| {
        let noted = if is_own(path) { configuration::read(path).ok().flatten() } else { None };
        noted.is_some_and(|noted| fingerprint.is_empty() || configuration::fingerprint(&noted) == fingerprint)
    };
    [queues.to_owned(), queues.join(fingerprint)].into_iter().find(is_meant)
}

/// Whether a process produces there, or records wait.
fn has_queues(directory: &Path) -> bool {
    entries(directory).iter().any(|path| path.extension().is_some_and(|end| end == "queue"))
}

/// A parameter as a queue directory notes it.
fn noted(directory: &Path, parameter: &str) -> Option<String> {
    let text = configuration::read(directory).ok().flatten()?;
    let value = text.lines().find_map(|line| line.strip_prefix(parameter)?.strip_prefix(": "))?;
    serde_json::from_str(value).ok()
}

/// A queue directory, its service and its folder, on one line.
fn shown(path: &Path) -> String {
    let of = ["service_name", "directory"].map(|name| noted(path, name).unwrap_or_else(|| "?".to_owned()));
    format!("{} ({} in {})", path.display(), of[0], of[1])
}
