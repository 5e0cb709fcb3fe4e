//! The keys of bodies that name texts, and those of values that belong to texts.

use crate::extract::keys::key_of;
use crate::extract::scan::DocumentKey;

/// Levels of a body that contain texts: `choices[].message.content[].image_url.url`.
pub const LEVELS: usize = 7;

/// A key, or the place of a value that no key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// An element of an array.
    Item,
    /// The key is in the part of the body that is missing.
    Lost,
    /// A key without a meaning here.
    Other,
    /// `messages`, or `input`, which holds the same or a text
    Messages,
    /// `prompt`
    Prompt,
    /// `instructions`, or `system` beside messages
    System,
    /// `choices`
    Choices,
    /// `message`, or `delta`, which is a part of one, or of a text
    Message,
    /// `output`: items of the Responses API, or the result of a tool
    Output,
    /// `data`: of embeddings and images, or of audio
    Data,
    /// `item` in events of the Responses API
    EventItem,
    /// `output_index`
    OutputIndex,
    /// `index`
    Index,
    /// `finish_reason`
    FinishReason,
    /// `role`
    Role,
    /// `type`
    Type,
    /// `content`
    Content,
    /// `text`, `transcript`
    Text,
    /// `refusal`
    Refusal,
    /// `reasoning_content`, `reasoning`
    Reasoning,
    /// `summary`
    Summary,
    /// `image_url`, `video_url`, `audio_url`, `input_audio`, `file`, `audio`: media, or an object around them
    Media,
    /// `url`
    Url,
    /// `file_data`, `b64_json`, `result`: media as such
    Bytes,
    /// `format`
    Format,
    /// `file_id`
    FileId,
    /// `embedding`
    Embedding,
    /// `tool_calls`
    ToolCalls,
    /// `function`, `function_call`
    Function,
    /// `name`
    Called,
    /// `arguments`
    Arguments,
    /// `id`
    Id,
    /// `call_id`, `tool_call_id`
    CallId,
}

impl DocumentKey for Name {
    const ITEM: Self = Self::Item;
    const LOST: Self = Self::Lost;
    const OTHER: Self = Self::Other;

    fn of(raw: &[u8]) -> Self {
        key_of(raw, plain)
    }
}

fn plain(name: &[u8]) -> Name {
    match name {
        b"messages" | b"input" => Name::Messages,
        b"prompt" => Name::Prompt,
        b"instructions" | b"system" => Name::System,
        b"choices" => Name::Choices,
        b"message" | b"delta" => Name::Message,
        b"output" => Name::Output,
        b"data" => Name::Data,
        b"item" => Name::EventItem,
        b"output_index" => Name::OutputIndex,
        b"index" => Name::Index,
        b"finish_reason" => Name::FinishReason,
        b"role" => Name::Role,
        b"type" => Name::Type,
        b"content" => Name::Content,
        b"text" | b"transcript" => Name::Text,
        b"refusal" => Name::Refusal,
        b"reasoning_content" | b"reasoning" => Name::Reasoning,
        b"summary" => Name::Summary,
        b"image_url" | b"video_url" | b"audio_url" | b"input_audio" | b"file" | b"audio" => Name::Media,
        b"url" => Name::Url,
        b"file_data" | b"b64_json" | b"result" => Name::Bytes,
        b"format" => Name::Format,
        b"file_id" => Name::FileId,
        b"embedding" => Name::Embedding,
        b"tool_calls" => Name::ToolCalls,
        b"function" | b"function_call" => Name::Function,
        b"name" => Name::Called,
        b"arguments" => Name::Arguments,
        b"id" => Name::Id,
        b"call_id" | b"tool_call_id" => Name::CallId,
        _ => Name::Other,
    }
}
