//! The keys of request and response bodies that mean something here, and the scan of a document that finds them.

use crate::json::escape;
use crate::json::lex::{self, Resume, Scalar};

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
    /// `x_groq`, which has the usage in streams of Groq
    Groq,
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
    /// `toolUsePromptTokenCount`: a part of the input that Gemini counts apart
    ToolUseTokens,
    /// `candidatesTokenCount`: the output without the reasoning
    CandidateTokens,
    /// The counts of Ollama, of llama.cpp and of TGI, which stand in no `usage`
    PromptCount,
    GeneratedCount,
    /// Details of the input tokens, under either name
    InputDetails,
    /// Details of the output tokens, under either name
    OutputDetails,
    /// `cached_tokens` and their like: a part of the input
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
    match escape::unescape(raw, &mut name) {
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
            b"x_groq" => Self::Groq,
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
            b"toolUsePromptTokenCount" => Self::ToolUseTokens,
            b"candidatesTokenCount" => Self::CandidateTokens,
            b"prompt_eval_count" | b"tokens_evaluated" | b"input_length" => Self::PromptCount,
            b"eval_count" | b"tokens_predicted" | b"generated_tokens" => Self::GeneratedCount,
            b"prompt_tokens_details" | b"input_tokens_details" | b"input_token_details" => Self::InputDetails,
            b"completion_tokens_details" | b"output_tokens_details" | b"output_token_details" => Self::OutputDetails,
            b"cached_tokens" | b"cachedContentTokenCount" | b"prompt_cache_hit_tokens" => Self::CachedTokens,
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

// Walks the structure of a JSON document, whole or cut at either side, and shows its scalars with their paths.
//
// Invariants: one pass, no recursion, no allocation; paths are known to a number of levels, `LEVELS`, deeper values
// are skipped; a string without its end and a word that touches the end are never shown, since they may be cut. Broken
// JSON is read in some way, but the scan always ends.

/// The elements of paths: the keys that mean something to a visitor.
pub trait DocumentKey: Copy {
    /// An element of an array.
    const ITEM: Self;
    /// A member of an object whose key is in the part of the document that is missing.
    const LOST: Self;
    /// A key without a meaning.
    const OTHER: Self;
    /// The key for the bytes between the quotes.
    fn of(raw: &[u8]) -> Self;
}

/// Receives what [`scan`] finds. A path names a value from the root on; elements of arrays are [`DocumentKey::ITEM`].
pub trait Visit<'a, P: DocumentKey> {
    /// A string or a word.
    fn scalar(&mut self, path: &[P], value: Scalar<'a>);
    /// A string whose end is missing, with the bytes that are there.
    #[inline]
    fn cut(&mut self, _path: &[P], _raw: &'a [u8]) {}
    /// An object or array begins.
    fn open(&mut self, _path: &[P]) {}
    /// An object or array ends.
    fn close(&mut self, _path: &[P]) {}
    /// The same with all of it, before [`Visit::close`], if its beginning was seen.
    #[inline]
    fn whole(&mut self, _path: &[P], _raw: &'a [u8]) {}
}

/// Show the content of `bytes` from `start` on to `visit`; a new document begins with `Resume::default()`.
pub fn scan<'a, P: DocumentKey, const LEVELS: usize>(
    bytes: &'a [u8],
    start: Resume<LEVELS>,
    visit: &mut impl Visit<'a, P>,
) {
    let mut walk = Walk::from(start);
    let mut at = start.at;
    while let Some(&byte) = bytes.get(at) {
        let next = match byte {
            b' ' | b'\t' | b'\r' | b'\n' => Some(at + 1),
            b'"' => match lex::string_end(bytes, at + 1) {
                Some(end) => {
                    walk.text(&bytes[at + 1..end], visit);
                    Some(end + 1)
                }
                None => {
                    walk.cut(&bytes[at + 1..], visit);
                    None
                }
            },
            b'{' | b'[' | b'}' | b']' | b',' | b':' => {
                walk.structure(bytes, at, visit);
                Some(at + 1)
            }
            _ => lex::word_end(bytes, at).inspect(|end| walk.scalar(Scalar::Word(&bytes[at..*end]), visit)),
        };
        match next {
            // After the root, or not in an object at all: there is nothing to find.
            Some(next) if walk.depth > 0 || byte.is_ascii_whitespace() => at = next,
            _ => return,
        }
    }
}

/// The open containers.
struct Walk<P, const LEVELS: usize> {
    depth: usize,
    /// For each level the key of the member that is being read.
    keys: [P; LEVELS],
    objects: [bool; LEVELS],
    /// Where the containers begin, as far as that was seen.
    starts: [Option<usize>; LEVELS],
    /// The next string is a key.
    expect_key: bool,
}

impl<P: DocumentKey, const LEVELS: usize> From<Resume<LEVELS>> for Walk<P, LEVELS> {
    fn from(start: Resume<LEVELS>) -> Self {
        let keys = start.objects.map(|object| if object { P::LOST } else { P::ITEM });
        Self { depth: start.depth, keys, objects: start.objects, starts: [None; LEVELS], expect_key: false }
    }
}

impl<P: DocumentKey, const LEVELS: usize> Walk<P, LEVELS> {
    fn text<'a>(&mut self, text: &'a [u8], visit: &mut impl Visit<'a, P>) {
        if !self.expect_key {
            return self.scalar(Scalar::Text(text), visit);
        }
        self.expect_key = false;
        self.set_key(P::of(text));
    }

    fn cut<'a>(&self, raw: &'a [u8], visit: &mut impl Visit<'a, P>) {
        if !self.expect_key && (1..=LEVELS).contains(&self.depth) {
            visit.cut(&self.keys[..self.depth], raw);
        }
    }

    fn scalar<'a>(&self, value: Scalar<'a>, visit: &mut impl Visit<'a, P>) {
        if (1..=LEVELS).contains(&self.depth) {
            visit.scalar(&self.keys[..self.depth], value);
        }
    }

    fn structure<'a>(&mut self, bytes: &'a [u8], at: usize, visit: &mut impl Visit<'a, P>) {
        match bytes[at] {
            open @ (b'{' | b'[') => self.open(at, open == b'{', visit),
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.expect_key = false;
                if self.depth < LEVELS {
                    if let Some(start) = self.starts[self.depth].take() {
                        visit.whole(&self.keys[..self.depth], &bytes[start..=at]);
                    }
                    visit.close(&self.keys[..self.depth]);
                }
            }
            b',' => {
                self.expect_key = self.in_object();
                if self.expect_key {
                    self.set_key(P::OTHER);
                }
            }
            _ => self.expect_key = false,
        }
    }

    fn open<'a>(&mut self, at: usize, object: bool, visit: &mut impl Visit<'a, P>) {
        let level = self.depth;
        self.depth += 1;
        self.expect_key = object && level < LEVELS;
        if level < LEVELS {
            visit.open(&self.keys[..level]);
            self.keys[level] = if object { P::OTHER } else { P::ITEM };
            self.objects[level] = object;
            self.starts[level] = Some(at);
        }
    }

    fn in_object(&self) -> bool {
        self.depth.checked_sub(1).and_then(|level| self.objects.get(level)).is_some_and(|object| *object)
    }

    fn set_key(&mut self, key: P) {
        if let Some(slot) = self.depth.checked_sub(1).and_then(|level| self.keys.get_mut(level)) {
            *slot = key;
        }
    }
}
