//! The facts that a slot holds about its request besides its progress; fixed places, each written in one piece.
//!
//! ```text
//! word  6      first chunk, monotonic nanoseconds; 0: none yet
//! word  7      [ 0:32 | flags:16 | status:16 ]   flags: 1 streamed, 2 size not known, 4 probe, 8 model, 16 members
//! word  8, 9   start, monotonic and Unix nanoseconds
//! word 10      bytes of the request's body
//! word 11…15   trace id (2), span id, parent span id, our own id of the request
//! word 16      [ trace flags:8 | address:6 | version:2 | route:16 | path:16 | client's id:8 | method:8 ]   lengths in bytes
//! word 17      [ 0:32 | tail:16 | head:16 ]   lengths of the body's first and last bytes
//! word 18      version of HTTP, at most 3 bytes
//! word 19      the client's address, at most 40 bytes
//! word 24      method, at most 16 bytes
//! word 26      the client's id of the request, at most 128 bytes
//! word 42      path, at most 512 bytes
//! word 106     route, at most 256 bytes
//! word 138     the first bytes of a JSON body, at most 464: the listener reads the model from them
//! word 196     the last bytes of the same, at most 480
//!
//! A request that a model serves has the flag 8. Its first of these places holds the values of the record's fields from
//! `triton.model_name` on, as far as they are known at its beginning.
//!
//! With the flag 16, word 224 has the length of members (`added`), which follow in at most 248 bytes; the body's last bytes are
//! at most 224 then.
//! ```

use crate::added::{FEW_BYTES, Members};
use crate::ids::RequestIds;
use queue::record::Trace;
use ring::slots::{FACTS, SLOT_WORDS, Slot};
use ring::sync::{copy_in, view, zero};
use std::borrow::Cow;
use std::sync::atomic::Ordering;
use text::{Text, wipe_words};

mod text;

const FIRST_CHUNK: usize = FACTS;
const ANSWER: usize = 7;
const STARTED: usize = 8;
const STARTED_UNIX: usize = 9;
const BYTES_IN: usize = 10;
const TRACE_ID: usize = 11;
const SPAN_ID: usize = 13;
const PARENT_SPAN_ID: usize = 14;
const OWN_ID: usize = 15;
const LENGTHS: usize = 16;
const BODY_LENGTHS: usize = 17;
const METHOD: Text = Text { first: 24, bytes: 16, shift: 0, bits: 8 };
const CLIENT_ID: Text = Text { first: 26, bytes: 128, shift: 8, bits: 8 };
const PATH: Text = Text { first: 42, bytes: 512, shift: 16, bits: 16 };
const ROUTE: Text = Text { first: 106, bytes: 256, shift: 32, bits: 16 };
const VERSION: Text = Text { first: 18, bytes: 8, shift: 48, bits: 2 };
const VERSION_BYTES: usize = 3;
const ADDRESS: Text = Text { first: 19, bytes: 40, shift: 50, bits: 6 };
const TRACE_FLAGS: u32 = 56;
/// The most bytes of a body's beginning, and of its end.
pub const BODY_HEAD_BYTES: usize = 464;
pub(crate) const BODY_TAIL_BYTES: usize = 480;
const BODY_HEAD: usize = 138;
const BODY_TAIL: usize = BODY_HEAD + BODY_HEAD_BYTES / 8;
const _: () = assert!(BODY_TAIL + BODY_TAIL_BYTES / 8 == SLOT_WORDS);

const STREAMED: u64 = 1 << 16;
const UNKNOWN_SIZE: u64 = 2 << 16;
const PROBE: u64 = 4 << 16;
const MODEL: u64 = 8 << 16;
const HAS_MEMBERS: u64 = 16 << 16;
const MEMBERS_LENGTH: usize = 224;
const MEMBERS: usize = MEMBERS_LENGTH + 1;
/// Most bytes of the members that a slot holds.
pub const MEMBERS_BYTES: usize = (SLOT_WORDS - MEMBERS) * 8;
const _: () = assert!(MEMBERS_BYTES == FEW_BYTES);
/// The most bytes of a body's end beside members.
pub const SHORT_TAIL_BYTES: usize = (MEMBERS_LENGTH - BODY_TAIL) * 8;

/// What is known of a request at its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Begun<'a> {
    /// Monotonic nanoseconds.
    pub started: u64,
    pub started_unix_nano: u64,
    pub ids: &'a RequestIds,
    pub method: &'a [u8],
    pub path: &'a [u8],
    /// Version of HTTP, and the client's address. A longer one than the slot has room for is left out.
    pub protocol_version: &'a [u8],
    pub client_address: &'a [u8],
    /// The request is left out of the records unless it fails.
    pub is_probe: bool,
    /// The values of the last fields of a request that a model serves, at most [`BODY_HEAD_BYTES`]; else empty.
    pub model: &'a [u8],
}

/// What is known of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// 0: none yet.
    pub status: u16,
    pub streamed: bool,
    pub unknown_size: bool,
}

/// The facts that a slot holds about its request: an extension of the protocol's slot.
pub trait SlotFacts {
    /// The slot.
    fn slot(&self) -> Slot<'_>;

    /// Writes what is known at the beginning, while the slot is free.
    #[inline]
    fn write_facts(&self, begun: &Begun<'_>) {
        let word = |at: usize, value| self.slot().words()[at].store(value, Ordering::Relaxed);
        word(FIRST_CHUNK, 0);
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        word(ANSWER, flag(begun.is_probe, PROBE) | flag(!begun.model.is_empty(), MODEL));
        word(STARTED, begun.started);
        word(STARTED_UNIX, begun.started_unix_nano);
        word(BYTES_IN, 0);
        if !begun.model.is_empty() {
            copy_in(&self.slot().words()[BODY_HEAD..BODY_TAIL], begun.model);
        }
        word(BODY_LENGTHS, begun.model.len() as u64);
        let mut lengths = METHOD.write(self.slot().words(), begun.method) | PATH.write(self.slot().words(), begun.path);
        if begun.protocol_version.len() <= VERSION_BYTES {
            lengths |= VERSION.write(self.slot().words(), begun.protocol_version);
        }
        if begun.client_address.len() <= ADDRESS.bytes {
            lengths |= ADDRESS.write(self.slot().words(), begun.client_address);
        }
        word(LENGTHS, lengths);
        self.write_ids(begun.ids);
    }

    /// Writes the ids, which can change while the request is handled.
    #[inline]
    fn write_ids(&self, ids: &RequestIds) {
        let Trace { trace_id, span_id, parent_span_id, flags } = ids.trace;
        let word = |at: usize, bytes| self.slot().words()[at].store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        let (high, low) = trace_id.split_at(8);
        word(TRACE_ID, high.try_into().unwrap_or_default());
        word(TRACE_ID + 1, low.try_into().unwrap_or_default());
        word(SPAN_ID, span_id);
        word(PARENT_SPAN_ID, parent_span_id);
        word(OWN_ID, ids.own_id());
        let lengths = self.slot().words()[LENGTHS].load(Ordering::Relaxed);
        let client = ids.client().map_or(0, |id| CLIENT_ID.replace(self.slot().words(), lengths, id));
        let kept = lengths & !(0xff << CLIENT_ID.shift | 0xff << TRACE_FLAGS);
        self.slot().words()[LENGTHS].store(kept | client | u64::from(flags) << TRACE_FLAGS, Ordering::Release);
    }

    /// Writes members over those that are there. Members that do not fit are left out: a part of a credential would have
    /// another hash.
    #[inline(never)]
    fn write_members(&self, members: &Members) {
        let words = self.slot().words();
        let is_first = words[ANSWER].load(Ordering::Relaxed) & HAS_MEMBERS == 0;
        let tail = words[BODY_LENGTHS].load(Ordering::Relaxed) >> 16;
        if is_first && tail > SHORT_TAIL_BYTES as u64 {
            return;
        }
        if !is_first {
            // The length is zero while they are overwritten.
            words[MEMBERS_LENGTH].store(0, Ordering::Release);
            wipe_words(&words[MEMBERS..]);
        }
        if members.as_bytes().len() <= MEMBERS_BYTES {
            self.write_few_members(members.as_bytes());
        } else {
            self.write_few_members(members.within(MEMBERS_BYTES).as_bytes());
        }
    }

    /// Writes the members of a request that has none yet, and no body: at most [`MEMBERS_BYTES`].
    #[inline]
    fn write_few_members(&self, members: &[u8]) {
        let words = self.slot().words();
        copy_in(&words[MEMBERS..], members);
        words[MEMBERS_LENGTH].store(members.len() as u64, Ordering::Release);
        let answer = words[ANSWER].load(Ordering::Relaxed);
        words[ANSWER].store(answer | HAS_MEMBERS, Ordering::Relaxed);
    }

    /// Writes the route, once it is known.
    #[inline]
    fn write_route(&self, prefix: &str, route: &str) {
        let lengths = self.slot().words()[LENGTHS].load(Ordering::Relaxed);
        let length = match prefix {
            "" => ROUTE.replace(self.slot().words(), lengths, route.as_bytes()),
            _ => ROUTE.replace(self.slot().words(), lengths, [prefix, route].concat().as_bytes()),
        };
        let kept = lengths & !(0xffff << ROUTE.shift);
        self.slot().words()[LENGTHS].store(kept | length, Ordering::Release);
    }

    /// The request's body now has `total` bytes.
    #[inline]
    fn write_bytes_in(&self, total: u64) {
        self.slot().words()[BYTES_IN].store(total, Ordering::Relaxed);
    }

    /// Keeps the ends of a JSON body: a limited number of bytes from the start of its first part and from the end of
    /// its last part.
    #[inline]
    fn write_body(&self, bytes: &[u8], head_limit: usize, tail_limit: usize) {
        let known = self.slot().words()[BODY_LENGTHS].load(Ordering::Relaxed) as usize & 0xffff;
        let (head, rest) =
            bytes.split_at(if known == 0 { bytes.len().min(head_limit.min(BODY_HEAD_BYTES)) } else { 0 });
        copy_in(&self.slot().words()[BODY_HEAD..BODY_TAIL], head);
        let head_len = known + head.len();
        // The length of the tail is zero while it is overwritten.
        self.slot().words()[BODY_LENGTHS].store(head_len as u64, Ordering::Release);
        let tail = &rest[rest.len().saturating_sub(tail_limit.min(BODY_TAIL_BYTES))..];
        copy_in(&self.slot().words()[BODY_TAIL..], tail);
        self.slot().words()[BODY_LENGTHS].store(head_len as u64 | (tail.len() as u64) << 16, Ordering::Release);
    }

    /// A chunk has passed: writes what is known of the answer.
    #[inline]
    fn write_answer(&self, answer: Answer) {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(answer.streamed, STREAMED) | flag(answer.unknown_size, UNKNOWN_SIZE);
        let kept = self.slot().words()[ANSWER].load(Ordering::Relaxed) & (PROBE | MODEL | HAS_MEMBERS);
        self.slot().words()[ANSWER].store(kept | flags | u64::from(answer.status), Ordering::Relaxed);
    }

    /// The first chunk passed at this time.
    #[inline]
    fn write_first_chunk(&self, first: u64) {
        self.slot().words()[FIRST_CHUNK].store(first, Ordering::Relaxed);
    }

    /// Reads all facts. The slot has lost its owner, or is claimed.
    #[must_use]
    fn read_facts(&self) -> Facts {
        let word = |at: usize| self.slot().words()[at].load(Ordering::Relaxed);
        let id = |at: usize| word(at).to_ne_bytes();
        let members = self.slot().words()[MEMBERS_LENGTH].load(Ordering::Acquire);
        let (lengths, body, answer) = (
            self.slot().words()[LENGTHS].load(Ordering::Acquire),
            self.slot().words()[BODY_LENGTHS].load(Ordering::Acquire),
            word(ANSWER),
        );
        let ends = |first: usize, last: usize, len: u64| {
            view(&self.slot().words()[first..last], (len as usize & 0xffff).min((last - first) * 8)).into_owned()
        };
        let mut trace = Trace {
            span_id: id(SPAN_ID),
            parent_span_id: id(PARENT_SPAN_ID),
            flags: (lengths >> TRACE_FLAGS) as u8,
            ..Trace::default()
        };
        trace.trace_id[..8].copy_from_slice(&id(TRACE_ID));
        trace.trace_id[8..].copy_from_slice(&id(TRACE_ID + 1));
        Facts {
            started: word(STARTED),
            started_unix_nano: word(STARTED_UNIX),
            first_chunk: word(FIRST_CHUNK),
            bytes_in: word(BYTES_IN),
            answer: Answer {
                status: answer as u16,
                streamed: answer & STREAMED != 0,
                unknown_size: answer & UNKNOWN_SIZE != 0,
            },
            is_probe: answer & PROBE != 0,
            is_model: answer & MODEL != 0,
            trace,
            own_id: id(OWN_ID),
            method: METHOD.read(self.slot().words(), lengths),
            protocol_version: VERSION.read(self.slot().words(), lengths),
            client_address: ADDRESS.read(self.slot().words(), lengths),
            client_id: CLIENT_ID.read(self.slot().words(), lengths),
            path: PATH.read(self.slot().words(), lengths),
            route: ROUTE.read(self.slot().words(), lengths),
            body_head: ends(BODY_HEAD, BODY_TAIL, body),
            body_tail: ends(BODY_TAIL, SLOT_WORDS, body >> 16),
            members: if answer & HAS_MEMBERS == 0 { Vec::new() } else { ends(MEMBERS, SLOT_WORDS, members) },
        }
    }

    /// Zeroes the request's texts, body and ids: shared memory keeps none of them for longer than the request. The slot
    /// is free and not yet given back: while it is taken, the listener that recovers it needs them.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    fn wipe(&self) {
        let lengths = self.slot().words()[LENGTHS].load(Ordering::Relaxed);
        for text in [CLIENT_ID, PATH, ROUTE] {
            text.wipe(self.slot().words(), lengths);
        }
        let head = (self.slot().words()[BODY_LENGTHS].load(Ordering::Relaxed) as usize & 0xffff).min(BODY_HEAD_BYTES);
        wipe_words(&self.slot().words()[BODY_HEAD..BODY_HEAD + head.div_ceil(8)]);
        // An earlier tail may have been longer than the last one.
        if self.slot().words()[BYTES_IN].load(Ordering::Relaxed) > head as u64 {
            zero(&self.slot().words()[BODY_TAIL..]);
        } else if self.slot().words()[ANSWER].load(Ordering::Relaxed) & HAS_MEMBERS != 0 {
            let length = self.slot().words()[MEMBERS_LENGTH].load(Ordering::Relaxed) as usize;
            zero(&self.slot().words()[MEMBERS_LENGTH..][..=length.min(MEMBERS_BYTES).div_ceil(8)]);
        }
        self.slot().words()[BYTES_IN..CLIENT_ID.first].iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// The wall-clock time of a monotonic time, by the clock at the request's beginning.
    #[inline]
    #[must_use]
    fn unix_nano_at(&self, monotonic: u64) -> u64 {
        let word = |at: usize| self.slot().words()[at].load(Ordering::Relaxed);
        word(STARTED_UNIX).saturating_add(monotonic.saturating_sub(word(STARTED)))
    }

    /// The last monotonic time at which the slot's process showed life; free slots have it too.
    #[must_use]
    fn last_sign(&self) -> u64 {
        self.slot().words()[STARTED].load(Ordering::Relaxed).max(self.slot().last_passed())
    }
}

impl Begun<'_> {
    /// Whether a slot has room for all of these texts. A path that cannot be encoded is empty here.
    #[inline]
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        !self.path.is_empty()
            && self.method.len() <= METHOD.bytes
            && self.path.len() <= PATH.bytes
            && self.protocol_version.len() <= VERSION_BYTES
            && self.client_address.len() <= ADDRESS.bytes
    }
}

/// The members that a slot holds of its request. The slot is the caller's.
#[must_use]
pub fn members_of<'a>(slot: &Slot<'a>) -> &'a [u8] {
    let length = slot.words()[MEMBERS_LENGTH].load(Ordering::Relaxed) as usize;
    match view(&slot.words()[MEMBERS..], length.min(MEMBERS_BYTES)) {
        Cow::Borrowed(members) => members,
        Cow::Owned(_) => b"",
    }
}

/// The texts that a slot holds of its request. The slot is the caller's.
#[derive(Clone, Copy, Debug)]
pub struct Texts<'a> {
    pub method: &'a [u8],
    pub path: &'a [u8],
    pub route: &'a [u8],
    pub protocol_version: &'a [u8],
    pub client_address: &'a [u8],
}

impl<'a> Texts<'a> {
    /// Reads them; None if there is no room for the whole route.
    #[inline]
    pub fn of(slot: Slot<'a>) -> Option<Self> {
        let (words, lengths) = (slot.words(), slot.words()[LENGTHS].load(Ordering::Relaxed));
        if ROUTE.len(lengths) > ROUTE.bytes {
            return None;
        }
        Some(Self {
            method: METHOD.borrow(words, lengths),
            path: PATH.borrow(words, lengths),
            route: ROUTE.borrow(words, lengths),
            protocol_version: VERSION.borrow(words, lengths),
            client_address: ADDRESS.borrow(words, lengths),
        })
    }
}

impl SlotFacts for Slot<'_> {
    #[inline]
    fn slot(&self) -> Slot<'_> {
        *self
    }
}

/// The facts that were read from a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub started: u64,
    pub started_unix_nano: u64,
    /// Monotonic nanoseconds; 0: there was none.
    pub first_chunk: u64,
    pub bytes_in: u64,
    pub answer: Answer,
    pub is_probe: bool,
    /// `body_head` holds values of the record instead of a body.
    pub is_model: bool,
    pub trace: Trace,
    pub own_id: [u8; 8],
    pub method: Vec<u8>,
    pub protocol_version: Vec<u8>,
    pub client_address: Vec<u8>,
    /// Empty: the client sent no id.
    pub client_id: Vec<u8>,
    pub path: Vec<u8>,
    pub route: Vec<u8>,
    pub body_head: Vec<u8>,
    pub body_tail: Vec<u8>,
    /// As [`crate::added::members`] reads them.
    pub members: Vec<u8>,
}
