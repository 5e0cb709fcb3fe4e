//! Where a value stands in an event: the keys that lead to it, for every API that is known.
//!
//! | API | content | reasoning | tool call | failure |
//! |---|---|---|---|---|
//! | Chat, Completions | `choices[].delta.content`, `.refusal`, `.audio`, `.images`, `choices[].text` | `.reasoning_content`, `.reasoning`, `.content[].thinking` | `.tool_calls[].function` | `error`, `choices[].error`, `finish_reason` |
//! | Responses | `delta` of `….delta` | the same, by `type` | the same, by `type` | `type`, `response.error`, `status` |
//! | Messages | `delta.text`, `content_block.text` | `delta.thinking` | `delta.partial_json` | `error` |
//! | Ollama | `message.content`, `response` | `thinking` | `message.tool_calls[]` | `error` |
//! | Gemini | `candidates[].content.parts[].text` | the same beside `thought` | `…parts[].functionCall` | `error` |
//! | TGI, llama.cpp, Triton | `token.text`, `content`, `text_output` | | | `error`, `error_type` |
//! | AG-UI, Dify | `delta`, as of an unknown API | `delta`, by `type` | the same, by `type` | `type`, `event` |
//! | SGLang | as of an unknown API | | | `error`, `meta_info.finish_reason.status_code` |

/// Where a value stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// The event itself.
    #[default]
    Event,
    /// Where nothing is looked for.
    Other,
    Choices,
    Choice,
    /// A part of a message, or a whole one.
    Message,
    /// The same beside an event's type or `done`: of Messages or Ollama.
    EventMessage,
    Audio,
    TokenIds,
    ToolCalls,
    ToolCall,
    Function,
    Part,
    /// A part of a list of thoughts: Mistral.
    ReasoningPart,
    /// Content that is no text, such as an image or code.
    Media,
    Candidates,
    Candidate,
    CandidateContent,
    CandidateParts,
    CandidatePart,
    Thought,
    /// A text of Gemini, which `thought` beside it makes reasoning.
    CandidateText,
    /// `delta` beside the event's type: a text in Responses, an object in Messages.
    Delta,
    /// `response`: a text in Ollama, an object in Responses.
    Response,
    Block,
    Token,
    /// A text that is content, reasoning or a part of a tool call.
    Content,
    Reasoning,
    Tool,
    /// `content` of the event: llama.cpp, and applications of their own.
    PlainContent,
    TextOutput,
    Type,
    Object,
    Status,
    Finish,
    /// `finish_reason` of a choice, and its number.
    Reason,
    ChoiceIndex,
    Done,
    Stop,
    Usage,
    UsageMetadata,
    Error,
    ErrorKind,
    ErrorCode,
    /// Anything else in an error that is not empty.
    ErrorMember,
    /// `meta_info` of SGLang, why it ended, and the status if it was not the model's or the client's decision.
    MetaInfo,
    MetaReason,
    AbortCode,
    /// `custom_id` of a line in a batch's results: its `error` is that of another request.
    BatchId,
    /// `code` of the event.
    EventCode,
    /// `error_type` of TGI.
    EventErrorKind,
}

impl Place {
    /// Where the value of the member `key` stands in an object here.
    pub fn member(self, key: &[u8]) -> Self {
        match self {
            Self::Event => Self::of_event(key),
            Self::Choice => match key {
                b"delta" | b"message" => Self::Message,
                b"text" => Self::Content,
                b"token_ids" => Self::TokenIds,
                b"finish_reason" => Self::Reason,
                b"index" => Self::ChoiceIndex,
                b"error" => Self::Error,
                _ => Self::Other,
            },
            Self::Message | Self::EventMessage => match key {
                b"content" | b"refusal" => Self::Content,
                b"reasoning_content" | b"reasoning" | b"thinking" => Self::Reasoning,
                b"tool_calls" => Self::ToolCalls,
                b"function_call" => Self::Function,
                b"audio" => Self::Audio,
                b"images" => Self::Media,
                b"usage" => Self::Usage,
                _ => Self::Other,
            },
            Self::Audio => match key {
                b"data" | b"transcript" => Self::Content,
                _ => Self::Other,
            },
            Self::ToolCall => match key {
                b"function" | b"custom" => Self::Function,
                _ => Self::Other,
            },
            Self::Function => match key {
                b"name" | b"arguments" | b"input" => Self::Tool,
                _ => Self::Other,
            },
            Self::Part => match key {
                b"text" => Self::Content,
                b"thinking" => Self::Reasoning,
                _ => Self::Other,
            },
            Self::ReasoningPart if key == b"text" => Self::Reasoning,
            Self::Candidate => match key {
                b"content" => Self::CandidateContent,
                b"finishReason" => Self::Finish,
                _ => Self::Other,
            },
            Self::CandidateContent if key == b"parts" => Self::CandidateParts,
            Self::CandidatePart => match key {
                b"text" => Self::CandidateText,
                b"thought" => Self::Thought,
                b"functionCall" => Self::Tool,
                b"inlineData" | b"executableCode" | b"codeExecutionResult" => Self::Media,
                _ => Self::Other,
            },
            Self::Delta => match key {
                b"text" | b"content" => Self::Content,
                b"thinking" => Self::Reasoning,
                b"partial_json" => Self::Tool,
                b"stop_reason" | b"finish_reason" => Self::Finish,
                _ => Self::Other,
            },
            Self::Response => match key {
                b"status" => Self::Status,
                b"error" => Self::Error,
                _ => Self::Other,
            },
            Self::Block => match key {
                b"text" => Self::Content,
                b"thinking" => Self::Reasoning,
                _ => Self::Other,
            },
            Self::Token if key == b"text" => Self::Content,
            Self::Error => match key {
                b"type" | b"status" => Self::ErrorKind,
                b"code" => Self::ErrorCode,
                _ => Self::ErrorMember,
            },
            Self::MetaInfo if key == b"finish_reason" => Self::MetaReason,
            Self::MetaReason => match key {
                b"err_type" => Self::EventErrorKind,
                b"status_code" => Self::AbortCode,
                _ => Self::Other,
            },
            _ => Self::Other,
        }
    }

    fn of_event(key: &[u8]) -> Self {
        match key {
            b"choices" => Self::Choices,
            b"delta" => Self::Delta,
            // Dify's type is its `event`.
            b"type" | b"event" => Self::Type,
            b"error" => Self::Error,
            b"usage" => Self::Usage,
            b"object" => Self::Object,
            b"message" => Self::EventMessage,
            b"response" => Self::Response,
            b"content_block" => Self::Block,
            b"candidates" => Self::Candidates,
            b"usageMetadata" => Self::UsageMetadata,
            b"token" => Self::Token,
            b"content" => Self::PlainContent,
            b"text_output" => Self::TextOutput,
            b"thinking" => Self::Reasoning,
            b"status" => Self::Status,
            b"done" => Self::Done,
            b"stop" => Self::Stop,
            b"done_reason" | b"finish_reason" | b"stop_reason" => Self::Finish,
            b"code" => Self::EventCode,
            b"error_type" => Self::EventErrorKind,
            b"meta_info" => Self::MetaInfo,
            b"custom_id" => Self::BatchId,
            b"audio" | b"partial_image_b64" => Self::Content,
            _ => Self::Other,
        }
    }

    /// Where the elements of an array here stand.
    pub const fn element(self) -> Self {
        match self {
            // Those of an array that is the whole document.
            Self::Event => Self::Event,
            Self::Choices => Self::Choice,
            Self::ToolCalls => Self::ToolCall,
            Self::Content => Self::Part,
            Self::Reasoning => Self::ReasoningPart,
            Self::Media => Self::Media,
            Self::Error => Self::ErrorMember,
            Self::Candidates => Self::Candidate,
            Self::CandidateParts => Self::CandidatePart,
            Self::TokenIds => Self::TokenIds,
            _ => Self::Other,
        }
    }
}
