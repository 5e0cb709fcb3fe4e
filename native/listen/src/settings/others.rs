//! Records of other configurations of a service that no running listener writes.

use super::Settings;
use parameters::{entries, is_own, queue_directories};
use queue::hex;
use queue::lock::Holder;
use queue::{configuration, inspect};
use std::path::{Path, PathBuf};

/// A queue directory of another configuration, with records that wait.
pub struct Other {
    pub path: PathBuf,
    /// What waits where, why, and which program writes it.
    pub sentence: String,
    /// Whether a process still produces there.
    pub is_alive: bool,
}

impl Settings {
    /// Returns each queue directory with such records. The queue directory of these settings is `own`.
    #[must_use]
    pub fn of_others(&self, own: &Path) -> Vec<Other> {
        let mine = self.configuration();
        self.beside(own).into_iter().filter_map(|path| look(path, &mine)).collect()
    }

    fn beside(&self, own: &Path) -> Vec<PathBuf> {
        if self.configured_queue_directory().is_none() {
            let all = queue_directories(Some(self.service_name()));
            return all.into_iter().filter(|path| path != own).collect();
        }
        let inside = if is_own(own) { entries(own) } else { Vec::new() };
        inside.into_iter().filter(|path| is_set_aside(path) && is_own(path)).collect()
    }
}

/// Whether a directory has the name of one that was moved aside: a fingerprint, and perhaps a number.
fn is_set_aside(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (digits, number) = name.split_once('-').unwrap_or((&name, "0"));
    let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    is_number && hex::read::<6>(digits.as_bytes()).is_some()
}

fn look(path: PathBuf, mine: &str) -> Option<Other> {
    let noted = configuration::read(&path).ok()??;
    if noted == mine || inspect::leader(&path) != Holder::Nobody {
        return None;
    }
    let queues = inspect::queues(&path);
    let records = queues.iter().map(|queue| queue.counts.in_queue).sum::<u64>();
    let is_alive = queues.iter().any(|queue| queue.producer != Holder::Nobody);
    let (file, directory) = (path.join(configuration::NAME), path.display());
    let (what, how) = if is_alive {
        ("waiting for a listener", format!("listen --config {} --queue-directory {directory}", file.display()))
    } else {
        ("left", format!("recover --config {} {directory}", file.display()))
    };
    let differences = configuration::differences(&noted, mine).join("; ");
    let noun = if records == 1 { "record" } else { "records" };
    let sentence = format!(
        "{records} {noun} of another configuration {what} in {directory} ({differences}); \
         `inference-logging {how}` writes what its producers said, where they said"
    );
    (records > 0).then_some(Other { path, sentence, is_alive })
}
