//! Where the queues are: in the configured directory, or in one per user, service and configuration.

use crate::common::Common;
use queue::configuration::fingerprint;
use queue::system;
use std::fs::symlink_metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

const SHARED_MEMORY: &str = "/dev/shm";
/// Names tried when other users have taken the first one.
const TRIES: u32 = 8;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const FINGERPRINT_DIGITS: usize = 12;

impl Common {
    /// The directory of the queues: the configured one, or the default one for this user, service and configuration.
    ///
    /// Among the default ones, one that this user owns comes before one that does not exist yet; another user's is
    /// never taken.
    #[must_use]
    pub fn resolved_queue_directory(&self) -> PathBuf {
        if let Some(configured) = self.configured_queue_directory() {
            return configured;
        }
        let mut places = self.places();
        let own = places.iter().position(|path| is_own(path));
        let free = || places.iter().position(|path| symlink_metadata(path).is_err());
        places.swap_remove(own.or_else(free).unwrap_or(0))
    }

    /// The configured directory of the queues, without doubled or trailing slashes.
    #[must_use]
    pub fn configured_queue_directory(&self) -> Option<PathBuf> {
        self.queue_directory.as_deref().map(plain)
    }

    /// The same settings with this queue directory.
    #[must_use]
    pub fn with_queue_directory(&self, directory: &Path) -> Self {
        Self { queue_directory: Some(directory.to_owned()), ..self.clone() }
    }

    /// The name of the service.
    #[must_use]
    pub fn service_name(&self) -> &str {
        &self.service_name
    }

    /// The directory of the segments.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        plain(&self.directory)
    }

    /// Returns a sentence about the default queue directory if another user owns it.
    #[must_use]
    pub fn passed_over(&self) -> Option<String> {
        if self.configured_queue_directory().is_some() {
            return None;
        }
        let first = self.places().swap_remove(0);
        if symlink_metadata(&first).is_err() || is_own(&first) {
            return None;
        }
        let instead = self.resolved_queue_directory();
        Some(format!("{} {}; queues are in {} instead", first.display(), whose(&first), instead.display()))
    }

    fn places(&self) -> Vec<PathBuf> {
        let name = format!("{}-{}", prefix(self.service_name()), fingerprint(&self.configuration()));
        let mut places: Vec<PathBuf> = roots().into_iter().map(|root| root.join(&name)).collect();
        let first = places[0].display().to_string();
        places.extend((2..2 + TRIES).map(|number| PathBuf::from(format!("{first}-{number}"))));
        places
    }
}

/// The queue directories of a service that this user has by default, whatever their configurations are.
///
/// None: those of every service, and of earlier versions.
#[must_use]
pub fn queue_directories(service_name: Option<&str>) -> Vec<PathBuf> {
    let prefix = service_name.map_or_else(|| prefix(""), |name| format!("{}-", prefix(name)));
    let is_named = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let rest = name.strip_prefix(&prefix);
        rest.is_some_and(|rest| if service_name.is_some() { is_of_fingerprint(rest) } else { !rest.is_empty() })
    };
    let mut found = Vec::new();
    for root in roots() {
        found.extend(entries(&root).into_iter().filter(|path| is_named(path) && is_own(path)));
    }
    found
}

/// A path without doubled or trailing slashes, and without `.` as a part.
#[must_use]
pub fn plain(path: &Path) -> PathBuf {
    let parts: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    if parts.as_os_str().is_empty() { PathBuf::from(".") } else { parts }
}

/// The entries of a directory, sorted; none, where it cannot be read.
#[must_use]
pub fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort_unstable();
    paths
}

/// Whether a path is a directory that this user owns and no other user may write into.
#[must_use]
pub fn is_own(path: &Path) -> bool {
    symlink_metadata(path)
        .is_ok_and(|found| found.is_dir() && found.uid() == system::user() && found.mode() & WRITABLE_BY_OTHERS == 0)
}

/// Whether this is a fingerprint, and perhaps the number of a try behind it.
fn is_of_fingerprint(rest: &str) -> bool {
    let Some((digits, number)) = rest.split_at_checked(FINGERPRINT_DIGITS) else { return false };
    let has_number = matches!(number.as_bytes(), [] | [b'-', b'2'..=b'9']);
    has_number && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

fn prefix(service_name: &str) -> String {
    format!("inference_logging-{}-{service_name}", system::real_user())
}

/// Where default queue directories can be.
///
/// Shared memory comes first: the session's directory is removed at the last log-out, and a service has none.
fn roots() -> Vec<PathBuf> {
    let memory = PathBuf::from(SHARED_MEMORY);
    let mut roots = vec![first_root(memory)];
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    roots.extend(session.filter(|session| session.is_absolute() && is_own(session)));
    roots.dedup();
    roots
}

fn first_root(memory: PathBuf) -> PathBuf {
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

fn whose(path: &Path) -> String {
    let Ok(found) = symlink_metadata(path) else { return "is not there any more".to_owned() };
    if found.uid() == system::user() {
        return "is no directory of mode 0700".to_owned();
    }
    format!("belongs to {} (uid {})", user_name(found.uid()).unwrap_or_else(|| "?".to_owned()), found.uid())
}

/// The name of a user in this machine's own list.
#[must_use]
pub fn user_name(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    fields.find_map(|user| (user.get(2)?.parse() == Ok(uid)).then(|| user[0].to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_in_the_temporary_directory_where_there_is_no_shared_memory() {
        assert_eq!(first_root(PathBuf::from("/nowhere/shm")), std::env::temp_dir());
        assert_eq!(first_root(PathBuf::from("/")), Path::new("/"));
    }
}
