//! Writes messages in OpenTelemetry's form: `[{"role":…,"parts":[{"type":"text","content":…}]}]` (gen-ai-input-messages
//! and gen-ai-output-messages of the semantic conventions 1.41).
//!
//! Beyond that: `truncated` if something of a part is missing, which an ellipsis also shows in its text; `length` and
//! `hash` instead of a text that is not written.

use super::UnknownStreams;
use super::media::{self, DataUrl, ELLIPSIS, digest, digest_base64};
use super::parts::{Kind, Message, Part, Piece};
use crate::extract::facts::MAX_TEXT_BYTES;
use crate::json::{escape, number};
use queue::record::BodyText;

/// Roles that carry no information of their own.
const ROLES: [&[u8]; 8] = [b"system", b"developer", b"user", b"assistant", b"tool", b"function", b"unknown", b"model"];

/// Writes messages of one body.
pub struct Writer<'k> {
    pub mode: BodyText,
    pub key: Option<&'k [u8; 32]>,
    pub unknown: UnknownStreams,
    /// The text of the part that is being written.
    pub joined: Vec<u8>,
}

impl Writer<'_> {
    /// Append `,"key":[messages]`; answers carry their finish reasons.
    pub fn messages(&mut self, out: &mut Vec<u8>, key: &str, messages: &[Message<'_>], default_role: &[u8]) {
        out.extend_from_slice(key.as_bytes());
        for (at, message) in messages.iter().enumerate() {
            out.extend_from_slice(if at == 0 { br#"[{"role":"# } else { br#",{"role":"# });
            self.role(out, message.role.unwrap_or(if message.is_doubtful { b"unknown" } else { default_role }));
            out.extend_from_slice(br#","parts":"#);
            self.parts(out, &message.parts);
            if let Some(reason) = message.finish_reason {
                out.extend_from_slice(br#","finish_reason":"#);
                push_short(out, reason);
            }
            out.push(b'}');
        }
        out.push(b']');
    }

    /// Append `[parts]`.
    pub fn parts(&mut self, out: &mut Vec<u8>, parts: &[Part<'_>]) {
        let mut before = b'[';
        for part in parts {
            out.push(before);
            before = b',';
            self.part(out, part);
        }
        out.push(b']');
    }

    fn role(&self, out: &mut Vec<u8>, role: &[u8]) {
        let is_hidden = self.mode == BodyText::Hashed && !ROLES.contains(&role);
        push_short(out, if is_hidden { b"other" } else { role });
    }

    fn part(&mut self, out: &mut Vec<u8>, part: &Part<'_>) {
        self.join(&part.pieces);
        let is_cut = part.is_cut || part.pieces.iter().any(|piece| piece.lacks_start || piece.lacks_end);
        match part.kind {
            Kind::Numbers => self.numbers(out, part),
            Kind::Media => self.media(out, part, is_cut),
            Kind::File => self.file(out, part, is_cut),
            Kind::Text | Kind::Json if self.is_base64(part) => self.bytes(out, part, b"", is_cut),
            kind => {
                let (name, member) = match kind {
                    Kind::Reasoning => ("reasoning", "content"),
                    Kind::Refusal => ("refusal", "content"),
                    Kind::Json => ("json", "content"),
                    Kind::Events => ("events", "content"),
                    Kind::ToolCall => ("tool_call", "arguments"),
                    Kind::ToolResponse => ("tool_call_response", "response"),
                    _ => ("text", "content"),
                };
                push_type(out, name);
                if matches!(kind, Kind::ToolCall | Kind::ToolResponse) {
                    self.short(out, "id", part.id);
                    self.short(out, "name", part.name);
                }
                self.text(out, member, is_cut);
            }
        }
        if is_cut {
            out.extend_from_slice(br#","truncated":true"#);
        }
        out.push(b'}');
    }

    fn is_base64(&self, part: &Part<'_>) -> bool {
        let is_rest = part.pieces.first().is_some_and(|piece| piece.lacks_start);
        let text = self.joined.strip_prefix(ELLIPSIS).unwrap_or(&self.joined);
        media::is_base64(text.strip_suffix(ELLIPSIS).unwrap_or(text), is_rest)
    }

    /// The joined text as a member, or its digest.
    fn text(&mut self, out: &mut Vec<u8>, member: &str, is_cut: bool) {
        if self.mode == BodyText::Hashed {
            // A part of a text would have another hash than the text, so it has none.
            if !is_cut && self.key.is_some() {
                media::push_digest(out, &digest(&self.joined, self.key), true);
            }
            return;
        }
        media::replace_data_urls(&mut self.joined, self.key);
        if is_cut {
            media::replace_rests(&mut self.joined);
        }
        out.extend_from_slice(br#",""#);
        out.extend_from_slice(member.as_bytes());
        out.extend_from_slice(br#"":"#);
        escape::push_string(out, &self.joined);
    }

    fn short(&self, out: &mut Vec<u8>, member: &str, raw: Option<&[u8]>) {
        let Some(raw) = raw.filter(|_| self.mode == BodyText::Written) else { return };
        out.extend_from_slice(br#",""#);
        out.extend_from_slice(member.as_bytes());
        out.extend_from_slice(br#"":"#);
        push_short(out, raw);
    }

    fn numbers(&self, out: &mut Vec<u8>, part: &Part<'_>) {
        push_type(out, if part.type_name == Some(b"embedding") { "embedding" } else { "tokens" });
        let Some(numbers) = part.numbers.as_ref().filter(|_| !part.is_cut) else { return };
        out.extend_from_slice(br#","length":"#);
        number::push_integer(out, numbers.count);
        media::push_hash_member(out, numbers.hasher.finalize().as_bytes(), self.key.is_some());
    }

    fn media(&mut self, out: &mut Vec<u8>, part: &Part<'_>, is_cut: bool) {
        if self.joined.is_empty() && part.id.is_some() {
            push_type(out, "file");
            push_modality(out, media::modality(part.type_name, b""));
            return self.short(out, "file_id", part.id);
        }
        if part.type_name == Some(b"embedding") {
            push_type(out, "embedding");
            if !is_cut {
                media::push_digest(out, &digest_base64(&self.joined, self.key), self.key.is_some());
            }
            return;
        }
        let is_link = memchr::memmem::find(&self.joined[..self.joined.len().min(16)], b"://").is_some();
        if is_link {
            push_type(out, "uri");
            push_modality(out, media::modality(part.type_name, b""));
            return self.text(out, "uri", is_cut);
        }
        let format = part.format.unwrap_or_default();
        self.bytes(out, part, format, is_cut);
    }

    fn file(&self, out: &mut Vec<u8>, part: &Part<'_>, is_cut: bool) {
        let media_type = part.type_name.unwrap_or_default();
        push_type(out, "blob");
        push_modality(out, media::modality(None, media_type));
        media::push_media_type(out, media_type);
        if let Some(piece) = part.pieces.first().filter(|_| !is_cut) {
            media::push_digest(out, &digest(piece.raw, self.key), self.key.is_some());
        }
    }

    /// Bytes as a data URL or as base64, which are never written.
    fn bytes(&self, out: &mut Vec<u8>, part: &Part<'_>, format: &[u8], is_cut: bool) {
        let url = DataUrl::of(&self.joined);
        let media_type = url.as_ref().map_or(&b""[..], |url| url.media_type);
        let modality = media::modality(part.type_name, media_type);
        push_type(out, "blob");
        push_modality(out, modality);
        if media_type.is_empty() && !format.is_empty() {
            let mut guess = [modality.as_bytes(), b"/"].concat();
            escape::unescape_onto(&mut guess, &format[..format.len().min(32)]);
            media::push_media_type(out, &guess);
        } else {
            media::push_media_type(out, media_type);
        }
        if !is_cut {
            let found = match &url {
                Some(url) if !url.is_base64 => digest(url.payload, self.key),
                Some(url) => digest_base64(url.payload, self.key),
                None => digest_base64(&self.joined, self.key),
            };
            media::push_digest(out, &found, self.key.is_some());
        }
    }

    /// Join the pieces of a part, with an ellipsis for each missing piece.
    fn join(&mut self, pieces: &[Piece<'_>]) {
        self.joined.clear();
        for piece in pieces {
            if piece.lacks_start && !self.joined.ends_with(ELLIPSIS) {
                self.joined.extend_from_slice(ELLIPSIS);
            }
            push_piece(&mut self.joined, piece);
            if piece.lacks_end {
                self.joined.extend_from_slice(ELLIPSIS);
            }
        }
    }
}

fn push_piece(out: &mut Vec<u8>, piece: &Piece<'_>) {
    let mut raw = piece.raw;
    if piece.lacks_start {
        raw = if piece.is_plain { escape::without_cut_character(raw) } else { escape::without_cut_start(raw) };
    }
    if piece.is_plain {
        // A cut character becomes U+FFFD; nothing else is lost.
        let kept = if piece.lacks_end { escape::without_cut_last_character(raw) } else { raw };
        return out.extend_from_slice(kept);
    }
    escape::unescape_onto(out, if piece.lacks_end { escape::without_cut_end(raw) } else { raw });
}

fn push_type(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(name.as_bytes());
    out.push(b'"');
}

fn push_modality(out: &mut Vec<u8>, modality: &str) {
    out.extend_from_slice(br#","modality":""#);
    out.extend_from_slice(modality.as_bytes());
    out.push(b'"');
}

/// A role, a name or an id, cut at a length that none has.
fn push_short(out: &mut Vec<u8>, raw: &[u8]) {
    let mut plain = [0; MAX_TEXT_BYTES];
    let (len, _) = escape::unescape(raw, &mut plain);
    escape::push_string(out, &plain[..len]);
}
