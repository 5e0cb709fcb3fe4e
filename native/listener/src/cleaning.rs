//! Removal of queue directories that are out of use: no process has a queue there, and no record waits for a listener.

use listen::settings::entries;
use std::io;
use std::path::Path;

/// Removes a queue directory, or returns why it has to stay.
///
/// A process that starts at this moment is either seen, or makes the directory anew.
///
/// # Errors
/// The directory is missing, or cannot be removed.
pub fn remove(directory: &Path) -> io::Result<Option<String>> {
    std::fs::read_dir(directory)?;
    if let Some(why) = kept_for(directory) {
        return Ok(Some(why));
    }
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let aside = directory.with_file_name(format!(".{name}.removed"));
    std::fs::rename(directory, &aside)?;
    if let Some(why) = kept_for(&aside) {
        // Another process was quicker. If it has made the directory anew, it does not need this one any more.
        let _ = std::fs::rename(&aside, directory);
        return Ok(Some(why));
    }
    std::fs::remove_dir_all(&aside)?;
    Ok(None)
}

/// The reason why a queue directory has to stay; None: it is out of use.
///
/// Every process that produces or listens keeps a queue file there for as long as it lives.
fn kept_for(directory: &Path) -> Option<String> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names: Vec<String> = entries(directory).iter().map(|path| name(path)).collect();
    match names.iter().filter(|name| name.ends_with(".queue") || name.ends_with(".new")).count() {
        0 => names.iter().find(|name| !is_own(name)).map(|name| format!("'{name}' is no file of a queue directory")),
        1 => Some("1 queue is in use or waits for a listener".to_owned()),
        queues => Some(format!("{queues} queues are in use or wait for a listener")),
    }
}

/// Whether a queue directory has files of this name beside its queues.
fn is_own(name: &str) -> bool {
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let numbered = ["control-", "runtime-", "metrics-"].iter().find_map(|prefix| name.strip_prefix(prefix));
    let locks = ["leader.lock", "totals.lock", "runtime.lock", "comparison.lock", "configuration.lock"];
    let fixed = ["metrics", "configuration.yaml"];
    numbered.is_some_and(is_number)
        || fixed.contains(&name)
        || locks.contains(&name)
        || (name.starts_with("dead-") && name.len() > 5)
}
