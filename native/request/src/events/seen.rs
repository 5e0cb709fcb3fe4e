//! What was seen of one event, what the event therefore is, and the failure that a stream reports.

use super::held::Held;
use super::place::Place;

/// What an event adds to the answer; an event of two kinds is both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    pub const CONTENT: Self = Self(1);
    pub const REASONING: Self = Self(2);
    pub const TOOL_CALL: Self = Self(4);

    /// Whether it adds anything.
    #[must_use]
    pub const fn is_chunk(self) -> bool {
        self.0 != 0
    }

    /// Whether it adds what `other` adds.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Chunk(Kinds),
    /// The frame around the content: a role, a beginning, an end, usage, an empty text.
    Frame,
    KeepAlive,
}

/// The meaning of an event's type, or of its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Type {
    #[default]
    Unknown,
    /// The API is known, and its `delta` is of this kind.
    Known(Kinds),
    KeepAlive,
    Failure,
}

impl Type {
    fn of(name: &[u8]) -> Self {
        let has = |word: &[u8]| memchr::memmem::find(name, word).is_some();
        let starts = |words: &[&[u8]]| words.iter().any(|word| name.starts_with(word));
        match name {
            b"error" | b"response.failed" | b"RUN_ERROR" => Self::Failure,
            b"ping" | b"keepalive" | b"keep-alive" | b"keep_alive" | b"heartbeat" => Self::KeepAlive,
            b"message_start"
            | b"message_delta"
            | b"message_stop"
            | b"content_block_start"
            | b"content_block_delta"
            | b"content_block_stop"
            // Dify's.
            | b"message_end"
            | b"workflow_started"
            | b"workflow_finished"
            | b"node_started"
            | b"node_finished" => Self::Known(Kinds::CONTENT),
            _ if starts(&[b"response.", b"transcript.", b"speech."]) => {
                Self::Known(match name {
                    _ if has(b"reasoning") => Kinds::REASONING,
                    _ if has(b"_call") || has(b"tool") => Kinds::TOOL_CALL,
                    _ => Kinds::CONTENT,
                })
            }
            // AG-UI's.
            _ if starts(&[b"THINKING_", b"REASONING_"]) => Self::Known(Kinds::REASONING),
            _ if starts(&[b"TOOL_CALL_"]) => Self::Known(Kinds::TOOL_CALL),
            _ if starts(&[b"RUN_", b"STEP_", b"TEXT_MESSAGE_", b"STATE_", b"MESSAGES_SNAPSHOT"]) => {
                Self::Known(Kinds::CONTENT)
            }
            _ => Self::Unknown,
        }
    }
}

/// Facts of an event; each is a bit of [`Seen::facts`].
mod fact {
    /// The shape is that of a known API.
    pub const KNOWN: u16 = 1;
    pub const USAGE: u16 = 2;
    pub const FAILED: u16 = 4;
    /// `delta` is a text, which the type gives its kind.
    pub const DELTA: u16 = 8;
    pub const CANDIDATE_TEXT: u16 = 16;
    pub const THOUGHT: u16 = 32;
    pub const STATUS_FAILED: u16 = 64;
    /// The event is a response, or has one.
    pub const RESPONSE: u16 = 128;
    /// The event is an error.
    pub const ERROR: u16 = 256;
    /// The model gave up.
    pub const GAVE_UP: u16 = 512;
    pub const CANDIDATES: u16 = 1024;
    /// The event is the result of another request.
    pub const RESULT: u16 = 2048;
}

/// What was seen of one event.
#[derive(Debug, Default)]
pub struct Seen {
    facts: u16,
    kinds: Kinds,
    kind: Type,
    name: Type,
    /// The number of the choice that is being read.
    pub choice: u8,
    /// How many of its texts add to the answer.
    pub texts: u8,
    pub members: u64,
    /// A number decides what it is, or which choice ends with it: another event of this shape is to be walked too.
    pub is_singular: bool,
    pub failure: Option<Box<Failure>>,
}

impl Seen {
    /// Forgets the event; keeps the memory.
    pub fn clear(&mut self) {
        let mut failure = self.failure.take();
        if let Some(failure) = &mut failure {
            failure.clear();
        }
        *self = Self { failure, ..Self::default() };
    }

    /// Takes note of the event's name.
    pub fn set_name(&mut self, name: &[u8]) {
        self.name = Type::of(name);
    }

    fn fact(&mut self, fact: u16) {
        self.facts |= fact;
    }

    const fn has(&self, fact: u16) -> bool {
        self.facts & fact != 0
    }

    fn adds(&mut self, kind: Kinds) {
        self.kinds = self.kinds.and(kind);
        self.texts = self.texts.saturating_add(1);
    }

    fn fails(&mut self) -> &mut Failure {
        self.failure.get_or_insert_default()
    }

    /// A string stands here, of which this is the beginning.
    pub fn text(&mut self, place: Place, text: &[u8]) {
        match place {
            Place::Type => {
                self.kind = Type::of(text);
                if self.has(fact::ERROR) {
                    self.fails().set_kind(text);
                }
            }
            Place::Object if text == b"error" => self.fact(fact::ERROR | fact::FAILED),
            Place::Object if text == b"response" => self.fact(fact::RESPONSE),
            Place::Status if text == b"failed" => self.fact(fact::STATUS_FAILED),
            // Cohere's reasons are `ERROR` and `ERROR_LIMIT`.
            Place::Finish | Place::Reason if text.get(..5).is_some_and(|word| word.eq_ignore_ascii_case(b"error")) => {
                self.fact(fact::GAVE_UP);
            }
            Place::ErrorKind | Place::EventErrorKind => self.fails().set_kind(text),
            Place::ErrorCode | Place::EventCode => self.fails().set_code(text),
            Place::TextOutput => self.fact(fact::KNOWN),
            Place::BatchId => self.fact(fact::RESULT),
            _ => {}
        }
        if text.is_empty() {
            return;
        }
        match place {
            Place::Reason => self.is_singular = true,
            Place::Content | Place::PlainContent | Place::TextOutput | Place::Response => self.adds(Kinds::CONTENT),
            Place::Reasoning => self.adds(Kinds::REASONING),
            Place::Tool => self.adds(Kinds::TOOL_CALL),
            Place::Delta => {
                self.fact(fact::DELTA);
                self.texts = self.texts.saturating_add(1);
            }
            Place::CandidateText => {
                self.fact(fact::CANDIDATE_TEXT);
                self.texts = self.texts.saturating_add(1);
            }
            Place::Error | Place::ErrorMember | Place::ErrorKind | Place::ErrorCode => self.fact(fact::FAILED),
            _ => {}
        }
    }

    /// A number, true, false or null stands here.
    pub fn word(&mut self, place: Place, word: &[u8]) {
        let is_number = matches!(word.first(), Some(b'0'..=b'9' | b'-'));
        if matches!(place, Place::ErrorMember | Place::ErrorKind | Place::ErrorCode) && word != b"null" {
            self.fact(fact::FAILED);
        }
        match place {
            Place::Done | Place::Stop if matches!(word, b"true" | b"false") => self.fact(fact::KNOWN),
            Place::ChoiceIndex => {
                self.choice = word.iter().fold(0, |number: u8, byte| match byte {
                    b'0'..=b'9' => number.saturating_mul(10).saturating_add(byte - b'0'),
                    _ => u8::MAX,
                });
            }
            Place::Thought if word == b"true" => self.fact(fact::THOUGHT),
            Place::TokenIds if is_number => self.adds(Kinds::CONTENT),
            Place::AbortCode | Place::ErrorCode | Place::EventCode if is_number => {
                self.fails().set_code(word);
                self.is_singular = true;
                if place == Place::AbortCode {
                    self.fact(fact::FAILED);
                }
            }
            Place::Error => {
                self.is_singular = true;
                if !matches!(word, b"null" | b"false" | b"0") {
                    self.fact(fact::FAILED);
                }
            }
            _ => {}
        }
    }

    /// An object or an array begins here.
    pub fn open(&mut self, place: Place, is_object: bool) {
        match place {
            // An empty one says that nothing failed.
            Place::ErrorMember | Place::ErrorKind | Place::ErrorCode => self.fact(fact::FAILED),
            Place::Media if is_object => self.adds(Kinds::CONTENT),
            Place::Candidates if !is_object => self.fact(fact::KNOWN | fact::CANDIDATES),
            Place::Choices if !is_object => self.fact(fact::KNOWN),
            Place::Token | Place::Block | Place::UsageMetadata if is_object => self.fact(fact::KNOWN),
            Place::Usage if is_object => self.fact(fact::USAGE),
            Place::Response if is_object => self.fact(fact::KNOWN | fact::RESPONSE),
            // Arguments that are no text.
            Place::Tool if is_object => self.adds(Kinds::TOOL_CALL),
            _ => {}
        }
    }

    /// Whether the event reports a failure.
    pub fn has_failed(&self) -> bool {
        let has_error = self.has(fact::FAILED) && !self.has(fact::RESULT);
        has_error || self.kind == Type::Failure || self.name == Type::Failure || self.has_given_up()
    }

    /// Whether it says that the answer was not made. This counts in a whole document too, where `error` may be any
    /// application's own word.
    pub const fn has_given_up(&self) -> bool {
        self.has(fact::GAVE_UP) || self.has(fact::STATUS_FAILED) && self.has(fact::RESPONSE)
    }

    /// Whether its name says that it keeps the connection alive.
    pub fn is_keep_alive(&self) -> bool {
        self.name == Type::KeepAlive
    }

    /// Whether it has the candidates of Gemini.
    pub const fn has_candidates(&self) -> bool {
        self.has(fact::CANDIDATES)
    }

    /// Returns what an event with data is.
    pub fn event(&self) -> Event {
        let mut kinds = self.kinds;
        if self.has(fact::CANDIDATE_TEXT) {
            kinds = kinds.and(if self.has(fact::THOUGHT) { Kinds::REASONING } else { Kinds::CONTENT });
        }
        let kind = if self.kind == Type::Unknown { self.name } else { self.kind };
        if self.has(fact::DELTA) {
            kinds = kinds.and(if let Type::Known(kind) = kind { kind } else { Kinds::CONTENT });
        }
        match kind {
            Type::KeepAlive => Event::KeepAlive,
            _ if kinds.is_chunk() => Event::Chunk(kinds),
            Type::Failure | Type::Known(_) => Event::Frame,
            Type::Unknown if self.has(fact::KNOWN | fact::ERROR) || self.has_failed() || self.is_usage() => {
                Event::Frame
            }
            Type::Unknown => Event::Chunk(Kinds::CONTENT),
        }
    }

    /// Whether nothing but usage was seen.
    const fn is_usage(&self) -> bool {
        self.has(fact::USAGE) && self.members == 1
    }
}

/// A failure within a stream, in the words of the server that reports it.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    kind: Held<64>,
    code: Held<32>,
}

impl Failure {
    /// Its type; `stream_error` if it has none.
    #[must_use]
    pub fn kind(&self) -> &str {
        word(&self.kind).unwrap_or("stream_error")
    }

    /// Its code.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        word(&self.code)
    }

    pub(super) fn set_kind(&mut self, text: &[u8]) {
        set(&mut self.kind, text);
    }

    pub(super) fn set_code(&mut self, text: &[u8]) {
        set(&mut self.code, text);
    }

    pub(super) fn clear(&mut self) {
        self.kind.clear();
        self.code.clear();
    }
}

/// Takes a word of printable ASCII over; any other text, or a longer one, is none.
fn set<const MAX: usize>(held: &mut Held<MAX>, text: &[u8]) {
    held.clear();
    let is_word = text.iter().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(byte));
    if !is_word || !held.push(text) {
        held.clear();
    }
}

fn word<const MAX: usize>(held: &Held<MAX>) -> Option<&str> {
    // LiteLLM writes `None` where it knows nothing.
    std::str::from_utf8(held.get()).ok().filter(|word| !matches!(*word, "" | "None"))
}
