//! The configuration that a queue directory belongs to: the parameters that say where records go and what is replaced
//! in them.
//!
//! The file `configuration.yaml` of a queue directory holds these parameters as its first process had them, one a line.
//! One listener writes the records of all processes of a directory by its own configuration, so a process with a
//! different text is refused here: its records would go to another directory, or without its redaction.
//!
//! The text is compared and shown, never obeyed: the content of shared memory does not decide where anything is
//! written.
//!
//! Invariants
//! * A process creates its queue, then reads the file again ([`confirm`]). A process that replaces the file writes it,
//!   then looks for queues again. So at least one of two processes with different texts sees the other.
//! * The file is replaced only while no process produces or listens. Before that, the queues that killed processes left
//!   are moved into a directory of their own below, with the pages that say how far they are written.

use crate::lock::{Attempt, Holder, ProcessLock, open};
use crate::queue_file::{self, prepare_directory};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file's name.
pub const NAME: &str = "configuration.yaml";
const LOCK_NAME: &str = "configuration.lock";
const MOST_BYTES: u64 = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

/// Names a text in twelve hexadecimal digits: in directories' names and in the headers of segments.
#[must_use]
pub fn fingerprint(text: &str) -> String {
    // FNV-1a: two texts with the same fingerprint are distinguished by the texts themselves.
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{:012x}", hash >> 16)
}

/// Writes `text` into `directory`, or finds it there already.
///
/// # Errors
/// A sentence that names the differences, if the directory belongs to another configuration; or the file system's
/// error.
pub fn claim(directory: &Path, text: &str) -> io::Result<()> {
    prepare_directory(directory)?;
    if read(directory)?.is_some_and(|found| found == text) {
        return Ok(());
    }
    let _lock = lock(directory)?;
    let Some(found) = read(directory)? else { return write(directory, text) };
    if found == text {
        return Ok(());
    }
    if is_in_use(directory)? {
        return Err(refusal(directory, &found, text));
    }
    set_aside(directory, &found)?;
    write(directory, text)?;
    if is_in_use(directory)? {
        write(directory, &found)?;
        return Err(refusal(directory, &found, text));
    }
    Ok(())
}

/// Checks, once other processes can find this process's queue, that the directory still has this `text`.
///
/// # Errors
/// As [`claim`].
pub(crate) fn confirm(directory: &Path, text: &str) -> io::Result<()> {
    match read(directory)? {
        Some(found) if found != text => Err(refusal(directory, &found, text)),
        Some(_) => Ok(()),
        // The directory is being removed: its processes notice that as they always do.
        None => write(directory, text),
    }
}

/// The text of a directory; None: it has none.
///
/// # Errors
/// The file cannot be read.
pub fn read(directory: &Path) -> io::Result<Option<String>> {
    let file = match open(&directory.join(NAME), false) {
        Ok(file) => std::fs::File::from(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// Lists the lines that differ: the name, the directory's text and the wanted one.
#[must_use]
pub fn differences(found: &str, wanted: &str) -> Vec<String> {
    let value = |text: &str, name: &str| {
        let mut lines = text.lines().filter_map(parameter);
        lines.find(|(known, _)| *known == name).map_or("not set".to_owned(), |(_, value)| value.to_owned())
    };
    let mut names: Vec<&str> =
        found.lines().chain(wanted.lines()).filter_map(|line| Some(parameter(line)?.0)).collect();
    names.sort_unstable();
    names.dedup();
    let differing = names.iter().map(|name| (name, value(found, name), value(wanted, name)));
    let differing = differing.filter(|(_, found, wanted)| found != wanted);
    differing.map(|(name, found, wanted)| format!("{name} is {found} there and {wanted} here")).collect()
}

/// Also from a comment: a value that may not be shown stands there as its digest.
fn parameter(line: &str) -> Option<(&str, &str)> {
    line.trim_start_matches(['#', ' ']).split_once(": ")
}

fn refusal(directory: &Path, found: &str, wanted: &str) -> io::Error {
    let differing = differences(found, wanted).join("; ");
    io::Error::new(
        io::ErrorKind::AddrInUse,
        format!(
            "{} is in use with another configuration, whose listener would write these records elsewhere or redact them \
             otherwise: {differing}. Name another queue_directory or service_name, or make them equal",
            directory.display()
        ),
    )
}

fn write(directory: &Path, text: &str) -> io::Result<()> {
    let temporary = directory.join(format!(".{NAME}.{}", std::process::id()));
    let _ = std::fs::remove_file(&temporary);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&temporary, directory.join(NAME)));
    written.inspect_err(|_| drop(std::fs::remove_file(&temporary)))
}

fn lock(directory: &Path) -> io::Result<ProcessLock> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Attempt::Acquired(lock) = ProcessLock::try_acquire(&directory.join(LOCK_NAME), true)? {
            return Ok(lock);
        }
        if Instant::now() >= end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "another process keeps configuration.lock"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a process listens there, or a process that has a queue there is alive.
fn is_in_use(directory: &Path) -> io::Result<bool> {
    let is_held = |path: &Path| Holder::of(path) != Holder::Nobody || queue_file::owned_by_this_process(path).is_some();
    Ok(is_held(&directory.join("leader.lock")) || queue_file::list(directory)?.iter().any(|path| is_held(path)))
}

/// Moves the queues that killed processes left, if there are any, into a directory of their own.
fn set_aside(directory: &Path, found: &str) -> io::Result<()> {
    if queue_file::list(directory)?.is_empty() {
        return Ok(());
    }
    let aside = create_aside(directory, &fingerprint(found))?;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let is_lock = entry.path().extension().is_some_and(|extension| extension == "lock");
        if entry.file_type()?.is_file() && !is_lock {
            std::fs::rename(entry.path(), aside.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn create_aside(directory: &Path, name: &str) -> io::Result<PathBuf> {
    let mut number = 0_u32;
    loop {
        let path = directory.join(if number == 0 { name.to_owned() } else { format!("{name}-{number}") });
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}
