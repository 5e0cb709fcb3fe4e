//! Key files. Errors name the parameter; the key itself is in no message.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io;
use std::path::Path;

pub type Key = [u8; 32];

/// Bytes of the digest of a key, which is shown as twice as many hexadecimal digits.
const DIGEST_BYTES: usize = 8;

/// The key of the hashes; None: none is configured. Fails naming the parameter.
pub fn hash_key(file: Option<&Path>) -> Result<Option<Key>, String> {
    let Some(path) = file else { return Ok(None) };
    let named = |why: String| format!("capture_hash_key_file='{}': {why}", path.display());
    let content = std::fs::read(path).map_err(|error| named(format!("can't be read: {}", reason(&error))))?;
    let key = Key::try_from(&*content).ok().or_else(|| from_hex(content.trim_ascii()));
    key.map(Some).ok_or_else(|| named("must hold 32 bytes or 64 hexadecimal digits".to_owned()))
}

/// The key of the audit chain; None: none is configured. Fails naming the parameter.
pub fn chain_key(file: Option<&Path>) -> Result<Option<Key>, String> {
    let Some(path) = file else { return Ok(None) };
    let named = |why: String| format!("audit_chain_key_file={}: {why}", path.display());
    let content = std::fs::read(path).map_err(|error| named(reason(&error)))?;
    let digits = content.strip_suffix(b"\n").unwrap_or(&content);
    let is_lowercase = !digits.iter().any(u8::is_ascii_uppercase);
    let key = from_hex(digits).filter(|_| is_lowercase);
    key.map(Some).ok_or_else(|| named("must hold 64 lowercase hexadecimal digits".to_owned()))
}

/// Returns a few digits that identify the content of a key file: two mounts of one secret have different paths.
pub fn digest(path: &Path) -> String {
    let Ok(content) = std::fs::read(path) else { return "unreadable".to_owned() };
    let digest = Sha256::new().chain_update(b"inference_logging\0").chain_update(content).finalize();
    digest.iter().take(DIGEST_BYTES).fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

fn from_hex(digits: &[u8]) -> Option<Key> {
    let mut key = Key::default();
    let value = |digit: u8| char::from(digit).to_digit(16);
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::try_from(value(pair[0])? << 4 | value(pair[1])?).ok()?;
    }
    (digits.len() == 2 * key.len()).then_some(key)
}

/// An error in words, without its number.
#[must_use]
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.clone(), |(words, _)| words.to_owned())
}
