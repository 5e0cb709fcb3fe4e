//! The metrics of a queue directory: every family, collected from what all processes publish, and rendered as text.
//!
//! Any process answers for all of them, and counters never go back: the counts of ended queues stay in the queue
//! directory. The families are the same for each face: as text here, or as objects for a registry of the application's.

use super::PerProcess;
use super::health::{HealthWatch, RECENT_LOOK};
use crate::sink::Now;
use family::Family;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use text::Format;

pub use directory::{books_difference, families as of_directory};

mod directory;
pub mod family;
pub mod requests;
pub mod text;

/// The file in which the kernel describes the node's memory.
pub const MEMINFO: &str = "/proc/meminfo";

/// Collects the families that are not of a queue directory: the node's memory, and the build.
#[must_use]
pub fn of_node(meminfo: &Path, python_version: Option<&str>) -> Vec<Family> {
    let mut families = memory(meminfo);
    families.push(build(python_version));
    families
}

/// The metrics as one process shows them.
pub struct Metrics {
    watch: Arc<HealthWatch>,
    /// The file in which the kernel describes the node's memory.
    meminfo: PathBuf,
    /// The version of the Python that runs this, if any.
    python_version: Option<String>,
    shown: PerProcess<Shown>,
}

#[derive(Default)]
struct Shown {
    /// When they were collected, by the monotonic clock.
    collected: Option<Duration>,
    families: Vec<Family>,
    texts: HashMap<Format, Arc<[u8]>>,
}

impl Metrics {
    /// Shows what `watch` assesses.
    #[must_use]
    pub fn new(watch: Arc<HealthWatch>, python_version: Option<String>) -> Self {
        Self { watch, meminfo: PathBuf::from(MEMINFO), python_version, shown: PerProcess::new() }
    }

    /// Collects every family.
    ///
    /// # Errors
    /// The listener's counts of requests cannot be read.
    pub fn families(&self, now: Now) -> io::Result<Vec<Family>> {
        let mut families = directory::families(&self.watch, now)?;
        families.extend(of_node(&self.meminfo, self.python_version.as_deref()));
        Ok(families)
    }

    /// Returns the metrics, and their content type, in the best format that the `Accept` header names: OpenMetrics with
    /// exemplars, or else Prometheus's text format. They are collected at most once per [`RECENT_LOOK`].
    ///
    /// # Errors
    /// As [`Metrics::families`].
    pub fn render(&self, accept: &str, now: Now) -> io::Result<(Arc<[u8]>, String)> {
        let chosen = text::choose(accept);
        let text = self.shown.with(|shown| {
            if shown.collected.is_none_or(|at| now.monotonic.saturating_sub(at) >= RECENT_LOOK) {
                let families = self.families(now)?;
                *shown = Shown { collected: Some(now.monotonic), families, texts: HashMap::new() };
            }
            let Shown { families, texts, .. } = shown;
            let text = texts.entry(chosen.format).or_insert_with(|| text::render(families, chosen.format).into());
            Ok::<_, io::Error>(Arc::clone(text))
        })?;
        Ok((text, chosen.content_type))
    }
}

/// Fields of `/proc/meminfo`, and the memory that show them.
const FIELDS: [(&str, &str, &str); 3] = [
    ("MemTotal", "inference_logging_node_memory_bytes", "Memory of the node"),
    ("Dirty", "inference_logging_node_dirty_bytes", "Page cache of the node that waits to be written to disk"),
    ("Writeback", "inference_logging_node_writeback_bytes", "Page cache of the node that is being written to disk"),
];

/// The node's memory, and how much page cache waits for the disk: the writes of all of its services. Nothing if
/// `meminfo` cannot be read.
fn memory(meminfo: &Path) -> Vec<Family> {
    let text = std::fs::read_to_string(meminfo).unwrap_or_default();
    let kibibytes = |field: &str| -> Option<u64> {
        let (_, value) = text.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| *name == field)?;
        value.split_whitespace().next()?.parse().ok()
    };
    let shown = |(field, name, help)| {
        let bytes = kibibytes(field)? * 1024;
        Some(Family::gauge(name, help).unit("bytes").value(bytes as f64))
    };
    FIELDS.into_iter().filter_map(shown).collect()
}

/// The version of this library, and of the Python that it runs in, if any.
fn build(python_version: Option<&str>) -> Family {
    let mut labels = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    labels.extend(python_version.map(|version| ("python_version", version.to_owned())));
    Family::info("inference_logging_build", "The version of this library and of Python", labels)
}

#[cfg(test)]
mod tests {
    use super::{build, memory};

    #[test]
    fn the_nodes_memory_is_reported_in_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let meminfo = directory.path().join("meminfo");
        std::fs::write(&meminfo, "MemTotal:       16384 kB\nDirty:              8 kB\nHugePages_Total:       0\n")
            .unwrap();
        let reported: Vec<_> =
            memory(&meminfo).into_iter().map(|family| (family.name, family.samples[0].value)).collect();
        let expected = [
            ("inference_logging_node_memory_bytes", 16384.0 * 1024.0),
            ("inference_logging_node_dirty_bytes", 8.0 * 1024.0),
        ];
        assert_eq!(reported, expected);
        assert_eq!(memory(&directory.path().join("absent")), []);
    }

    #[test]
    fn a_process_without_python_names_no_version_of_it() {
        let names = |family: super::Family| family.samples[0].labels.iter().map(|label| label.0).collect::<Vec<_>>();
        assert_eq!(names(build(None)), ["version"]);
        assert_eq!(names(build(Some("3.11.4"))), ["version", "python_version"]);
    }
}
