//! The queue directory: owned by the user, and writable by no other user.

use crate::system;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Creates the directory with mode 0700 if it is missing, and refuses one that others own or may write to.
///
/// # Errors
/// `PermissionDenied` naming the directory and what is wrong with it, or the file system's error.
pub fn prepare_directory(directory: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    check_directory(directory)
}

/// Refuses a directory that others own or may write to.
///
/// # Errors
/// As [`prepare_directory`]; `NotFound` if there is none.
pub fn check_directory(directory: &Path) -> io::Result<()> {
    // Without a slash at the end, which would have the link followed.
    let metadata = std::fs::symlink_metadata(directory.components().as_path())?;
    let user = system::user();
    let refuse = |what: &str| {
        let message = format!("queue directory {}: {what}", directory.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    };
    if !metadata.is_dir() {
        return refuse("not a directory, or a symbolic link");
    }
    if metadata.uid() != user {
        return refuse(&format!("owned by another user (uid {})", metadata.uid()));
    }
    if metadata.permissions().mode() & 0o022 != 0 {
        return refuse("writable by group or others; use mode 0700");
    }
    Ok(())
}
