//! What is captured of each body: for its facts by default, for its text only if that is configured (P11).

use super::packed::PackedStream;
use super::{Capture, Captured, Encoding, Media};
use queue::record::{BodyKind, BodyText};

/// The content of a body, by its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    Json,
    /// Events of a stream: server-sent ones, or lines of JSON.
    Stream,
    /// Any other text, forms without files included.
    Text,
    /// A form with files.
    Form,
    /// No text, or none that can be read: images, archives; with its type.
    Media(&'a [u8]),
    /// The same, compressed: only the listener can read it.
    Encoded(Encoding, Plain),
}

/// What is within a compressed body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    Json,
    Stream,
    Text,
}

/// Types that hold text, although they do not begin with `text/`.
const TEXTS: [&[u8]; 2] = [b"application/x-www-form-urlencoded", b"application/xml"];
/// Types of streams.
const STREAMS: [&[u8]; 5] = [
    b"text/event-stream", b"application/x-ndjson", b"application/ndjson", b"application/jsonl",
    b"application/jsonlines",
];

impl<'a> Content<'a> {
    /// The kind of content that a body of this type holds.
    #[inline]
    #[must_use]
    pub fn of_type(content_type: &'a [u8]) -> Self {
        if content_type == b"application/json" {
            return Self::Json;
        }
        let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let begins = |with: &[u8]| kind.len() >= with.len() && kind[..with.len()].eq_ignore_ascii_case(with);
        if kind.eq_ignore_ascii_case(b"application/json")
            || (kind.len() > 5 && kind[kind.len() - 5..].eq_ignore_ascii_case(b"+json"))
        {
            Self::Json
        } else if STREAMS.iter().any(|stream| kind.eq_ignore_ascii_case(stream)) {
            Self::Stream
        } else if kind.eq_ignore_ascii_case(b"multipart/form-data") {
            Self::Form
        } else if begins(b"text/") || TEXTS.iter().any(|text| kind.eq_ignore_ascii_case(text)) {
            Self::Text
        } else {
            Self::Media(kind)
        }
    }

    /// The same, of a body with this `Content-Encoding`.
    #[must_use]
    pub fn encoded(self, header: &[u8]) -> Self {
        let Some(encoding) = Encoding::of_header(header) else { return self };
        match self {
            Self::Json => Self::Encoded(encoding, Plain::Json),
            Self::Stream => Self::Encoded(encoding, Plain::Stream),
            Self::Text => Self::Encoded(encoding, Plain::Text),
            Self::Form => Self::Media(b"multipart/form-data"),
            other => other,
        }
    }

    /// Whether the body of a request of this kind says what it asks for.
    #[inline]
    #[must_use]
    pub const fn has_facts(self) -> bool {
        matches!(self, Self::Json | Self::Form | Self::Encoded(_, Plain::Json))
    }

    /// Whether it is a text as it passes.
    #[must_use]
    pub const fn is_plain(self) -> bool {
        matches!(self, Self::Json | Self::Stream | Self::Text)
    }
}

/// The kinds of captured bodies of one direction.
struct Kinds {
    json: BodyKind,
    stream: BodyKind,
    text: BodyKind,
    form: Option<BodyKind>,
    media: BodyKind,
}

const REQUEST: Kinds = Kinds {
    json: BodyKind::Request,
    stream: BodyKind::RequestText,
    text: BodyKind::RequestText,
    form: Some(BodyKind::RequestForm),
    media: BodyKind::RequestMedia,
};
const RESPONSE: Kinds = Kinds {
    json: BodyKind::Response,
    stream: BodyKind::Stream,
    text: BodyKind::ResponseText,
    form: None,
    media: BodyKind::ResponseMedia,
};

/// What happens to the text of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextLimit {
    pub text: BodyText,
    /// Most bytes of the body that are copied: half of them its first, half its last.
    pub bytes: usize,
}

/// What happens to the text of requests and responses.
#[derive(Clone, Debug, Default)]
pub struct TextCapture {
    pub input: TextLimit,
    pub output: TextLimit,
    /// Most bytes of a request's body that are kept from its beginning, to be written as they are; 0: none.
    pub body_bytes: usize,
    /// Key of the hashes that stand for bytes.
    pub hash_key: Option<[u8; 32]>,
}

impl TextCapture {
    /// Whether anything of a body's text may be written, or the body itself.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.input.text != BodyText::Withheld || self.output.text != BodyText::Withheld || self.body_bytes > 0
    }

    /// Begins to capture a request's body; `facts` (first and last bytes) are kept if it is JSON. None: nothing of it
    /// is wanted.
    #[must_use]
    pub fn request(&self, content: Content<'_>, is_private: bool, facts: (usize, usize)) -> Option<Captured> {
        // Lines of JSON that are sent are no answer in pieces.
        let content = if content == Content::Stream { Content::Text } else { content };
        if self.body_bytes > 0 && !is_private {
            return self.whole_request(content, facts);
        }
        self.begin(content, if is_private { TextLimit::default() } else { self.input }, &REQUEST, facts)
    }

    /// As [`Self::request`], with the body from its beginning.
    #[cold]
    #[inline(never)]
    fn whole_request(&self, content: Content<'_>, facts: (usize, usize)) -> Option<Captured> {
        if content == Content::Text {
            let is_text_wanted = self.input.text != BodyText::Withheld;
            let (head, tail) =
                if is_text_wanted { (self.input.bytes.div_ceil(2), self.input.bytes / 2) } else { (0, 0) };
            let capture = Capture::new(REQUEST.text, head.max(self.body_bytes), tail).with_text(self.input.text);
            return Some(Captured::Ends(capture));
        }
        self.begin(content, self.input, &REQUEST, (facts.0.max(self.body_bytes), facts.1))
    }

    /// As [`Self::request`], for the response.
    #[must_use]
    pub fn response(&self, content: Content<'_>, is_private: bool, facts: (usize, usize)) -> Option<Captured> {
        self.begin(content, if is_private { TextLimit::default() } else { self.output }, &RESPONSE, facts)
    }

    fn begin(
        &self,
        content: Content<'_>,
        limit: TextLimit,
        kinds: &Kinds,
        (head, tail): (usize, usize),
    ) -> Option<Captured> {
        let is_text_wanted = limit.text != BodyText::Withheld;
        let (text_head, text_tail) = if is_text_wanted { (limit.bytes.div_ceil(2), limit.bytes / 2) } else { (0, 0) };
        let ends = |kind, head: usize, tail: usize| {
            let (head, tail) = (head.max(text_head), tail.max(text_tail));
            let capture = Capture::new(kind, head, tail).with_text(limit.text);
            (head + tail > 0).then_some(Captured::Ends(capture))
        };
        match content {
            Content::Json => ends(kinds.json, head, tail),
            // Every event of a stream repeats id and model, so only a whole JSON answer needs its head for its facts.
            Content::Stream if is_text_wanted => {
                Some(Captured::Stream(PackedStream::new(limit.text, text_head, tail.max(text_tail))))
            }
            Content::Stream => ends(kinds.stream, 0, tail),
            Content::Text if is_text_wanted => ends(kinds.text, 0, 0),
            Content::Form if kinds.form.is_some() => ends(kinds.form?, head, tail),
            Content::Encoded(encoding, plain) if is_text_wanted || plain != Plain::Text => {
                let within = match plain {
                    Plain::Json => kinds.json,
                    Plain::Stream => kinds.stream,
                    Plain::Text => kinds.text,
                };
                // The end cannot be read without what is before it.
                let room = (head + tail).max(text_head + text_tail);
                let room = if encoding == Encoding::Other { room.min(1) } else { room };
                let capture = Capture::encoded(within, encoding, room).with_text(limit.text);
                (room > 0).then_some(Captured::Ends(capture))
            }
            Content::Media(media_type) if is_text_wanted => self.media(kinds, limit, media_type),
            Content::Form if is_text_wanted => self.media(kinds, limit, b"multipart/form-data"),
            Content::Text | Content::Form | Content::Media(_) | Content::Encoded(..) => None,
        }
    }

    fn media(&self, kinds: &Kinds, limit: TextLimit, media_type: &[u8]) -> Option<Captured> {
        let media = Media::new(kinds.media, limit.text, media_type, self.hash_key.as_ref());
        Some(Captured::Media(Box::new(media)))
    }
}
