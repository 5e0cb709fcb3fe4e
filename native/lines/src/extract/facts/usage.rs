//! The usage that an answer declares: how many tokens it took.

use super::set;
use crate::catalogue::{Semconv, derived};
use crate::extract::keys::Key;
use crate::json::lex::Scalar;
use crate::json::number;

/// The counts, as they stand in the body.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Usage {
    input: Option<Number>,
    output: Option<Number>,
    tool_input: Option<Number>,
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
            [Key::Usage, Key::ToolUseTokens] => &mut self.tool_input,
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
            tool_input: self.tool_input.or(other.tool_input),
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

    /// All tokens of the input, those of a cache and of tools included.
    pub fn all_input(&self) -> Option<Number> {
        let mut input = self.input?;
        if self.tool_input.is_some() {
            input = input.plus(self.tool_input);
        }
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

/// Longest number that is read.
const MAX_NUMBER_BYTES: usize = 64;
/// Floats up to here count integers exactly.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// A JSON number, as exactly as 64 bits allow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Int(i64),
    Uint(u64),
    Float(f64),
}

impl Number {
    pub fn of(value: Scalar<'_>) -> Option<Self> {
        let Scalar::Word(word) = value else { return None };
        if word.len() > MAX_NUMBER_BYTES || !matches!(word.first(), Some(b'-' | b'0'..=b'9')) {
            return None;
        }
        let word = std::str::from_utf8(word).ok()?;
        if let Ok(int) = word.parse() {
            return Some(Self::Int(int));
        }
        if let Ok(uint) = word.parse() {
            return Some(Self::Uint(uint));
        }
        word.parse().ok().filter(|float: &f64| float.is_finite()).map(Self::Float)
    }

    /// An integer, also one that is spelled as a float.
    pub fn whole(value: Scalar<'_>) -> Option<Self> {
        match Self::of(value)? {
            Self::Float(float) if float.fract() == 0.0 && float.abs() <= MAX_EXACT => Some(Self::Int(float as i64)),
            Self::Float(_) => None,
            whole => Some(whole),
        }
    }

    /// An integer that is not negative.
    pub fn count(value: Scalar<'_>) -> Option<Self> {
        Self::whole(value).filter(|number| !matches!(number, Self::Int(int) if *int < 0))
    }

    /// Whether it is not negative.
    pub fn is_amount(&self) -> bool {
        match *self {
            Self::Int(int) => int >= 0,
            Self::Uint(_) => true,
            Self::Float(float) => float >= 0.0,
        }
    }

    pub fn index(self) -> Option<usize> {
        self.unsigned().and_then(|index| usize::try_from(index).ok())
    }

    pub fn unsigned(self) -> Option<u64> {
        match self {
            Self::Int(int) => u64::try_from(int).ok(),
            Self::Uint(uint) => Some(uint),
            Self::Float(_) => None,
        }
    }

    /// The sum of two counts; as many as there can be if it is larger.
    pub fn plus(self, more: Option<Self>) -> Self {
        match (self.unsigned(), more.and_then(Self::unsigned)) {
            (Some(count), Some(more)) => Self::Uint(count.saturating_add(more)),
            _ => self,
        }
    }
}

/// Append a number behind its key.
pub fn push_number(out: &mut Vec<u8>, key: &str, number: Option<Number>) {
    let Some(number) = number else { return };
    out.extend_from_slice(key.as_bytes());
    match number {
        Number::Int(value) => number::push_integer(out, value),
        Number::Uint(value) => number::push_integer(out, value),
        Number::Float(value) => number::push_float(out, value),
    }
}
