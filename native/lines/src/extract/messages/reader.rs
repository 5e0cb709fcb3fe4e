//! Collects messages from the scalars of a body, whole or cut, and from the events of a stream.
//!
//! Chat Completions, Completions, Responses, Embeddings and Images of OpenAI's API and similar ones, Anthropic's Messages,
//! Cohere's Chat, Gemini, Ollama, llama.cpp, TGI and Triton's generate (`event`). Keys may come in any order. A path
//! without its outer keys is followed if the inner members show what it is: a message has a role or a type, a choice its
//! index or finish reason.

use super::names::{LEVELS, Name};
use super::parts::{Event, Found, Kind, Message, Numbers, Part, Piece};
use crate::extract::keys::Visit;
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
    pub side: Side,
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

    /// The path within one document: a stream can be an array of them.
    fn in_document<'p>(&self, path: &'p [Name]) -> &'p [Name] {
        match path {
            [Name::Item, rest @ ..] if self.side == Side::Stream => rest,
            _ => path,
        }
    }

    /// The rest of a path, from its message on.
    fn in_message<'p>(&self, path: &'p [Name]) -> Option<&'p [Name]> {
        use Name::{Choices, Content, ContentBlock, Data, Item, Lost, Message, Messages, Output, Prompt};
        match (self.side, path) {
            // A batch of chats.
            (Side::Request, [Messages, Item, Item, rest @ ..]) if !rest.is_empty() => Some(rest),
            (Side::Request, [Messages | Prompt | Lost, Item, rest @ ..]) => Some(rest),
            (Side::Request, _) => None,
            (_, [Choices | Lost, Item, Message, rest @ ..]) if !rest.is_empty() => Some(rest),
            (_, [Lost, Item, Lost, rest @ ..]) if !matches!(rest, [] | [Item, ..]) => Some(rest),
            (_, [Choices | Output | Data | Lost, Item, rest @ ..]) => Some(rest),
            // An answer that is a message, or that has one, in a delta too.
            (_, [Content, Item, ..]) => Some(path),
            (_, [Message, Message, rest @ ..]) => Some(rest),
            (_, [Message | ContentBlock, rest @ ..]) if !rest.is_empty() => Some(rest),
            _ => None,
        }
    }

    fn found(&mut self, path: &[Name], found: Found<'a>) {
        let path = self.in_document(path);
        let is_known = self.side != Side::Request && self.event.found(path, found);
        self.is_known |= is_known;
        if is_known {
            return;
        }
        if let Some(rest) = self.in_message(path) {
            self.is_known |= is_of_message(path, rest);
            if matches!(path[0], Name::Message | Name::ContentBlock | Name::Content) {
                // It is the only one.
                self.message.index = Some(0);
            }
            self.found_in_message(rest, found, path[0] == Name::Lost);
        } else if self.side == Side::Request {
            self.found_at_top(path, found);
        }
    }

    fn found_at_top(&mut self, path: &[Name], found: Found<'a>) {
        let Some(piece) = found.piece() else { return };
        match path {
            [Name::Messages | Name::Prompt] => {
                self.is_known = true;
                self.is_top_cut = piece.lacks_end;
                self.push(Message { parts: vec![Part::of(Kind::Text, piece)], ..Message::default() });
            }
            [Name::System]
            | [Name::System, Name::Item, Name::Text]
            | [Name::System, Name::Parts, Name::Item, Name::Text] => {
                self.system.push(Part::of(Kind::Text, piece));
            }
            _ => {}
        }
    }

    fn found_in_message(&mut self, rest: &[Name], found: Found<'a>, is_doubtful: bool) {
        use Name::{
            Arguments, Bytes, CallId, Content, Data, Embedding, FinishReason, Function, Id, Index, Item, Lost, Media,
            Output, Parts, Reasoning, Refusal, Role, StopReason, Summary, Text, ToolCalls, Type, Url,
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
            [FinishReason | StopReason] => message.finish_reason = found.whole().or(message.finish_reason),
            [Id] => message.own.id = message.own.id.or(found.whole()),
            [CallId] => message.own.id = found.whole(),
            [Name::Called] | [Function, Name::Called] => message.own.name = found.whole(),
            [Arguments] => message.own.hold(Kind::ToolCall, found.piece()),
            [Function, Arguments] => {
                // The only call of a message: later pieces continue it.
                message.own.index = Some(0);
                message.own.hold(Kind::ToolCall, found.piece());
            }
            [Output] => message.own.hold(Kind::ToolResponse, found.piece()),
            [Content | Text] | [Content, Item | Text] | [Media, Text] => self.add(Kind::Text, found),
            [Refusal] => self.add(Kind::Refusal, found),
            [Reasoning] => self.add(Kind::Reasoning, found),
            [Embedding | Bytes | Data | Url] | [Media, Data | Bytes] => {
                let kind_of_own = if rest == [Embedding] { Some(&b"embedding"[..]) } else { message.own.type_name };
                self.add_media(found, kind_of_own);
            }
            [ToolCalls, Item, field @ ..] => self.found_in_call(field, found),
            [Content | Summary | Output | Parts | Lost, Item, field @ ..] | [Content, Parts, Item, field @ ..] => {
                self.found_in_part(field, found);
            }
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
        use Name::{
            Bytes, CallId, Content, Data, FileId, Format, Function, Id, Item, Media, Reasoning, Refusal, Text, Thought,
            Type, Url,
        };
        match field {
            [Type] => self.part.type_name = found.whole(),
            [Id | CallId] => self.part.id = found.whole(),
            [Name::Called] | [Function, Name::Called] => self.part.name = found.whole(),
            [Thought] => self.part.is_thought = matches!(found, Found::Word(b"true")),
            [Text | Content] | [Content, Item, Text] => self.part.hold(Kind::Text, found.piece()),
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
        let mut part = std::mem::take(&mut self.part);
        part.settle();
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
        if !is_kept {
            message.parts.clear();
        }
        self.end_of(message);
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
        if self.side == Side::Request {
            return;
        }
        let event = std::mem::take(&mut self.event);
        self.is_known |= event.is_known();
        for message in event.messages(self.side == Side::Stream) {
            self.end_of(message);
        }
    }

    /// Take over a message, or the reason why the known one ended.
    fn end_of(&mut self, message: Message<'a>) {
        if !message.parts.is_empty() {
            self.push(message);
        } else if let (Some(reason), Some(known)) = (message.finish_reason, self.known(message.index)) {
            known.finish_reason = Some(reason);
        }
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
        let path = self.in_document(path);
        match self.in_message(path) {
            Some([]) => {
                self.end_message();
                self.message.is_doubtful = path[0] == Name::Lost;
            }
            Some([Name::Item]) if self.side == Side::Request => self.end_message(),
            Some([Name::ToolCalls, Name::Item]) => self.part = Part { kind: Kind::ToolCall, ..Part::default() },
            Some(rest) if is_part(rest) => self.part = Part::default(),
            _ => {}
        }
    }

    fn whole(&mut self, path: &[Name], raw: &'a [u8]) {
        let path = self.in_document(path);
        let Some(rest) = self.in_message(path) else { return };
        let field = match rest {
            [Name::ToolCalls, Name::Item, field @ ..] | [Name::Content, Name::Parts, Name::Item, field @ ..] => field,
            [Name::Content | Name::Parts, Name::Item, field @ ..] => field,
            _ => return,
        };
        // The arguments of a call as an object.
        if matches!(field, [Name::Messages] | [Name::Function, Name::Arguments]) {
            self.is_known |= path[0] != Name::Lost;
            self.part.hold(Kind::ToolCall, Some(Piece { is_plain: true, ..Piece::whole(raw) }));
        }
    }

    fn close(&mut self, path: &[Name]) {
        if self.side == Side::Stream && matches!(path, [Name::Item]) {
            return self.end_document();
        }
        let path = self.in_document(path);
        match self.in_message(path) {
            Some([]) => self.end_message(),
            Some([Name::Item]) if self.side == Side::Request => self.end_message(),
            Some([Name::ToolCalls, Name::Item] | [Name::Embedding]) => self.end_part(),
            Some(rest) if is_part(rest) => self.end_part(),
            None if matches!(path, [Name::Messages | Name::Prompt]) => self.end_message(),
            _ => {}
        }
    }
}

/// Whether the members of a message, `rest`, show that `path` leads to one.
fn is_of_message(path: &[Name], rest: &[Name]) -> bool {
    use Name::{Content, Reasoning, Refusal, Role, StopReason, Text, ToolCalls};
    match path {
        [Name::Lost, ..] => false,
        [Name::Message | Name::ContentBlock, ..] => {
            matches!(rest, [Content | Reasoning | Refusal | Role | StopReason | Text | ToolCalls, ..])
        }
        [Content, ..] => matches!(rest, [_, _, Text | Reasoning | Name::Type, ..]),
        _ => true,
    }
}

/// Whether a path from a message on is that of one of its parts.
fn is_part(rest: &[Name]) -> bool {
    use Name::{Content, Item, Lost, Output, Parts, Summary};
    matches!(rest, [Content | Summary | Output | Parts | Lost, Item] | [Content, Parts, Item])
}
