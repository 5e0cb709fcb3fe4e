//! The keys of request and response bodies that mean something here.

use super::scan::DocumentKey;
use crate::json::text;

/// Longest key that is compared with its escapes resolved.
const LONGEST_KEY: usize = 32;

/// Levels of a body that contain facts.
pub const LEVELS: usize = 4;

/// A key, or the place of a value that no key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// An element of an array.
    Item,
    /// The key is in the part of the body that is missing.
    Lost,
    /// A key without a meaning here.
    Other,
    /// `id`, `responseId`
    Id,
    /// `model`, `modelVersion`
    Model,
    /// `stream`
    Stream,
    /// `max_tokens` under any of its names
    MaxTokens,
    /// `temperature`
    Temperature,
    /// `top_p`
    TopP,
    /// `top_k`
    TopK,
    /// `seed`
    Seed,
    /// `n`
    ChoiceCount,
    /// `choices`, `candidates`
    Choices,
    /// `index`
    Index,
    /// `finish_reason`, `finishReason`
    FinishReason,
    /// `stop_reason`, the finish reason of the Messages API; `done_reason`, Ollama's; `stop_type`, llama.cpp's
    StopReason,
    /// `delta`, which has the finish reason in streams of the Messages API
    Delta,
    /// `response`, which wraps the body in events of the Responses API
    Response,
    /// `message`, which wraps the begin of the body in an event of the Messages API
    Message,
    /// `details`, which has reason and counts of TGI
    Details,
    /// `incomplete_details` and its `reason`: why an answer of the Responses API ended early
    IncompleteDetails,
    Reason,
    /// `meta` or `tokens`, and `billed_units`: counts of Cohere's API
    Meta,
    BilledUnits,
    /// `timings` and its `cache_n`, of llama.cpp
    Timings,
    CacheCount,
    /// `usage`, `usageMetadata`
    Usage,
    /// `prompt_tokens` and its like: all tokens of the input
    PromptTokens,
    /// `input_tokens`, from which the Messages API leaves out those of a cache
    InputTokens,
    /// `completion_tokens`, `output_tokens` and their like
    OutputTokens,
    /// `candidatesTokenCount`: the output without the reasoning
    CandidateTokens,
    /// The counts of Ollama, of llama.cpp and of TGI, which stand in no `usage`
    PromptCount,
    GeneratedCount,
    /// Details of the input tokens, under either name
    InputDetails,
    /// Details of the output tokens, under either name
    OutputDetails,
    /// `cached_tokens`: a part of the input
    CachedTokens,
    /// `cache_read_input_tokens`
    CacheReadTokens,
    /// `reasoning_tokens`, `thoughtsTokenCount`
    ReasoningTokens,
    /// `created_cache_tokens`, `cache_write_tokens`: a part of the input
    CacheWriteTokens,
    /// `cache_creation_input_tokens`
    CacheCreationTokens,
    /// `seconds` of audio
    Seconds,
    /// `audio_tokens`
    AudioTokens,
    /// `image_tokens`
    ImageTokens,
    /// `frequency_penalty`
    FrequencyPenalty,
    /// `presence_penalty`
    PresencePenalty,
    /// `stop`, `stop_sequences`
    Stop,
    /// `response_format`
    ResponseFormat,
    /// `text`, which has the format of the answer in the Responses API
    Text,
    /// `format`
    Format,
    /// `type`
    Type,
    /// `tools`
    Tools,
    /// `function`
    Function,
    /// `name`
    Name,
}

/// Return the key for the bytes between the quotes, as `plain` knows it; an escaped spelling is the same key.
#[inline]
pub fn key_of<K: DocumentKey>(raw: &[u8], plain: impl Fn(&[u8]) -> K) -> K {
    if !raw.contains(&b'\\') {
        return plain(raw);
    }
    let mut name = [0; LONGEST_KEY];
    match text::unescape(raw, &mut name) {
        (len, true) => plain(&name[..len]),
        (_, false) => K::OTHER,
    }
}

impl DocumentKey for Key {
    const ITEM: Self = Self::Item;
    const LOST: Self = Self::Lost;
    const OTHER: Self = Self::Other;

    fn of(raw: &[u8]) -> Self {
        key_of(raw, Self::plain)
    }
}

impl Key {
    fn plain(name: &[u8]) -> Self {
        match name {
            b"id" | b"responseId" => Self::Id,
            b"model" | b"modelVersion" => Self::Model,
            b"stream" => Self::Stream,
            b"max_tokens" | b"max_completion_tokens" | b"max_output_tokens" => Self::MaxTokens,
            b"temperature" => Self::Temperature,
            b"top_p" => Self::TopP,
            b"top_k" => Self::TopK,
            b"seed" => Self::Seed,
            b"n" => Self::ChoiceCount,
            b"choices" | b"candidates" => Self::Choices,
            b"index" => Self::Index,
            b"finish_reason" | b"finishReason" => Self::FinishReason,
            b"stop_reason" | b"done_reason" | b"stop_type" => Self::StopReason,
            b"delta" => Self::Delta,
            b"response" => Self::Response,
            b"message" => Self::Message,
            b"details" => Self::Details,
            b"incomplete_details" => Self::IncompleteDetails,
            b"reason" => Self::Reason,
            b"meta" | b"tokens" => Self::Meta,
            b"billed_units" => Self::BilledUnits,
            b"timings" => Self::Timings,
            b"cache_n" => Self::CacheCount,
            b"usage" | b"usageMetadata" => Self::Usage,
            b"prompt_tokens" | b"promptTokenCount" => Self::PromptTokens,
            b"input_tokens" => Self::InputTokens,
            b"completion_tokens" | b"output_tokens" => Self::OutputTokens,
            b"candidatesTokenCount" => Self::CandidateTokens,
            b"prompt_eval_count" | b"tokens_evaluated" | b"input_length" => Self::PromptCount,
            b"eval_count" | b"tokens_predicted" | b"generated_tokens" => Self::GeneratedCount,
            b"prompt_tokens_details" | b"input_tokens_details" | b"input_token_details" => Self::InputDetails,
            b"completion_tokens_details" | b"output_tokens_details" | b"output_token_details" => Self::OutputDetails,
            b"cached_tokens" | b"cachedContentTokenCount" => Self::CachedTokens,
            b"cache_read_input_tokens" => Self::CacheReadTokens,
            b"reasoning_tokens" | b"thoughtsTokenCount" => Self::ReasoningTokens,
            b"created_cache_tokens" | b"cache_write_tokens" => Self::CacheWriteTokens,
            b"cache_creation_input_tokens" => Self::CacheCreationTokens,
            b"seconds" => Self::Seconds,
            b"audio_tokens" => Self::AudioTokens,
            b"image_tokens" => Self::ImageTokens,
            b"frequency_penalty" => Self::FrequencyPenalty,
            b"presence_penalty" => Self::PresencePenalty,
            b"stop" | b"stop_sequences" => Self::Stop,
            b"response_format" => Self::ResponseFormat,
            b"text" => Self::Text,
            b"format" => Self::Format,
            b"type" => Self::Type,
            b"tools" => Self::Tools,
            b"function" => Self::Function,
            b"name" => Self::Name,
            _ => Self::Other,
        }
    }
}
