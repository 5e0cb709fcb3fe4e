//! What is captured of each body: for its facts by default, for its text only if that is configured (P11).

use super::packed::PackedStream;
use super::{Capture, Captured, Media};
use queue::record::{BodyKind, BodyText};

/// The content of a body, by its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    Json,
    /// Server-sent events.
    Stream,
    /// Any other text, forms included.
    Text,
    /// No text, or none that can be read: images, archives, compressed bodies; with its type.
    Media(&'a [u8]),
}

/// Types that hold text, although they do not begin with `text/`.
const TEXTS: [&[u8]; 4] =
    [b"application/x-www-form-urlencoded", b"application/x-ndjson", b"application/jsonl", b"application/xml"];

impl<'a> Content<'a> {
    /// The kind of content that a body of this type holds.
    #[must_use]
    pub fn of_type(content_type: &'a [u8]) -> Self {
        let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let begins = |with: &[u8]| kind.len() >= with.len() && kind[..with.len()].eq_ignore_ascii_case(with);
        if kind.eq_ignore_ascii_case(b"application/json")
            || (kind.len() > 5 && kind[kind.len() - 5..].eq_ignore_ascii_case(b"+json"))
        {
            Self::Json
        } else if kind.eq_ignore_ascii_case(b"text/event-stream") {
            Self::Stream
        } else if begins(b"text/") || TEXTS.iter().any(|text| kind.eq_ignore_ascii_case(text)) {
            Self::Text
        } else {
            Self::Media(kind)
        }
    }
}

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
        let kinds = [BodyKind::Request, BodyKind::Request, BodyKind::RequestText, BodyKind::RequestMedia];
        if self.body_bytes > 0 && !is_private {
            return self.whole_request(content, kinds, facts);
        }
        self.begin(content, if is_private { TextLimit::default() } else { self.input }, kinds, facts)
    }

    /// As [`Self::request`], with the body from its beginning.
    #[cold]
    #[inline(never)]
    fn whole_request(&self, content: Content<'_>, kinds: [BodyKind; 4], facts: (usize, usize)) -> Option<Captured> {
        if content == Content::Text {
            let is_text_wanted = self.input.text != BodyText::Withheld;
            let (head, tail) =
                if is_text_wanted { (self.input.bytes.div_ceil(2), self.input.bytes / 2) } else { (0, 0) };
            let capture = Capture::new(kinds[2], head.max(self.body_bytes), tail).with_text(self.input.text);
            return Some(Captured::Ends(capture));
        }
        self.begin(content, self.input, kinds, (facts.0.max(self.body_bytes), facts.1))
    }

    /// As [`Self::request`], for the response.
    #[must_use]
    pub fn response(&self, content: Content<'_>, is_private: bool, facts: (usize, usize)) -> Option<Captured> {
        let kinds = [BodyKind::Response, BodyKind::Stream, BodyKind::ResponseText, BodyKind::ResponseMedia];
        self.begin(content, if is_private { TextLimit::default() } else { self.output }, kinds, facts)
    }

    fn begin(
        &self,
        content: Content<'_>,
        limit: TextLimit,
        kinds: [BodyKind; 4],
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
            Content::Json => ends(kinds[0], head, tail),
            // Every event of a stream repeats id and model, so only a whole JSON answer needs its head for its facts.
            Content::Stream if is_text_wanted => {
                Some(Captured::Stream(PackedStream::new(limit.text, text_head, tail.max(text_tail))))
            }
            Content::Stream => ends(kinds[1], 0, tail),
            Content::Text if is_text_wanted => ends(kinds[2], 0, 0),
            Content::Media(media_type) if is_text_wanted => {
                let media = Media::new(kinds[3], limit.text, media_type, self.hash_key.as_ref());
                Some(Captured::Media(Box::new(media)))
            }
            Content::Text | Content::Media(_) => None,
        }
    }
}
