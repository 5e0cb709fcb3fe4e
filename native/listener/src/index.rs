//! `index`: makes the index of directories of segments, or brings it up to date, and reports what it has.

use super::configuration::Configuration;
use super::failure::{self, Failure};
use super::host::Host;
use super::options::{Options, Syntax};
use super::report;
use ::index::catalog::{Catalog, Progress};
use listen::settings::plain;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// One look at the directories; then a segment that was sealed meanwhile is found.
const ROUND: Duration = Duration::from_secs(10);
const INDEX_EXTENSION: &str = "index";
const MEGABYTE: f64 = 1e6;

static SYNTAX: Syntax = Syntax {
    name: "index",
    help: HELP,
    valued: &["config", "service-name", "prefix", "cache-directory"],
    flags: &["json"],
    most_arguments: usize::MAX,
};
const HELP: &str = "\
Usage: inference-logging-listener index [OPTIONS] [DIR]...

  Make the index of the segments in each DIR (default: the configured one), or bring it up to date.

  The index is a cache with columns of the records: `view` and `query` answer from it instead of the lines, and make it
  themselves where it is missing. One file for each sealed segment, about 7 % of its plain size, only for this user.
  Files of segments that were removed are removed too. The whole cache may be deleted at any time.

  Exit code: 0 if everything is indexed, 1 if something cannot be read or kept, 2 for a wrong command line or
  configuration, or without segments.

Options:
  --config PATH           JSON file, as if config_file named it.
  --service-name TEXT     As service_name of the servers.
  --prefix NAME           Only segments of this service_name; may be repeated. Without it, all.
  --cache-directory PATH  Where the index files are. Default: $XDG_CACHE_HOME/inference-logging, else
                          ~/.cache/inference-logging.
  --json                  JSON instead of words.
  -h, --help              Show this message and exit.
";

/// Runs the command to its end.
///
/// # Errors
/// The command line or the configuration is wrong, or a directory cannot be read.
pub fn run(host: &Host, arguments: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let options = Options::read(host, &SYNTAX, arguments)?;
    let mut directories: Vec<PathBuf> = options.arguments().iter().map(|text| plain(Path::new(text))).collect();
    if directories.is_empty() {
        let configuration = Configuration::read(host, &options, &["config", "service-name"])?;
        directories.push(configuration.settings.directory());
    }
    if let Some(missing) = directories.iter().find(|directory| !directory.is_dir()) {
        return Err(options.wrong(&format!("{}: no such directory", missing.display())));
    }
    let names = options.texts("prefix").iter().chain(options.texts("service-name").last()).cloned().collect();
    let cache = options.text("cache-directory").map(PathBuf::from);
    let opened = Catalog::new(&directories, names, cache.as_deref());
    let catalog = opened.map_err(|error| Failure::Open(error.to_string()))?;
    let begun = Instant::now();
    let progress = complete(&catalog);
    if progress.segments == 0 {
        let places: Vec<String> = directories.iter().map(|path| path.display().to_string()).collect();
        return Err(options.wrong(&format!("no segments in {}", places.join(", "))));
    }
    let found = found(&catalog, &progress, begun.elapsed());
    let text = if options.has("json") { report::json(&found) } else { words(&found) };
    let is_whole = progress.done && progress.problems.is_empty();
    Ok(failure::show(&text, if is_whole { failure::OK } else { failure::FAILED }))
}

/// Refreshes until everything is indexed, or a round gets nowhere.
fn complete(catalog: &Catalog) -> Progress {
    let mut last = catalog.refresh(ROUND);
    let mut idle = Instant::now();
    while !last.done && idle.elapsed() < ROUND * 2 {
        let next = catalog.refresh(ROUND);
        if next.indexed_bytes > last.indexed_bytes {
            idle = Instant::now();
        } else if next.problems == last.problems && !next.problems.is_empty() {
            return next; // what is left cannot be indexed
        }
        last = next;
    }
    last
}

fn found(catalog: &Catalog, progress: &Progress, took: Duration) -> Value {
    let caches: Vec<Value> = catalog
        .caches()
        .map(|path| json!({"directory": path.display().to_string(), "bytes": index_bytes(path)}))
        .collect();
    json!({
        "segments": progress.segments,
        "indexed_segments": progress.indexed_segments,
        "bytes": progress.bytes,
        "indexed_bytes": progress.indexed_bytes,
        "rows": progress.rows,
        "live_rows": progress.live_rows,
        "caches": caches,
        "seconds": took.as_secs_f64(),
        "problems": progress.problems,
    })
}

fn index_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.path().extension().is_some_and(|kind| kind == INDEX_EXTENSION));
    files.filter_map(|entry| entry.metadata().ok()).map(|facts| facts.len()).sum()
}

fn words(found: &Value) -> String {
    let megabytes = |value: &Value| value.as_f64().unwrap_or(0.0) / MEGABYTE;
    let mut text = format!(
        "{} of {} segments are indexed: {} records, {:.1} of {:.1} MB, in {:.1} s\n",
        found["indexed_segments"],
        found["segments"],
        found["rows"],
        megabytes(&found["indexed_bytes"]),
        megabytes(&found["bytes"]),
        found["seconds"].as_f64().unwrap_or(0.0),
    );
    for cache in found["caches"].as_array().into_iter().flatten() {
        let directory = cache["directory"].as_str().unwrap_or_default();
        let _ = writeln!(text, "cache: {directory}: {:.1} MB", megabytes(&cache["bytes"]));
    }
    for problem in found["problems"].as_array().into_iter().flatten() {
        let shown: String = problem.as_str().unwrap_or_default().escape_debug().collect();
        let _ = writeln!(text, "problem: {shown}");
    }
    text
}
