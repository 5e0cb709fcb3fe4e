//! Where a value stands in an event: the keys that lead to it, for every API that is known.
//!
//! | API | content | reasoning | tool call | failure |
//! |---|---|---|---|---|
//! | Chat, Completions | `choices[].delta.content`, `.refusal`, `.audio`, `choices[].text` | `.reasoning_content`, `.reasoning` | `.tool_calls[].function` | `error`, `finish_reason` |
//! | Responses | `delta` of `….delta` | the same, by `type` | the same, by `type` | `type`, `response.error`, `status` |
//! | Messages | `delta.text`, `content_block.text` | `delta.thinking` | `delta.partial_json` | `error` |
//! | Ollama | `message.content`, `response` | `thinking` | `message.tool_calls[]` | `error` |
//! | Gemini | `candidates[].content.parts[].text` | the same beside `thought` | `…parts[].functionCall` | `error` |
//! | TGI, llama.cpp, Triton | `token.text`, `content`, `text_output` | | | `error`, `error_type` |

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
                _ => Self::Other,
            },
            Self::Message | Self::EventMessage => match key {
                b"content" | b"refusal" => Self::Content,
                b"reasoning_content" | b"reasoning" | b"thinking" => Self::Reasoning,
                b"tool_calls" => Self::ToolCalls,
                b"function_call" => Self::Function,
                b"audio" => Self::Audio,
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
            Self::Part if key == b"text" => Self::Content,
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
                b"inlineData" | b"executableCode" | b"codeExecutionResult" => Self::Content,
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
                _ => Self::Other,
            },
            _ => Self::Other,
        }
    }

    fn of_event(key: &[u8]) -> Self {
        match key {
            b"choices" => Self::Choices,
            b"delta" => Self::Delta,
            b"type" => Self::Type,
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
            Self::Candidates => Self::Candidate,
            Self::CandidateParts => Self::CandidatePart,
            Self::TokenIds => Self::TokenIds,
            _ => Self::Other,
        }
    }
}
