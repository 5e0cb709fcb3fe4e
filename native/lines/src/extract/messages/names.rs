//! The keys of bodies that name texts, and those of values that belong to texts.

use crate::extract::keys::DocumentKey;
use crate::extract::keys::key_of;

/// Levels of a body that contain texts: `[].candidates[].content.parts[].functionCall.args{}`.
pub const LEVELS: usize = 9;

/// A key, or the place of a value that no key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// An element of an array.
    Item,
    /// The key is in the part of the body that is missing.
    Lost,
    /// A key without a meaning here.
    Other,
    /// `messages`, `contents`, or `input`, which holds the same or a text, or the arguments of a call
    Messages,
    /// `prompt`, `inputs`, `text_input`
    Prompt,
    /// `instructions`, `systemInstruction`, or `system` beside messages
    System,
    /// `choices`, `candidates`
    Choices,
    /// `parts` of a message of Gemini's API
    Parts,
    /// `thought`: such a part is reasoning
    Thought,
    /// `content_block` in events of the Messages API
    ContentBlock,
    /// `partial_json`: a piece of the arguments of a call
    PartialJson,
    /// `stop_reason`, `done_reason`, `stop_type`
    StopReason,
    /// `text_output` of Triton's and TensorRT-LLM's streams, and the `sequence_index` that it belongs to
    TextOutput,
    SequenceIndex,
    /// `token` of TGI's streams, `generated_text` at their end, and `details`
    Token,
    GeneratedText,
    Details,
    /// `response` of Ollama's
    Response,
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
        b"messages" | b"input" | b"contents" => Name::Messages,
        b"prompt" | b"inputs" | b"text_input" => Name::Prompt,
        b"instructions" | b"system" | b"systemInstruction" | b"system_instruction" => Name::System,
        b"choices" | b"candidates" => Name::Choices,
        b"parts" => Name::Parts,
        b"thought" => Name::Thought,
        b"content_block" => Name::ContentBlock,
        b"partial_json" => Name::PartialJson,
        b"stop_reason" | b"done_reason" | b"stop_type" => Name::StopReason,
        b"text_output" => Name::TextOutput,
        b"sequence_index" => Name::SequenceIndex,
        b"token" => Name::Token,
        b"generated_text" => Name::GeneratedText,
        b"details" => Name::Details,
        b"response" => Name::Response,
        b"message" | b"delta" => Name::Message,
        b"output" => Name::Output,
        b"data" => Name::Data,
        b"item" => Name::EventItem,
        b"output_index" => Name::OutputIndex,
        b"index" => Name::Index,
        b"finish_reason" | b"finishReason" => Name::FinishReason,
        b"role" => Name::Role,
        b"type" => Name::Type,
        b"content" => Name::Content,
        b"text" | b"transcript" => Name::Text,
        b"refusal" => Name::Refusal,
        b"reasoning_content" | b"reasoning" | b"thinking" => Name::Reasoning,
        b"summary" => Name::Summary,
        b"image_url" | b"video_url" | b"audio_url" | b"input_audio" | b"file" | b"audio" | b"source"
        | b"inlineData" => Name::Media,
        b"url" => Name::Url,
        b"file_data" | b"b64_json" | b"result" => Name::Bytes,
        b"format" => Name::Format,
        b"file_id" => Name::FileId,
        b"embedding" => Name::Embedding,
        b"tool_calls" => Name::ToolCalls,
        b"function" | b"function_call" | b"functionCall" => Name::Function,
        b"name" => Name::Called,
        b"arguments" | b"args" => Name::Arguments,
        b"id" => Name::Id,
        b"call_id" | b"tool_call_id" | b"tool_use_id" => Name::CallId,
        _ => Name::Other,
    }
}
