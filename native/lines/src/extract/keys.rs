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
    /// `id`
    Id,
    /// `model`
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
    /// `choices`
    Choices,
    /// `index`
    Index,
    /// `finish_reason`
    FinishReason,
    /// `stop_reason`, the finish reason of the Messages API
    StopReason,
    /// `delta`, which has the finish reason in streams of the Messages API
    Delta,
    /// `response` or `message`, which wraps the body in events of the Responses and of the Messages API
    Response,
    /// `usage`
    Usage,
    /// `prompt_tokens`, `input_tokens`
    InputTokens,
    /// `completion_tokens`, `output_tokens`
    OutputTokens,
    /// Details of the input tokens, under either name
    InputDetails,
    /// Details of the output tokens, under either name
    OutputDetails,
    /// `cached_tokens`, `cache_read_input_tokens`
    CachedTokens,
    /// `reasoning_tokens`
    ReasoningTokens,
    /// `cache_creation_input_tokens`
    CacheCreationTokens,
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
            b"id" => Self::Id,
            b"model" => Self::Model,
            b"stream" => Self::Stream,
            b"max_tokens" | b"max_completion_tokens" | b"max_output_tokens" => Self::MaxTokens,
            b"temperature" => Self::Temperature,
            b"top_p" => Self::TopP,
            b"top_k" => Self::TopK,
            b"seed" => Self::Seed,
            b"n" => Self::ChoiceCount,
            b"choices" => Self::Choices,
            b"index" => Self::Index,
            b"finish_reason" => Self::FinishReason,
            b"stop_reason" => Self::StopReason,
            b"delta" => Self::Delta,
            b"response" | b"message" => Self::Response,
            b"usage" => Self::Usage,
            b"prompt_tokens" | b"input_tokens" => Self::InputTokens,
            b"completion_tokens" | b"output_tokens" => Self::OutputTokens,
            b"prompt_tokens_details" | b"input_tokens_details" => Self::InputDetails,
            b"completion_tokens_details" | b"output_tokens_details" => Self::OutputDetails,
            b"cached_tokens" | b"cache_read_input_tokens" => Self::CachedTokens,
            b"reasoning_tokens" => Self::ReasoningTokens,
            b"cache_creation_input_tokens" => Self::CacheCreationTokens,
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
