//! Bytes that are not written: their type, length and hash replace them.
//!
//! For base64 the decoded bytes count, so that the hash is that of the file. The hash names its algorithm, and whether
//! it has a key: `blake3:…` or `blake3-keyed:…`.

use crate::json::{escape, number};
use queue::hex;

/// Marks a missing part of a text.
pub const ELLIPSIS: &[u8] = "…".as_bytes();
/// From this length on, a text of nothing but base64 counts as media.
const SHORTEST_BASE64: usize = 256;
/// The same if the beginning of the text is missing.
const SHORTEST_REST: usize = 32;
/// A data URL within a text is replaced from this length on.
const SHORTEST_URL: usize = 64;

/// The digest that replaces bytes.
pub struct Digest {
    pub length: u64,
    pub hash: [u8; 32],
}

/// Digest bytes as they are.
pub fn digest(bytes: &[u8], key: Option<&[u8; 32]>) -> Digest {
    let mut hasher = hasher(key);
    hasher.update(bytes);
    Digest { length: bytes.len() as u64, hash: *hasher.finalize().as_bytes() }
}

/// Digest the decoded bytes of base64; other text as it is.
pub fn digest_base64(text: &[u8], key: Option<&[u8; 32]>) -> Digest {
    let mut hasher = hasher(key);
    let (mut length, mut bits, mut held, mut filled) = (0, 0u32, 0, 0);
    let mut block = [0; 3072];
    for byte in text.iter().filter(|byte| !byte.is_ascii_whitespace()) {
        if *byte == b'=' {
            break;
        }
        let Some(value) = sextet(*byte) else { return digest(text, key) };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            block[filled] = (bits >> held) as u8;
            filled += 1;
        }
        if filled == block.len() {
            hasher.update(&block);
            length += filled as u64;
            filled = 0;
        }
    }
    hasher.update(&block[..filled]);
    Digest { length: length + filled as u64, hash: *hasher.finalize().as_bytes() }
}

fn hasher(key: Option<&[u8; 32]>) -> blake3::Hasher {
    key.map_or_else(blake3::Hasher::new, blake3::Hasher::new_keyed)
}

/// The value of a digit of base64, in either alphabet.
const fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

/// Append `,"length":…,"hash":"…"`.
pub fn push_digest(out: &mut Vec<u8>, digest: &Digest, is_keyed: bool) {
    out.extend_from_slice(br#","length":"#);
    number::push_integer(out, digest.length);
    push_hash_member(out, &digest.hash, is_keyed);
}

/// Append `,"hash":"…"`.
pub fn push_hash_member(out: &mut Vec<u8>, hash: &[u8; 32], is_keyed: bool) {
    out.extend_from_slice(br#","hash":""#);
    push_hash(out, hash, is_keyed);
    out.push(b'"');
}

/// Append a hash with its algorithm, without quotes.
pub fn push_hash(out: &mut Vec<u8>, hash: &[u8; 32], is_keyed: bool) {
    out.extend_from_slice(if is_keyed { b"blake3-keyed:" } else { b"blake3:" });
    hex::push(out, *hash);
}

/// A data URL: its type, and the encoded bytes.
pub struct DataUrl<'a> {
    pub media_type: &'a [u8],
    pub is_base64: bool,
    pub payload: &'a [u8],
}

impl<'a> DataUrl<'a> {
    /// Read `data:type;parameters;base64,payload`; None for anything else.
    pub fn of(text: &'a [u8]) -> Option<Self> {
        let rest = text.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case(b"data:")).map(|_| &text[5..])?;
        let comma = memchr::memchr(b',', &rest[..rest.len().min(256)]);
        let (head, payload) = comma.map_or((rest, &b""[..]), |comma| (&rest[..comma], &rest[comma + 1..]));
        let end = head.iter().position(|byte| *byte == b';').unwrap_or(head.len());
        let media_type = if comma.is_some() || end < head.len() { &head[..end] } else { b"" };
        Some(Self { media_type, is_base64: head.ends_with(b";base64"), payload })
    }
}

/// Replace base64 after each ellipsis, whose beginning is missing, by `[cut]`.
pub fn replace_rests(text: &mut Vec<u8>) {
    let finder = memchr::memmem::Finder::new(ELLIPSIS);
    let mut from = 0;
    while let Some(found) = finder.find(&text[from..]) {
        from += found + ELLIPSIS.len();
        // The end of the part before the payload may be there.
        let window = &text[from..(from + 32).min(text.len())];
        let start = from + memchr::memchr(b',', window).map_or(0, |comma| comma + 1);
        for start in [from, start] {
            let length = run(&text[start..]);
            if is_base64(&text[start..start + length], true) {
                text.splice(start..start + length, *b"[cut]");
                break;
            }
        }
    }
}

/// The length of the base64 at the beginning of `text`.
fn run(text: &[u8]) -> usize {
    text.iter().take_while(|byte| sextet(**byte).is_some() || **byte == b'=').count()
}

/// Whether all of a text is base64. Words are not: they are short, or have no digits, or only one case.
pub fn is_base64(text: &[u8], is_rest: bool) -> bool {
    let least = if is_rest { SHORTEST_REST } else { SHORTEST_BASE64 };
    let has = |kind: fn(&u8) -> bool| text.iter().any(kind);
    text.len() >= least
        && text.iter().all(|byte| sextet(*byte).is_some() || *byte == b'=')
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit)
}

/// Replace data URLs within a text by `[type, 123 bytes, blake3:…]`, or `[type, cut]` if the end is missing.
pub fn replace_data_urls(text: &mut Vec<u8>, key: Option<&[u8; 32]>) {
    let finder = memchr::memmem::Finder::new(b";base64,");
    let mut from = 0;
    while let Some(found) = finder.find(&text[from..]) {
        let (marker, payload) = (from + found, from + found + 8);
        let window = marker.saturating_sub(128).max(from);
        let start = memchr::memmem::rfind(&text[window..marker], b"data:").map(|start| window + start);
        let end = payload + run(&text[payload..]);
        let is_cut = text[end..].starts_with(ELLIPSIS);
        let length = end - start.unwrap_or(marker);
        if length < SHORTEST_URL && !is_cut {
            from = payload;
            continue;
        }
        let mut stands = vec![b'['];
        stands.extend_from_slice(start.map_or(b"base64", |start| &text[start + 5..marker]));
        if is_cut {
            stands.extend_from_slice(b", cut]");
        } else {
            let digest = digest_base64(&text[payload..end], key);
            stands.extend_from_slice(format!(", {} bytes, ", digest.length).as_bytes());
            push_hash(&mut stands, &digest.hash, key.is_some());
            stands.push(b']');
        }
        let start = start.unwrap_or(marker);
        from = start + stands.len();
        text.splice(start..end, stands);
    }
}

/// What kind of media it is: by the part's type, else by the media type.
pub fn modality(type_name: Option<&[u8]>, media_type: &[u8]) -> &'static str {
    let has = |text: &[u8], word: &[u8]| memchr::memmem::find(text, word).is_some();
    let named = type_name.unwrap_or_default();
    for kind in ["image", "audio", "video"] {
        if has(named, kind.as_bytes()) || media_type.starts_with(kind.as_bytes()) {
            return kind;
        }
    }
    "file"
}

/// Append a media type as a string, without parameters.
pub fn push_media_type(out: &mut Vec<u8>, media_type: &[u8]) {
    if !media_type.is_empty() {
        out.extend_from_slice(br#","mime_type":"#);
        escape::push_string(out, &media_type[..media_type.len().min(128)]);
    }
}
