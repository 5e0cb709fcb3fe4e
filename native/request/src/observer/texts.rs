//! Texts of a request, cut so that no client can make its record too long for the queue.
//!
//! Together they stay below what `settings/rules.rs` sets aside for them (`REQUEST_RECORD_OVERHEAD_BYTES`), so that the terminal
//! record of a request always fits (P5).

use super::timeline::push_absent;
use crate::outcome::Ended;
use queue::record::Scratch;

const MAX_PATH_BYTES: usize = 2048;
const MAX_ROUTE_BYTES: usize = 512;
const MAX_TEXT_BYTES: usize = 256;
/// Stands at the end of a text that was cut.
const CUT: &str = "…";

/// What the caller tells of a request at its end.
#[derive(Clone, Copy, Debug)]
pub enum RequestSource<'a> {
    Http(RequestTexts<'a>),
    /// A model served it: the values of the record's fields from `triton.model_name` on.
    Model(&'a [u8]),
}

/// Texts of the request that the caller still holds at its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestTexts<'a> {
    pub method: &'a str,
    pub path: &'a [u8],
    pub route_prefix: &'a str,
    pub route: &'a str,
    pub protocol_version: &'a str,
    pub client_address: &'a str,
}

#[inline]
pub fn push_texts(scratch: &mut Scratch, texts: &RequestTexts<'_>) {
    push_text(scratch, texts.method);
    if texts.path.len() <= MAX_PATH_BYTES {
        scratch.push_bytes(texts.path);
    } else {
        push_cut(scratch, texts.path, MAX_PATH_BYTES);
    }
    push_route(scratch, texts.route_prefix, texts.route);
    push_text(scratch, texts.protocol_version);
    push_text(scratch, texts.client_address);
}

/// Appends a short text; absent if it is empty.
#[inline]
pub fn push_text(scratch: &mut Scratch, text: &str) {
    match text.len() {
        0 => scratch.push_absent(),
        1..=MAX_TEXT_BYTES => scratch.push_str(text),
        _ => push_cut(scratch, text.as_bytes(), MAX_TEXT_BYTES),
    }
}

/// Appends what went wrong behind a good answer; absent values, where nothing did.
#[inline]
pub fn push_after_response(scratch: &mut Scratch, ended: &Ended<'_>) {
    match ended.after_response {
        Some((outcome, error_type)) => {
            scratch.push_str(outcome.name());
            push_text(scratch, error_type);
        }
        None => push_absent(scratch, 2),
    }
}

/// Appends the path template of a route behind that of its mount; absent if there is none.
#[inline]
pub fn push_route(scratch: &mut Scratch, prefix: &str, route: &str) {
    match prefix.len() + route.len() {
        0 => scratch.push_absent(),
        1..=MAX_ROUTE_BYTES if prefix.is_empty() => scratch.push_str(route),
        1..=MAX_ROUTE_BYTES => scratch.push_str(&[prefix, route].concat()),
        _ => push_cut(scratch, [prefix, route].concat().as_bytes(), MAX_ROUTE_BYTES),
    }
}

/// Appends a text of at most `limit` bytes; absent if it is empty, or nothing of it has room.
#[cold]
pub fn push_text_within(scratch: &mut Scratch, text: &[u8], limit: usize) {
    match text.len() {
        0 => scratch.push_absent(),
        len if len <= limit => scratch.push_bytes(text),
        _ if limit <= CUT.len() => scratch.push_absent(),
        _ => push_cut(scratch, text, limit),
    }
}

#[cold]
fn push_cut(scratch: &mut Scratch, text: &[u8], limit: usize) {
    let is_within_character = |at: &usize| text[*at] & 0xc0 == 0x80;
    let end = (0..=limit - CUT.len()).rev().find(|at| !is_within_character(at)).unwrap_or(0);
    scratch.push_bytes(&[&text[..end], CUT.as_bytes()].concat());
}
