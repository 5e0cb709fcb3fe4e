//! Writes bytes as a JSON string, copying clean runs a block at a time.
//!
//! Escaped are `"`, `\` and everything below 0x20, in the short form if JSON has one; all other bytes stay as they are
//! (also 0x7F, U+2028, U+2029). Bytes that are not UTF-8 become U+FFFD, one per maximal subpart, as in
//! `String::from_utf8_lossy`. So any input results in a valid JSON string.
//!
//! A block is loaded, stored to the output as it is, and searched; up to the first byte to escape, the store was
//! already the copy. Invariant: before each block the output has room for the rest of the input and [`SLACK`] bytes.

use request::block::{Block, WIDTH};

/// Room beyond the input: the block that sticks out, one escape, the closing quote.
const SLACK: usize = WIDTH + 8;

const REPLACEMENT: &str = "\u{FFFD}";

/// Append `bytes` to `out` as a JSON string, quotes included.
#[inline]
pub fn push_string(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.len() > WIDTH || !push_clean_block(out, bytes) {
        push_any_string(out, bytes);
    }
}

/// Append a string of at most one block, if nothing in it is to be escaped or checked: most are such.
#[inline(always)]
fn push_clean_block(out: &mut Vec<u8>, bytes: &[u8]) -> bool {
    let block = Block::load(bytes);
    if block.clean_len::<true>() < bytes.len() {
        return false;
    }
    out.reserve(SLACK);
    let start = out.len();
    // SAFETY: `bytes.len() <= WIDTH`, so that the block and the closing quote lie within the WIDTH + 2 bytes behind
    // `start`, for which there is room; all bytes up to the new length are written.
    unsafe {
        let to = out.as_mut_ptr().add(start);
        to.write(b'"');
        block.store(to.add(1));
        to.add(1 + bytes.len()).write(b'"');
        out.set_len(start + bytes.len() + 2);
    }
    true
}

#[inline(never)]
fn push_any_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + SLACK);
    out.push(b'"');
    let ascii = push_run::<true>(out, bytes);
    if ascii < bytes.len() {
        push_text(out, &bytes[ascii..]);
    }
    out.push(b'"');
}

/// Append bytes that may be UTF-8. Each turn checks bytes that no other turn sees, so that noise is linear too.
#[cold]
#[inline(never)]
fn push_text(out: &mut Vec<u8>, mut bytes: &[u8]) {
    loop {
        match std::str::from_utf8(bytes) {
            Ok(_) => {
                push_run::<false>(out, bytes);
                return;
            }
            Err(error) => {
                push_run::<false>(out, &bytes[..error.valid_up_to()]);
                out.extend_from_slice(REPLACEMENT.as_bytes());
                let Some(bad) = error.error_len() else { return };
                bytes = &bytes[error.valid_up_to() + bad..];
            }
        }
    }
}

/// Append `bytes`, escaped; with `ASCII` stop before the first byte of 0x80 or more. Return how many bytes were taken.
#[inline]
fn push_run<const ASCII: bool>(out: &mut Vec<u8>, bytes: &[u8]) -> usize {
    let mut at = 0;
    out.reserve(bytes.len() + SLACK);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let clean = copy_clean::<ASCII>(out, rest);
        at += clean;
        let Some(&byte) = rest.get(clean) else { break };
        if ASCII && byte >= 0x80 {
            break;
        }
        push_escape(out, byte);
        at += 1;
        out.reserve(bytes.len() - at + SLACK);
    }
    at
}

/// Copy bytes up to the first one to escape, or all; `out` has room for `bytes` and [`SLACK`]. Return their number.
#[inline(always)]
fn copy_clean<const ASCII: bool>(out: &mut Vec<u8>, bytes: &[u8]) -> usize {
    debug_assert!(out.capacity() - out.len() >= bytes.len() + WIDTH);
    let start = out.len();
    let mut at = 0;
    loop {
        let left = bytes.len() - at;
        let block = Block::load(&bytes[at..]);
        // SAFETY: `at <= bytes.len()`, and the caller reserved `bytes.len() + SLACK` behind `start`, with `SLACK >= WIDTH`.
        unsafe { block.store(out.as_mut_ptr().add(start + at)) };
        let clean = block.clean_len::<ASCII>();
        if clean < WIDTH || left <= WIDTH {
            at += clean.min(left);
            break;
        }
        at += WIDTH;
    }
    // SAFETY: the bytes up to `start + at` were stored just now, within the capacity.
    unsafe { out.set_len(start + at) };
    at
}

#[inline(always)]
fn push_escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0C => b'f',
        _ => {
            let hex = |digit: u8| b"0123456789abcdef"[usize::from(digit)];
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}
