//! Texts of a body as messages, if its record allows them to be written (P11); `reader` describes what is read and
//! `write` what is in the line.
//!
//! Invariants: no input makes it panic; time is linear in the capture, memory in its number of texts; the output is
//! valid JSON, and all of it was in the body; bytes of media are never written.

use super::form::Form;
use super::keys::scan;
use super::{documents, last_element, lex, without_mark};
use crate::catalogue::derived;
use names::LEVELS;
use parts::{Kind, Message, Part, Piece};
use queue::record::{Body, BodyKind, BodyText};
use reader::{MessageReader, Side};
use request::capture::MediaFacts;
use write::Writer;

pub use media::{digest, push_hash};

mod media;
mod names;
mod parts;
mod reader;
mod write;

type Resume = lex::Resume<LEVELS>;

/// What is written of the texts of a stream in a format that is not known: it may divide them anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownStreams {
    /// The stream as it is.
    #[default]
    Written,
    /// Its keyed hash, or nothing: patterns could not find what it divides.
    Withheld,
}

/// Append the texts of `body` to `out` as members, in the form that its record requests.
#[cold]
pub fn push_texts(out: &mut Vec<u8>, body: &Body<'_>, hash_key: Option<&[u8; 32]>, unknown: UnknownStreams) {
    let mut writer = Writer { mode: body.text, key: hash_key, joined: Vec::new(), unknown };
    let body = &super::as_stream(*body);
    let is_request = body.kind.is_request();
    match body.kind {
        BodyKind::RequestMedia | BodyKind::ResponseMedia => push_media(out, body, is_request),
        BodyKind::RequestText | BodyKind::ResponseText => {
            push_messages(out, &mut writer, &[plain(body, Kind::Text)], is_request);
        }
        BodyKind::Request => push_read(out, &mut writer, body, read_document(body, Side::Request, hash_key)),
        BodyKind::Response => push_read(out, &mut writer, body, read_document(body, Side::Response, hash_key)),
        BodyKind::Stream => push_read(out, &mut writer, body, read_stream(body, hash_key)),
        BodyKind::RequestForm => push_form(out, &mut writer, body),
        BodyKind::PackedStream | BodyKind::RequestEncoded | BodyKind::ResponseEncoded => {}
    }
    if !body.complete {
        out.extend_from_slice(if is_request { br#","input_truncated":true"# } else { br#","output_truncated":true"# });
    }
}

fn push_read(out: &mut Vec<u8>, writer: &mut Writer<'_>, body: &Body<'_>, mut reader: MessageReader<'_>) {
    let is_request = body.kind.is_request();
    if !is_request {
        reader.messages.sort_by_key(|message| message.index);
    }
    if !reader.system.is_empty() {
        out.extend_from_slice(br#","gen_ai.system_instructions":"#);
        writer.parts(out, &reader.system);
    }
    if !reader.messages.is_empty() {
        push_messages(out, writer, &reader.messages, is_request);
    } else if !reader.is_known {
        let kind = if reader.side == Side::Stream { Kind::Events } else { Kind::Json };
        let is_withheld = kind == Kind::Events && writer.unknown == UnknownStreams::Withheld;
        if is_withheld {
            writer.mode = BodyText::Hashed;
        }
        push_messages(out, writer, &[plain(body, kind)], is_request);
        if is_withheld {
            derived::OUTPUT_WITHHELD.push(out, r#""unknown format""#);
        }
    }
}

fn push_messages(out: &mut Vec<u8>, writer: &mut Writer<'_>, messages: &[Message<'_>], is_request: bool) {
    if is_request {
        writer.messages(out, r#","gen_ai.input.messages":"#, messages, b"user");
    } else {
        writer.messages(out, r#","gen_ai.output.messages":"#, messages, b"assistant");
    }
}

/// A body as one text.
fn plain<'a>(body: &Body<'a>, kind: Kind) -> Message<'a> {
    let piece = |raw, lacks_start, lacks_end| Piece { raw, is_plain: true, lacks_start, lacks_end };
    let mut part = Part::of(kind, piece(without_mark(body.head), false, !body.complete));
    if !body.complete {
        part.pieces.push(piece(body.tail, true, false));
    }
    Message { parts: vec![part], ..Message::default() }
}

fn push_media(out: &mut Vec<u8>, body: &Body<'_>, is_request: bool) {
    let Some(facts) = MediaFacts::from_bytes(body.head) else { return };
    out.extend_from_slice(if is_request {
        br#","gen_ai.input.messages":[{"role":"user","parts":[{"type":"blob","modality":""#
    } else {
        br#","gen_ai.output.messages":[{"role":"assistant","parts":[{"type":"blob","modality":""#
    });
    out.extend_from_slice(media::modality(None, facts.media_type).as_bytes());
    out.push(b'"');
    media::push_media_type(out, facts.media_type);
    let digest = media::Digest { length: facts.bytes, hash: facts.hash };
    media::push_digest(out, &digest, facts.is_keyed);
    out.extend_from_slice(b"}]}]");
}

/// What a form says as text, and its file without its bytes.
fn push_form(out: &mut Vec<u8>, writer: &mut Writer<'_>, body: &Body<'_>) {
    let form = Form::of(body, None);
    let whole = |raw, is_cut| Piece { raw, is_plain: true, lacks_start: false, lacks_end: is_cut };
    let texts = form.parts.iter().filter(|part| part.is_text());
    let mut parts: Vec<Part<'_>> =
        texts.map(|part| Part::of(Kind::Text, whole(part.content, part.size.is_none()))).collect();
    if let Some(file) = form.file() {
        parts.push(Part {
            is_cut: file.size.is_none(),
            type_name: Some(file.media_type),
            ..Part::of(Kind::File, whole(file.content, false))
        });
    }
    if !parts.is_empty() {
        push_messages(out, writer, &[Message { parts, ..Message::default() }], true);
    }
}

fn read_document<'a>(body: &Body<'a>, side: Side, hash_key: Option<&[u8; 32]>) -> MessageReader<'a> {
    let head = without_mark(body.head);
    // A stream can be one array.
    let is_array = side == Side::Response && head.trim_ascii_start().starts_with(b"[");
    let mut reader = MessageReader::new(if is_array { Side::Stream } else { side }, hash_key.copied());
    scan(head, Resume::default(), &mut reader);
    reader.end_document();
    if !body.complete
        && let Some(point) = lex::resume_point::<LEVELS>(last_element(body))
    {
        if is_array {
            reader.gap();
        }
        if let Some(lost) = lost_text(body.tail, &point) {
            reader.begin_tail(lost, &point);
        }
        scan(body.tail, point, &mut reader);
        reader.end_document();
    }
    reader
}

/// The end of the string that a tail begins with, if it is a value.
fn lost_text<'a>(tail: &'a [u8], point: &Resume) -> Option<&'a [u8]> {
    let end = point.at.checked_sub(1).filter(|end| point.depth > 0 && tail[*end] == b'"')?;
    let next = tail[point.at..].iter().find(|byte| !byte.is_ascii_whitespace());
    (next != Some(&b':')).then_some(&tail[..end])
}

fn read_stream<'a>(body: &Body<'a>, hash_key: Option<&[u8; 32]>) -> MessageReader<'a> {
    let mut reader = MessageReader::new(Side::Stream, hash_key.copied());
    read_events(without_mark(body.head), &mut reader);
    if !body.complete {
        reader.gap();
        // The first line may have lost its beginning.
        let first_end = body.tail.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(body.tail.len());
        read_events(&body.tail[first_end..], &mut reader);
    }
    reader
}

fn read_events<'a>(events: &'a [u8], reader: &mut MessageReader<'a>) {
    for document in documents(events) {
        scan(document, Resume::default(), reader);
        reader.end_document();
    }
}
