//! Key files. Errors name the parameter; the key itself is in no message.

use queue::hex;
use sha2::{Digest, Sha256};
use std::io;
use std::path::Path;

pub type Key = [u8; 32];

/// The key of the hashes; None: none is configured. Fails naming the parameter.
pub fn hash_key(file: Option<&Path>) -> Result<Option<Key>, String> {
    let Some(path) = file else { return Ok(None) };
    let named = |why: String| format!("capture_hash_key_file='{}': {why}", path.display());
    let content = std::fs::read(path).map_err(|error| named(format!("can't be read: {}", reason(&error))))?;
    let key = Key::try_from(&*content).ok().or_else(|| hex::read(&content.trim_ascii().to_ascii_lowercase()));
    key.map(Some).ok_or_else(|| named("must hold 32 bytes or 64 hexadecimal digits".to_owned()))
}

/// The key of the audit chain; None: none is configured. Fails naming the parameter.
pub fn chain_key(file: Option<&Path>) -> Result<Option<Key>, String> {
    let Some(path) = file else { return Ok(None) };
    let named = |why: String| format!("audit_chain_key_file={}: {why}", path.display());
    let content = std::fs::read(path).map_err(|error| named(reason(&error)))?;
    let digits = content.strip_suffix(b"\n").unwrap_or(&content);
    hex::read(digits).map(Some).ok_or_else(|| named("must hold 64 lowercase hexadecimal digits".to_owned()))
}

/// Returns a few digits that identify the content of a key file: two mounts of one secret have different paths.
pub fn digest(path: &Path) -> String {
    let Ok(content) = std::fs::read(path) else { return "unreadable".to_owned() };
    let digest = Sha256::new().chain_update(b"inference_logging\0").chain_update(content).finalize();
    let first = digest.first_chunk().copied().unwrap_or_default();
    String::from_utf8_lossy(&hex::of_id(first)).into_owned()
}

/// An error in words, without its number.
#[must_use]
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.clone(), |(words, _)| words.to_owned())
}
