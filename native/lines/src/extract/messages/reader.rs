//! Collects messages from the scalars of a body, whole or cut, and from the events of a stream.
//!
//! Chat Completions, Completions, Responses, Embeddings and Images of OpenAI's API, and similar APIs. Keys may come in
//! any order. A path without its outer keys is followed if the inner members show what it is: a message has a role or a
//! type, a choice its index or finish reason.

use super::names::{LEVELS, Name};
use super::parts::{Kind, Message, Numbers, Part, Piece};
use crate::extract::scan::Visit;
use crate::json::lex::{Resume, Scalar};

/// A longer text is neither a role nor a type, an id or a name.
const LONGEST_NAME: usize = 64;
/// Most messages of one body; further ones are skipped.
const MAX_MESSAGES: usize = 4096;

/// The side of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Request,
    Response,
    Stream,
}

/// The messages that were read so far.
pub struct MessageReader<'a> {
    side: Side,
    hash_key: Option<[u8; 32]>,
    pub messages: Vec<Message<'a>>,
    pub system: Vec<Part<'a>>,
    /// A member was found that only bodies with texts have, though there may be no text in it.
    pub is_known: bool,
    message: Message<'a>,
    part: Part<'a>,
    event: Event<'a>,
    /// A text at the top level was cut: the beginning of the tail continues it.
    is_top_cut: bool,
}

/// The content of an event of the Responses API.
#[derive(Default)]
struct Event<'a> {
    kind: Option<&'a [u8]>,
    delta: Option<Piece<'a>>,
    output_index: Option<u64>,
    item_kind: Option<&'a [u8]>,
    id: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
}

#[derive(Clone, Copy)]
enum Found<'a> {
    Text(Piece<'a>),
    Word(&'a [u8]),
}

impl<'a> Found<'a> {
    fn piece(self) -> Option<Piece<'a>> {
        match self {
            Self::Text(piece) => Some(piece),
            Self::Word(_) => None,
        }
    }

    /// A text that is certainly whole.
    fn whole(self) -> Option<&'a [u8]> {
        self.piece().filter(|piece| !piece.lacks_start && !piece.lacks_end).map(|piece| piece.raw)
    }

    fn number(self) -> Option<u64> {
        match self {
            Self::Word(word) => std::str::from_utf8(word).ok()?.parse().ok(),
            Self::Text(_) => None,
        }
    }

    /// A digit or sign: not null, true or false.
    fn is_number(self) -> bool {
        matches!(self, Self::Word([b'-' | b'0'..=b'9', ..]))
    }
}

impl<'a> MessageReader<'a> {
    /// Begin without messages.
    pub fn new(side: Side, hash_key: Option<[u8; 32]>) -> Self {
        Self {
            side,
            hash_key,
            messages: Vec::new(),
            system: Vec::new(),
            is_known: false,
            message: Message::default(),
            part: Part::default(),
            event: Event::default(),
            is_top_cut: false,
        }
    }

    /// Take over the open texts of the head of a document, which ends here.
    pub fn end_document(&mut self) {
        if self.part.numbers.is_some() {
            self.part.is_cut = true;
        }
        self.end_message();
        self.end_event();
    }

    /// The part in between is missing: texts continue after a gap.
    pub fn gap(&mut self) {
        self.messages.iter_mut().for_each(Message::cut);
    }

    /// Begin at the end of a document, whose first bytes are the end of a string in these containers.
    pub fn begin_tail(&mut self, lost: &'a [u8], point: &Resume<LEVELS>) {
        // Shorter strings may be roles, types or names.
        let Some(objects) = point.objects.get(..point.depth).filter(|_| lost.len() > LONGEST_NAME) else { return };
        let piece = Piece { raw: lost, is_plain: false, lacks_start: true, lacks_end: false };
        let text = || Part::of(Kind::Text, piece);
        match (self.side, objects) {
            (Side::Request, [true]) if self.is_top_cut => {
                if let Some(message) = self.messages.last_mut() {
                    message.join(text());
                }
            }
            (Side::Request, [true, false, true]) => self.message.parts.push(text()),
            (Side::Response, [true, false, true] | [true, false, true, true]) => {
                // If only one choice is known, it is most likely the one that continues.
                self.message.index = if let [only] = &self.messages[..] { only.index } else { None };
                self.message.parts.push(text());
            }
            (Side::Request | Side::Response, [true, false, true, false, true]) => self.part = text(),
            _ => {}
        }
    }

    /// The rest of a path, from its message on.
    fn in_message<'p>(&self, path: &'p [Name]) -> Option<&'p [Name]> {
        use Name::{Choices, Data, Item, Lost, Message, Messages, Output, Prompt};
        match (self.side, path) {
            (Side::Request, [Messages | Prompt | Lost, Item, rest @ ..]) => Some(rest),
            (Side::Request, _) => None,
            (_, [Choices | Lost, Item, Message, rest @ ..]) if !rest.is_empty() => Some(rest),
            (_, [Lost, Item, Lost, rest @ ..]) if !matches!(rest, [] | [Item, ..]) => Some(rest),
            (_, [Choices | Output | Data | Lost, Item, rest @ ..]) => Some(rest),
            _ => None,
        }
    }

    fn found(&mut self, path: &[Name], found: Found<'a>) {
        if let Some(rest) = self.in_message(path) {
            self.is_known |= path[0] != Name::Lost;
            self.found_in_message(rest, found, path[0] == Name::Lost);
        } else if self.side == Side::Stream {
            self.found_in_event(path, found);
        } else {
            self.found_at_top(path, found);
        }
    }

    fn found_at_top(&mut self, path: &[Name], found: Found<'a>) {
        let Some(piece) = found.piece().filter(|_| self.side == Side::Request) else { return };
        match path {
            [Name::Messages | Name::Prompt] => {
                self.is_known = true;
                self.is_top_cut = piece.lacks_end;
                self.push(Message { parts: vec![Part::of(Kind::Text, piece)], ..Message::default() });
            }
            [Name::System] | [Name::System, Name::Item, Name::Text] => {
                self.system.push(Part::of(Kind::Text, piece));
            }
            _ => {}
        }
    }

    fn found_in_event(&mut self, path: &[Name], found: Found<'a>) {
        let event = &mut self.event;
        match path {
            [Name::Type] => event.kind = found.whole(),
            [Name::Message] => event.delta = found.piece(),
            [Name::OutputIndex] => event.output_index = found.number(),
            [Name::EventItem, Name::Type] => event.item_kind = found.whole(),
            [Name::EventItem, Name::Called] => event.name = found.whole(),
            [Name::EventItem, Name::CallId] => event.id = found.whole(),
            _ => {}
        }
    }

    fn found_in_message(&mut self, rest: &[Name], found: Found<'a>, is_doubtful: bool) {
        use Name::{
            Arguments, Bytes, CallId, Content, Data, Embedding, FinishReason, Function, Id, Index, Item, Lost, Media,
            Output, Reasoning, Refusal, Role, Summary, Text, ToolCalls, Type, Url,
        };
        let message = &mut self.message;
        match rest {
            [] if !is_doubtful && found.piece().is_some() => {
                self.add(Kind::Text, found);
                self.end_message();
            }
            [] | [Item] | [Embedding, Item] if !is_doubtful || rest.len() == 2 => {
                self.add_number(found, rest.first() == Some(&Embedding));
            }
            [Role] => message.role = found.whole(),
            [Type] => message.own.type_name = found.whole(),
            [Index] => message.index = found.number(),
            [FinishReason] => message.finish_reason = found.whole(),
            [Id] => message.own.id = message.own.id.or(found.whole()),
            [CallId] => message.own.id = found.whole(),
            [Name::Called] | [Function, Name::Called] => message.own.name = found.whole(),
            [Arguments] | [Function, Arguments] => message.own.hold(Kind::ToolCall, found.piece()),
            [Output] => message.own.hold(Kind::ToolResponse, found.piece()),
            [Content | Text] | [Content, Item] | [Media, Text] => self.add(Kind::Text, found),
            [Refusal] => self.add(Kind::Refusal, found),
            [Reasoning] => self.add(Kind::Reasoning, found),
            [Embedding | Bytes | Data | Url] | [Media, Data | Bytes] => {
                let kind_of_own = if rest == [Embedding] { Some(&b"embedding"[..]) } else { message.own.type_name };
                self.add_media(found, kind_of_own);
            }
            [ToolCalls, Item, field @ ..] => self.found_in_call(field, found),
            [Content | Summary | Output | Lost, Item, field @ ..] => self.found_in_part(field, found),
            _ => {}
        }
    }

    fn found_in_call(&mut self, field: &[Name], found: Found<'a>) {
        match field {
            [Name::Id] => self.part.id = found.whole(),
            [Name::Index] => self.part.index = found.number(),
            [Name::Function, Name::Called] => self.part.name = found.whole(),
            [Name::Function, Name::Arguments] => self.part.hold(Kind::ToolCall, found.piece()),
            _ => {}
        }
    }

    fn found_in_part(&mut self, field: &[Name], found: Found<'a>) {
        use Name::{Bytes, Content, Data, FileId, Format, Media, Reasoning, Refusal, Text, Type, Url};
        match field {
            [Type] => self.part.type_name = found.whole(),
            [Text | Content] => self.part.hold(Kind::Text, found.piece()),
            [Refusal] => self.part.hold(Kind::Refusal, found.piece()),
            [Reasoning] => self.part.hold(Kind::Reasoning, found.piece()),
            [Media | Bytes | Data | Url] | [Media, Url | Data | Bytes] => {
                self.part.hold(Kind::Media, found.piece());
            }
            [Media, Format] => self.part.format = found.whole(),
            [FileId] | [Media, FileId] => {
                (self.part.kind, self.part.id) = (Kind::Media, found.whole());
            }
            _ => {}
        }
    }

    fn add(&mut self, kind: Kind, found: Found<'a>) {
        // An empty delta means nothing, but an empty message is a message.
        if let Some(piece) = found.piece().filter(|piece| self.side != Side::Stream || !piece.raw.is_empty()) {
            self.message.parts.push(Part::of(kind, piece));
        }
    }

    fn add_media(&mut self, found: Found<'a>, type_name: Option<&'a [u8]>) {
        if let Some(piece) = found.piece() {
            self.message.parts.push(Part { type_name, ..Part::of(Kind::Media, piece) });
        }
    }

    fn add_number(&mut self, found: Found<'a>, is_embedding: bool) {
        if let (Found::Word(word), true) = (found, found.is_number()) {
            self.part.kind = Kind::Numbers;
            self.part.type_name = Some(if is_embedding { b"embedding" } else { b"tokens" });
            let key = self.hash_key.as_ref();
            self.part.numbers.get_or_insert_with(|| Box::new(Numbers::keyed(key))).push(word);
        }
    }

    fn end_part(&mut self) {
        let part = std::mem::take(&mut self.part);
        if !part.is_empty() {
            self.message.parts.push(part);
        }
    }

    fn end_message(&mut self) {
        self.end_part();
        let mut message = std::mem::take(&mut self.message);
        message.place_own_part(self.side == Side::Request);
        let is_shown = message.role.is_some() || message.own.type_name.is_some();
        let is_choice = message.index.is_some() || message.finish_reason.is_some();
        let is_kept = !message.is_doubtful || is_shown || (is_choice && self.side != Side::Request);
        if is_kept && !message.parts.is_empty() {
            self.push(message);
        } else if let (Some(reason), Some(known)) = (message.finish_reason, self.known(message.index)) {
            known.finish_reason = Some(reason);
        }
    }

    fn known(&mut self, index: Option<u64>) -> Option<&mut Message<'a>> {
        let index = if self.side == Side::Stream { Some(index.unwrap_or(0)) } else { index };
        index?;
        self.messages.iter_mut().find(|message| message.index == index)
    }

    fn push(&mut self, mut message: Message<'a>) {
        if self.side == Side::Stream {
            message.index = message.index.or(Some(0));
        }
        let index = message.index.filter(|_| self.side != Side::Request);
        if let Some(known) = index.and_then(|index| self.known(Some(index))) {
            known.merge(message);
        } else if self.messages.len() < MAX_MESSAGES {
            self.messages.push(message);
        }
    }

    fn end_event(&mut self) {
        let event = std::mem::take(&mut self.event);
        let Some(kind) = event.kind.filter(|_| self.side == Side::Stream) else { return };
        let part = match (kind.strip_suffix(b".delta"), event.delta) {
            (Some(b"response.output_text"), Some(delta)) => Part::of(Kind::Text, delta),
            (Some(b"response.refusal"), Some(delta)) => Part::of(Kind::Refusal, delta),
            (Some(b"response.reasoning_text" | b"response.reasoning_summary_text"), Some(delta)) => {
                Part::of(Kind::Reasoning, delta)
            }
            (Some(b"response.function_call_arguments"), Some(delta)) => {
                Part { index: Some(0), ..Part::of(Kind::ToolCall, delta) }
            }
            _ if kind == b"response.output_item.added" && event.item_kind == Some(b"function_call") => {
                Part { kind: Kind::ToolCall, index: Some(0), id: event.id, name: event.name, ..Part::default() }
            }
            _ => {
                self.is_known |= kind.starts_with(b"response.");
                return;
            }
        };
        self.is_known = true;
        self.push(Message { index: event.output_index, parts: vec![part], ..Message::default() });
    }
}

impl<'a> Visit<'a, Name> for MessageReader<'a> {
    fn scalar(&mut self, path: &[Name], value: Scalar<'a>) {
        self.found(
            path,
            match value {
                Scalar::Text(raw) => Found::Text(Piece::whole(raw)),
                Scalar::Word(word) => Found::Word(word),
            },
        );
    }

    fn cut(&mut self, path: &[Name], raw: &'a [u8]) {
        self.found(path, Found::Text(Piece::begun(raw, true)));
    }

    fn open(&mut self, path: &[Name]) {
        match self.in_message(path) {
            Some([]) => {
                self.end_message();
                self.message.is_doubtful = path[0] == Name::Lost;
            }
            Some([Name::ToolCalls, Name::Item]) => self.part = Part { kind: Kind::ToolCall, ..Part::default() },
            Some([Name::Content | Name::Summary | Name::Output | Name::Lost, Name::Item]) => {
                self.part = Part::default();
            }
            _ => {}
        }
    }

    fn close(&mut self, path: &[Name]) {
        match self.in_message(path) {
            Some([]) => self.end_message(),
            Some(
                [Name::ToolCalls | Name::Content | Name::Summary | Name::Output | Name::Lost, Name::Item]
                | [Name::Embedding],
            ) => self.end_part(),
            None if matches!(path, [Name::Messages | Name::Prompt]) => self.end_message(),
            _ => {}
        }
    }
}
