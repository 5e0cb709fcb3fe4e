//! The metrics of a queue directory: every family, collected from what all processes publish, and rendered as text.
//!
//! Any process answers for all of them, and counters never go back: the counts of ended queues stay in the queue
//! directory. The families are the same for each face: as text here, or as objects for a registry of the application's.

use super::health::{HealthWatch, RECENT_LOOK};
use super::per_process::PerProcess;
use crate::sink::Now;
use accept::Format;
use family::Family;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub mod accept;
mod directory;
mod engines;
pub mod family;
mod node;
pub mod requests;
pub mod routes;
pub mod several;
pub mod text;

pub use directory::{books_difference, families as of_directory};

/// The file in which the kernel describes the node's memory.
pub const MEMINFO: &str = "/proc/meminfo";

/// Collects the families that are not of a queue directory: the node's memory, and the build.
#[must_use]
pub fn of_node(meminfo: &Path, python_version: Option<&str>) -> Vec<Family> {
    let mut families = node::families(meminfo);
    families.push(node::build(python_version));
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
        let chosen = accept::choose(accept);
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
