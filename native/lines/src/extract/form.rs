//! Reads the parts of a form that a request uploads, whole or cut: small ones by their names, and of a file its name,
//! type and size.
//!
//! Only values of names that are no text of a client are written; the file itself never is. Where another part may be
//! in what is missing, the size of a file is not known: it is only where the captured end of the file is binary.

use super::facts::{MAX_TEXT_BYTES, RequestFacts};
use super::keys::Key;
use super::keys::Visit;
use crate::catalogue::derived;
use crate::json::lex::Scalar;
use crate::json::{escape, number};
use memchr::memmem;
use queue::record::Body;

/// Longest line that divides parts: RFC 2046 allows 70 characters.
const LONGEST_DIVIDER: usize = 2 + 70;
/// Parts of a form that are written under their own names.
const SMALL: [(&[u8], derived::Key); 6] = [
    (b"language", derived::FORM_LANGUAGE),
    (b"to_language", derived::FORM_TO_LANGUAGE),
    (b"response_format", derived::FORM_RESPONSE_FORMAT),
    (b"size", derived::FORM_SIZE),
    (b"quality", derived::FORM_QUALITY),
    (b"purpose", derived::FORM_PURPOSE),
];
/// Parts that hold what a client says.
const TEXTS: [&str; 3] = ["prompt", "text", "input"];

/// The parts of a form.
#[derive(Default)]
pub struct Form<'a> {
    pub parts: Vec<Part<'a>>,
}

/// One part of a form.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part<'a> {
    name: &'a [u8],
    pub file_name: Option<&'a [u8]>,
    pub media_type: &'a [u8],
    /// Its bytes as far as they were captured from its beginning.
    pub content: &'a [u8],
    /// How many bytes it has; None: its end is not known.
    pub size: Option<u64>,
}

impl<'a> Part<'a> {
    /// Its content if that is a whole value of this length at most.
    fn value(&self) -> Option<&'a str> {
        let is_whole = self.size == Some(self.content.len() as u64) && self.file_name.is_none();
        let text =
            std::str::from_utf8(self.content).ok().filter(|_| is_whole && self.content.len() <= MAX_TEXT_BYTES)?;
        // The form between the quotes of JSON is the same then.
        (!text.contains(|c: char| c.is_control() || matches!(c, '"' | '\\'))).then_some(text)
    }

    /// Whether it holds what a client says.
    pub fn is_text(&self) -> bool {
        self.file_name.is_none() && TEXTS.iter().any(|name| name.as_bytes() == self.name)
    }
}

impl<'a> Form<'a> {
    /// Read the parts of `body`, a request that had this many bytes in all.
    pub fn of(body: &Body<'a>, bytes: Option<u64>) -> Self {
        let mut form = Self::default();
        let Some(end) = memmem::find(body.head, b"\r\n").filter(|end| (3..=LONGEST_DIVIDER).contains(end)) else {
            return form;
        };
        if !body.head.starts_with(b"--") {
            return form;
        }
        let divider = [b"\r\n", &body.head[..end]].concat();
        let finder = memmem::Finder::new(&divider);
        let open = form.read(&body.head[end..], &finder);
        let Some(first) = finder.find(body.tail).filter(|_| !body.complete) else { return form };
        let (before, rest) = body.tail.split_at(first);
        let at = form.parts.len();
        form.read(&rest[divider.len()..], &finder);
        if let Some(open) = open {
            let missing = bytes.and_then(|bytes| bytes.checked_sub((body.head.len() + body.tail.len()) as u64));
            // A form that has several files may have one in between.
            let is_alone = open.name == b"file" && form.file().is_none() && is_binary(before);
            let known = (open.content.len() + before.len()) as u64;
            let size = missing.filter(|_| is_alone).map(|missing| missing + known);
            form.parts.insert(at, Part { size, ..open });
        }
        form
    }

    /// Read parts from the rest of a divider's line on; return the part without an end.
    fn read(&mut self, mut rest: &'a [u8], finder: &memmem::Finder<'_>) -> Option<Part<'a>> {
        while let Some(part) = rest.strip_prefix(b"\r\n") {
            let end = memmem::find(part, b"\r\n\r\n")?;
            let (headers, content) = (&part[..end], &part[end + 4..]);
            let mut read = Part::of_headers(headers);
            let Some(end) = finder.find(content) else {
                read.content = content;
                return Some(read);
            };
            (read.content, read.size) = (&content[..end], Some(end as u64));
            self.parts.push(read);
            rest = &content[end + finder.needle().len()..];
        }
        None
    }

    /// Append what is known of it as members; return the model.
    pub fn push(&self, out: &mut Vec<u8>) -> Option<&'a [u8]> {
        let mut facts = RequestFacts::default();
        for part in &self.parts {
            let Some(value) = part.value() else { continue };
            let key = <Key as super::keys::DocumentKey>::of(part.name);
            let scalar =
                if key == Key::Model { Scalar::Text(value.as_bytes()) } else { Scalar::Word(value.as_bytes()) };
            facts.scalar(&[key], scalar);
        }
        facts.push(out);
        for part in &self.parts {
            let key = SMALL.iter().find(|(name, _)| *name == part.name);
            if let (Some((_, key)), Some(value)) = (key, part.value()) {
                out.extend_from_slice(key.member.as_bytes());
                escape::push_string(out, value.as_bytes());
            }
        }
        if let Some(file) = self.file() {
            let name = file.file_name.unwrap_or_default();
            out.extend_from_slice(derived::FILE_NAME.member.as_bytes());
            escape::push_string(out, &name[..name.len().min(MAX_TEXT_BYTES)]);
            if !file.media_type.is_empty() {
                out.extend_from_slice(derived::FILE_MIME_TYPE.member.as_bytes());
                escape::push_string(out, file.media_type);
            }
            if let Some(size) = file.size {
                out.extend_from_slice(derived::FILE_SIZE.member.as_bytes());
                number::push_integer(out, size);
            }
        }
        facts.model
    }

    /// The first file.
    pub fn file(&self) -> Option<&Part<'a>> {
        self.parts.iter().find(|part| part.file_name.is_some())
    }
}

impl<'a> Part<'a> {
    fn of_headers(headers: &'a [u8]) -> Self {
        let mut part = Self::default();
        for line in headers.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
            let Some(colon) = memchr::memchr(b':', line) else { continue };
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if name.eq_ignore_ascii_case(b"content-type") {
                part.media_type = &value[..value.len().min(MAX_TEXT_BYTES)];
            } else if name.eq_ignore_ascii_case(b"content-disposition") {
                part.read_parameters(value);
            }
        }
        part
    }

    /// Read `form-data; name="…"; filename="…"`.
    fn read_parameters(&mut self, value: &'a [u8]) {
        let mut rest = value;
        while let Some(at) = memchr::memchr(b';', rest) {
            rest = rest[at + 1..].trim_ascii_start();
            let Some(equals) = memchr::memchr(b'=', rest) else { return };
            let (key, behind) = (&rest[..equals], &rest[equals + 1..]);
            let value = if let Some(quoted) = behind.strip_prefix(b"\"") {
                let Some(end) = memchr::memchr(b'"', quoted) else { return };
                rest = &quoted[end + 1..];
                &quoted[..end]
            } else {
                let end = memchr::memchr(b';', behind).unwrap_or(behind.len());
                rest = &behind[end..];
                behind[..end].trim_ascii()
            };
            if key.eq_ignore_ascii_case(b"name") {
                self.name = value;
            } else if key.eq_ignore_ascii_case(b"filename") {
                self.file_name = Some(value);
            }
        }
    }
}

/// Whether the end of a part shows that it is no text. A part that is one, and begins in what is missing, could have
/// such an end otherwise.
fn is_binary(end: &[u8]) -> bool {
    let is_control = |byte: &u8| matches!(byte, 0..=8 | 11 | 12 | 14..=31);
    end.iter().any(is_control) || std::str::from_utf8(escape::without_cut_character(end)).is_err()
}
