//! What an answer or an event says beside messages, and the message that it is a piece of.
//!
//! | API | texts |
//! |---|---|
//! | Responses | `delta` of an event whose type ends in `.delta` |
//! | Messages | `delta`, `content_block`: read as messages; `partial_json` |
//! | Ollama's generate | `response`, `thinking` |
//! | llama.cpp's completion | `content`, of the prompt with this `index` |
//! | Triton, TensorRT-LLM | `text_output`, of the sequence with this `sequence_index`; of a batch, a list |
//! | TGI | `token.text`; `generated_text` of a whole answer |

use super::found::Found;
use super::names::Name;
use super::parts::{Kind, Message, Part, Piece};

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
        for (kind, piece, choice) in &self.texts {
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
