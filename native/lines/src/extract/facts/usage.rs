//! The usage that an answer declares: how many tokens it took.

use super::number::{Number, push_number};
use super::set;
use crate::catalogue::derived;
use crate::extract::keys::Key;
use crate::json::lex::Scalar;
use crate::names::Semconv;

/// The counts, as they stand in the body.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Usage {
    input: Option<Number>,
    output: Option<Number>,
    cached: Option<Number>,
    cache_read: Option<Number>,
    cache_write: Option<Number>,
    cache_creation: Option<Number>,
    reasoning: Option<Number>,
    audio_input: Option<Number>,
    image_input: Option<Number>,
    audio_output: Option<Number>,
    /// Seconds of audio.
    seconds: Option<Number>,
    lacks: Lacks,
}

/// What the API counts beside the input or the output, and the conventions count as a part of it.
#[derive(Clone, Copy, Default, PartialEq)]
struct Lacks {
    cache: bool,
    images: bool,
    reasoning: bool,
}

impl Usage {
    /// Take a value of the body, which this path names; null and other types are no value.
    pub fn take(&mut self, path: &[Key], value: Scalar<'_>) {
        if let [Key::Usage, Key::Seconds] = path {
            return set(&mut self.seconds, Number::of(value).filter(Number::is_amount));
        }
        let Some(count) = Number::count(value) else { return };
        let slot = match path {
            [Key::Usage, Key::InputTokens] => {
                self.lacks.cache = true;
                &mut self.input
            }
            [Key::Meta, Key::BilledUnits, Key::InputTokens] => {
                self.lacks.images = true;
                &mut self.input
            }
            [Key::Usage, Key::CandidateTokens] => {
                self.lacks.reasoning = true;
                &mut self.output
            }
            [Key::Usage, Key::PromptTokens]
            | [Key::Usage, Key::Meta, Key::InputTokens]
            | [Key::PromptCount]
            | [Key::Details, Key::PromptCount] => &mut self.input,
            [Key::Usage, Key::OutputTokens]
            | [Key::Usage, Key::Meta, Key::OutputTokens]
            | [Key::GeneratedCount]
            | [Key::Details, Key::GeneratedCount] => &mut self.output,
            [Key::Usage, Key::CachedTokens]
            | [Key::Usage, Key::InputDetails, Key::CachedTokens]
            | [Key::Timings, Key::CacheCount] => &mut self.cached,
            [Key::Usage, Key::CacheReadTokens] => &mut self.cache_read,
            [Key::Usage, Key::CacheCreationTokens] => &mut self.cache_creation,
            [Key::Usage, Key::InputDetails, Key::CacheWriteTokens] => &mut self.cache_write,
            [Key::Usage, Key::ReasoningTokens] | [Key::Usage, Key::OutputDetails, Key::ReasoningTokens] => {
                &mut self.reasoning
            }
            [Key::Usage, Key::InputDetails, Key::AudioTokens] => &mut self.audio_input,
            [Key::Usage, Key::InputDetails, Key::ImageTokens] | [Key::Meta, Key::BilledUnits, Key::ImageTokens] => {
                &mut self.image_input
            }
            [Key::Usage, Key::OutputDetails, Key::AudioTokens] => &mut self.audio_output,
            _ => return,
        };
        *slot = Some(count);
    }

    /// Whether there is neither a count nor a length of audio.
    pub fn is_empty(&self) -> bool {
        Self { lacks: Lacks::default(), ..*self } == Self::default()
    }

    /// Whether there is a count of tokens.
    pub fn has_tokens(&self) -> bool {
        !Self { seconds: None, ..*self }.is_empty()
    }

    pub fn has_input(&self) -> bool {
        self.input.is_some()
    }

    /// Leave out the count of the output: it is one of the beginning.
    pub fn begin(&mut self) {
        self.output = None;
    }

    /// Leave out the sums of which a part may be in what is missing.
    pub fn cut(&mut self) {
        if self.lacks.cache || self.lacks.images {
            self.input = None;
        }
        if self.lacks.reasoning {
            self.output = None;
        }
    }

    /// The counts of this one, or else those of the other.
    pub fn or(self, other: Self) -> Self {
        Self {
            input: self.input.or(other.input),
            output: self.output.or(other.output),
            cached: self.cached.or(other.cached),
            cache_read: self.cache_read.or(other.cache_read),
            cache_write: self.cache_write.or(other.cache_write),
            cache_creation: self.cache_creation.or(other.cache_creation),
            reasoning: self.reasoning.or(other.reasoning),
            audio_input: self.audio_input.or(other.audio_input),
            image_input: self.image_input.or(other.image_input),
            audio_output: self.audio_output.or(other.audio_output),
            seconds: self.seconds.or(other.seconds),
            lacks: Lacks {
                cache: self.lacks.cache || other.lacks.cache,
                images: self.lacks.images || other.lacks.images,
                reasoning: self.lacks.reasoning || other.lacks.reasoning,
            },
        }
    }

    /// All tokens of the input, those of a cache included.
    pub fn all_input(&self) -> Option<Number> {
        let mut input = self.input?;
        if self.lacks.cache {
            input = input.plus(self.cache_read).plus(self.cache_creation);
        }
        Some(if self.lacks.images { input.plus(self.image_input) } else { input })
    }

    /// All tokens of the output, those of reasoning included.
    pub fn all_output(&self) -> Option<Number> {
        Some(if self.lacks.reasoning { self.output?.plus(self.reasoning) } else { self.output? })
    }

    pub fn all_cached(&self) -> Option<Number> {
        self.cached.or(self.cache_read)
    }

    /// Append the counts as `,"key":value`.
    pub fn push(&self, out: &mut Vec<u8>, semconv: Semconv) {
        push_number(out, derived::INPUT_TOKENS.member, self.all_input());
        push_number(out, derived::OUTPUT_TOKENS.member, self.all_output());
        push_number(out, derived::CACHED_TOKENS.member, self.all_cached());
        let written = self.cache_write.or(self.cache_creation);
        if written.is_some() {
            let key = format!(",\"{}\":", semconv.name(derived::CACHE_CREATION_TOKENS.name));
            push_number(out, &key, written);
        }
        push_number(out, derived::REASONING_TOKENS.member, self.reasoning);
        push_number(out, derived::AUDIO_INPUT_TOKENS.member, self.audio_input);
        push_number(out, derived::IMAGE_INPUT_TOKENS.member, self.image_input);
        push_number(out, derived::AUDIO_OUTPUT_TOKENS.member, self.audio_output);
        push_number(out, derived::AUDIO_INPUT_S.member, self.seconds);
    }
}
