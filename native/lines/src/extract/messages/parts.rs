//! Messages and their parts while they are collected: pieces of the body, borrowed and still escaped.

use super::names::Name;

/// A piece of a text in the form of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Between the quotes, still escaped; or plain text if the body is not JSON.
    pub raw: &'a [u8],
    pub is_plain: bool,
    /// The text before it is missing.
    pub lacks_start: bool,
    /// The text after it is missing.
    pub lacks_end: bool,
}

impl<'a> Piece<'a> {
    pub const fn whole(raw: &'a [u8]) -> Self {
        Self { raw, is_plain: false, lacks_start: false, lacks_end: false }
    }

    /// Without its end, if it `is_cut`.
    pub const fn begun(raw: &'a [u8], is_cut: bool) -> Self {
        Self { raw, is_plain: false, lacks_start: false, lacks_end: is_cut }
    }
}

/// The kind of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Text,
    Reasoning,
    Refusal,
    /// An unknown body: JSON, or the events of a stream.
    Json,
    Events,
    ToolCall,
    ToolResponse,
    /// Media as a data URL, as base64, or as a link to them.
    Media,
    /// A file as it is.
    File,
    /// Numbers: an embedding, or token ids.
    Numbers,
}

/// One part of a message.
#[derive(Clone, Debug, Default)]
pub struct Part<'a> {
    pub kind: Kind,
    /// `type` in the form of the body.
    pub type_name: Option<&'a [u8]>,
    pub pieces: Vec<Piece<'a>>,
    pub id: Option<&'a [u8]>,
    pub name: Option<&'a [u8]>,
    /// Format of media, such as `wav`.
    pub format: Option<&'a [u8]>,
    /// Position of a tool call in its message.
    pub index: Option<u64>,
    /// It is reasoning, as Gemini's API says.
    pub is_thought: bool,
    /// The numbers, and their count.
    pub numbers: Option<Box<Numbers>>,
    /// A part of it is in the missing part of the body.
    pub is_cut: bool,
}

/// Numbers that are not written: their count, and the hash of the text between the brackets, without blanks.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    pub count: u64,
    pub hasher: blake3::Hasher,
}

impl Numbers {
    pub fn keyed(key: Option<&[u8; 32]>) -> Self {
        Self { count: 0, hasher: key.map_or_else(blake3::Hasher::new, blake3::Hasher::new_keyed) }
    }

    pub fn push(&mut self, word: &[u8]) {
        if self.count > 0 {
            self.hasher.update(b",");
        }
        self.hasher.update(word);
        self.count += 1;
    }
}

impl<'a> Part<'a> {
    pub fn of(kind: Kind, piece: Piece<'a>) -> Self {
        Self { kind, pieces: vec![piece], is_cut: piece.lacks_start || piece.lacks_end, ..Self::default() }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        let is_named = self.kind == Kind::ToolCall || (self.kind == Kind::Media && self.id.is_some());
        self.pieces.is_empty() && self.numbers.is_none() && !is_named
    }

    /// Whether `more`, which came later, continues this part. A piece of a tool call names it by its index, or else by its
    /// id; one with neither, and without a name, continues the last call.
    fn goes_on_with(&self, more: &Self) -> bool {
        let is_text = matches!(self.kind, Kind::Text | Kind::Reasoning | Kind::Refusal);
        let is_same_call = || match more.index {
            Some(_) => self.index == more.index,
            None => more.id.map_or(more.name.is_none(), |id| self.id == Some(id)),
        };
        self.kind == more.kind && (is_text || (self.kind == Kind::ToolCall && is_same_call()))
    }

    fn append(&mut self, more: Self) {
        self.pieces.extend(more.pieces);
        self.id = self.id.or(more.id);
        self.name = self.name.or(more.name);
        self.is_cut |= more.is_cut;
    }
}

/// One message, or one choice of an answer.
#[derive(Clone, Debug, Default)]
pub struct Message<'a> {
    /// Number of the choice.
    pub index: Option<u64>,
    pub role: Option<&'a [u8]>,
    pub finish_reason: Option<&'a [u8]>,
    pub parts: Vec<Part<'a>>,
    /// The members beside the parts: name, id and arguments of a call, or the result of a tool.
    pub own: Part<'a>,
    /// The array around it is unknown: it is a message only if it has a role or a type.
    pub is_doubtful: bool,
}

impl<'a> Message<'a> {
    /// Add a part, or the continuation of one.
    pub fn join(&mut self, part: Part<'a>) {
        let goes_on = |known: &&mut Part<'a>| known.goes_on_with(&part);
        let is_call = part.kind == Kind::ToolCall;
        let known = if is_call { self.parts.iter_mut().rfind(goes_on) } else { self.parts.last_mut().filter(goes_on) };
        match known {
            Some(known) => known.append(part),
            None => self.parts.push(part),
        }
    }

    /// Add a later piece of the same message.
    pub fn merge(&mut self, more: Self) {
        self.role = self.role.or(more.role);
        self.finish_reason = more.finish_reason.or(self.finish_reason);
        more.parts.into_iter().for_each(|part| self.join(part));
    }

    /// Note that something is missing here: later text is not a direct continuation.
    pub fn cut(&mut self) {
        if let Some(part) = self.parts.last_mut()
            && let Some(piece) = part.pieces.last_mut()
        {
            (part.is_cut, piece.lacks_end) = (true, true);
        }
    }
}

impl<'a> Part<'a> {
    /// Let its type say what its text is.
    pub fn settle(&mut self) {
        self.kind = match (self.kind, self.type_name) {
            (Kind::Text, _) if self.is_thought => Kind::Reasoning,
            (Kind::Text, Some(b"tool_result")) => Kind::ToolResponse,
            (Kind::Text, Some(b"tool_use")) => Kind::ToolCall,
            (kind, _) => kind,
        };
    }

    /// Hold a text as the content of the part.
    pub fn hold(&mut self, kind: Kind, piece: Option<Piece<'a>>) {
        if let Some(piece) = piece {
            self.kind = kind;
            self.pieces.push(piece);
        }
    }
}

impl Message<'_> {
    /// Place the members beside the parts among them.
    pub fn place_own_part(&mut self, is_request: bool) {
        let own = std::mem::take(&mut self.own);
        self.own.type_name = own.type_name;
        if !own.pieces.is_empty() {
            let role: &[u8] = if own.kind == Kind::ToolResponse { b"tool" } else { b"assistant" };
            self.role = self.role.or(Some(role));
            self.parts.push(own);
        } else if is_request && matches!(self.role, Some(b"tool" | b"function")) {
            for part in self.parts.iter_mut().filter(|part| part.kind == Kind::Text) {
                (part.kind, part.id) = (Kind::ToolResponse, own.id);
            }
        } else if own.type_name == Some(b"reasoning") {
            self.role = self.role.or(Some(b"assistant"));
            let texts = self.parts.iter_mut().filter(|part| part.kind == Kind::Text);
            texts.for_each(|part| part.kind = Kind::Reasoning);
        }
    }
}

/// A value of a body.
#[derive(Clone, Copy)]
pub enum Found<'a> {
    Text(Piece<'a>),
    Word(&'a [u8]),
}

impl<'a> Found<'a> {
    pub fn piece(self) -> Option<Piece<'a>> {
        match self {
            Self::Text(piece) => Some(piece),
            Self::Word(_) => None,
        }
    }

    /// A text that is certainly whole.
    pub fn whole(self) -> Option<&'a [u8]> {
        self.piece().filter(|piece| !piece.lacks_start && !piece.lacks_end).map(|piece| piece.raw)
    }

    pub fn number(self) -> Option<u64> {
        match self {
            Self::Word(word) => std::str::from_utf8(word).ok()?.parse().ok(),
            Self::Text(_) => None,
        }
    }

    /// A digit or sign: not null, true or false.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Word([b'-' | b'0'..=b'9', ..]))
    }
}

// What an answer or an event says beside messages, and the message that it is a piece of.
//
// | API | texts |
// |---|---|
// | Responses | `delta` of an event whose type ends in `.delta` |
// | Messages | `delta`, `content_block`: read as messages; `partial_json` |
// | Ollama's generate | `response`, `thinking` |
// | llama.cpp's completion | `content`, of the prompt with this `index` |
// | Triton, TensorRT-LLM | `text_output`, of the sequence with this `sequence_index`; of a batch, a list |
// | TGI | `token.text`; `generated_text` of a whole answer |

/// The members of one event.
#[derive(Default)]
pub struct Event<'a> {
    kind: Option<&'a [u8]>,
    delta: Option<Piece<'a>>,
    output_index: Option<u64>,
    item_kind: Option<&'a [u8]>,
    id: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
    index: Option<u64>,
    sequence: Option<u64>,
    /// Texts that stand by themselves, and the choice that each belongs to.
    texts: Vec<(Kind, Piece<'a>, Choice)>,
    /// All of the answer, which may have come in pieces.
    whole: Option<Piece<'a>>,
    partial: Option<Piece<'a>>,
    reason: Option<&'a [u8]>,
}

/// Which choice a text belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Only,
    OfIndex,
    OfSequence,
    Number(u64),
}

impl<'a> Event<'a> {
    /// Take a value; returns whether only a known API has such a one.
    pub fn found(&mut self, path: &[Name], found: Found<'a>) -> bool {
        use Name::{
            CallId, Called, Content, ContentBlock, Details, EventItem, FinishReason, GeneratedText, Id, Index, Item,
            Message, OutputIndex, PartialJson, Reasoning, Response, SequenceIndex, StopReason, Text, TextOutput, Token,
            Type,
        };
        let choice = match path {
            [Content] => Choice::OfIndex,
            [TextOutput] => Choice::OfSequence,
            [TextOutput, Item] => Choice::Number(self.texts.len() as u64),
            _ => Choice::Only,
        };
        match path {
            [Content | TextOutput | Response | Reasoning] | [TextOutput, Item] | [Token, Text] => {
                let kind = if path == [Reasoning] { Kind::Reasoning } else { Kind::Text };
                let Some(piece) = found.piece() else { return false };
                self.texts.push((kind, piece, choice));
                return true;
            }
            [GeneratedText] => self.whole = found.piece(),
            [Message, PartialJson] => self.partial = found.piece(),
            [StopReason | FinishReason] | [Details, FinishReason] => self.reason = found.whole().or(self.reason),
            [Type] => self.kind = found.whole(),
            [Message] => self.delta = found.piece(),
            [Index] => self.index = found.number(),
            [SequenceIndex] => self.sequence = found.number(),
            [OutputIndex] => self.output_index = found.number(),
            [EventItem | ContentBlock, Type] => self.item_kind = found.whole(),
            [EventItem | ContentBlock, Called] => self.name = found.whole(),
            [EventItem, CallId] | [ContentBlock, Id] => self.id = found.whole(),
            _ => return false,
        }
        matches!(path, [GeneratedText] | [_, PartialJson])
    }

    /// Whether its type is one of a known API, though it may have no text.
    pub fn is_known(&self) -> bool {
        let types: [&[u8]; 5] = [b"response.", b"transcript.", b"message_", b"content_block_", b"message-"];
        self.kind.is_some_and(|kind| types.iter().any(|known| kind.starts_with(known)))
    }

    /// The pieces of messages in it. In a stream, what is said at its end is no news.
    pub fn messages(self, is_stream: bool) -> Vec<Message<'a>> {
        let whole = self.whole.filter(|_| !is_stream || self.texts.is_empty());
        let is_call = self.item_kind == Some(b"tool_use");
        let block = Part { kind: Kind::ToolCall, index: self.index, id: self.id, name: self.name, ..Part::default() };
        let of_choice = |choice| match choice {
            Choice::Only => Some(0),
            Choice::OfIndex => Some(self.index.unwrap_or(0)),
            Choice::OfSequence => Some(self.sequence.unwrap_or(0)),
            Choice::Number(number) => Some(number),
        };
        let message = |index, part| Message { index, parts: vec![part], ..Message::default() };
        let mut messages = Vec::new();
        // Ollama writes an empty text beside its reasoning.
        for (kind, piece, choice) in self.texts.iter().filter(|(_, piece, _)| !is_stream || !piece.raw.is_empty()) {
            messages.push(message(of_choice(*choice), Part::of(*kind, *piece)));
        }
        messages.extend(whole.map(|whole| message(Some(0), Part::of(Kind::Text, whole))));
        messages.extend(is_call.then(|| message(Some(0), block)));
        if let Some(partial) = self.partial {
            messages.push(message(Some(0), Part { index: self.index, ..Part::of(Kind::ToolCall, partial) }));
        }
        if let Some(part) = self.responses_part().filter(|_| is_stream) {
            messages.push(message(self.output_index, part));
        }
        if let Some(reason) = self.reason {
            let index = self.texts.first().map_or(Some(0), |(_, _, choice)| of_choice(*choice));
            messages.push(Message { index, finish_reason: Some(reason), ..Message::default() });
        }
        messages
    }

    /// The piece in an event of the Responses API.
    fn responses_part(&self) -> Option<Part<'a>> {
        let kind = self.kind?;
        let text = |kind| self.delta.map(|delta| Part::of(kind, delta));
        match kind.strip_suffix(b".delta") {
            Some(b"response.output_text" | b"transcript.text") => text(Kind::Text),
            Some(b"response.refusal") => text(Kind::Refusal),
            Some(b"response.reasoning_text" | b"response.reasoning_summary_text") => text(Kind::Reasoning),
            Some(b"response.function_call_arguments") => {
                text(Kind::ToolCall).map(|part| Part { index: Some(0), ..part })
            }
            _ if kind == b"response.output_item.added" && self.item_kind == Some(b"function_call") => {
                Some(Part { kind: Kind::ToolCall, index: Some(0), id: self.id, name: self.name, ..Part::default() })
            }
            _ => None,
        }
    }
}
