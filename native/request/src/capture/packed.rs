//! Capped capture of a stream for its text: each event costs little more than its new part.
//!
//! The events of a stream repeat ids, model and structure around a few characters. So an event is kept as its
//! difference from one of at most four earlier events, the templates: the length of the common beginning and end, and
//! the bytes in between. That takes two comparisons per event, and no parsing; the listener puts the events together
//! again.
//!
//! Stored form: the head begins with the templates (`u8` count, then for each `u16` length and its bytes), entries
//! follow; the tail has entries only. An entry is three numbers in LEB128 (bytes in common at the beginning × 4 + number
//! of the template; bytes in common at the end; bytes between) and the bytes between.
//!
//! Invariants: all together never more than the two limits, and twice the tail's while it is collected (P12); an
//! unpacked head is a beginning of the stream, an unpacked tail an end of it; noise unpacks to noise, of at most
//! [`MAX_UNPACKED`] bytes.

use queue::record::{Body, BodyKind, BodyText, Scratch};

const MAX_TEMPLATES: usize = 4;
const MAX_TEMPLATE_BYTES: usize = 1024;
/// A shorter event is not a template: it would save nothing.
const MIN_TEMPLATE_BYTES: usize = 48;
/// An event that differs by more than this from all templates becomes one.
const USUAL_NEW_BYTES: usize = 12;
/// Room for the three numbers.
const MAX_NUMBERS_BYTES: usize = 15;
/// Most bytes that a head or a tail is unpacked to.
pub(crate) const MAX_UNPACKED: usize = 64 << 20;

/// Beginning and end of one stream, filled as the stream passes.
#[derive(Debug)]
pub struct PackedStream {
    text: BodyText,
    head_limit: usize,
    tail_limit: usize,
    templates: Vec<Vec<u8>>,
    templates_bytes: usize,
    /// The template that the last event resembled.
    usual: usize,
    head: Vec<u8>,
    is_head_full: bool,
    /// The tail in two generations; the older one is thrown away when the newer one is full.
    older: Vec<u8>,
    newer: Vec<u8>,
    is_cut: bool,
}

impl PackedStream {
    /// Makes a capture. Allocates nothing until bytes come.
    #[must_use]
    pub fn new(text: BodyText, head_limit: usize, tail_limit: usize) -> Self {
        Self {
            text,
            head_limit,
            tail_limit,
            templates: Vec::new(),
            templates_bytes: 1,
            usual: 0,
            head: Vec::new(),
            is_head_full: false,
            older: Vec::new(),
            newer: Vec::new(),
            is_cut: false,
        }
    }

    /// Takes note of the next bytes of the stream: usually one event, or several.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let end = memchr::memmem::find(bytes, b"\n\n").map_or(bytes.len(), |end| end + 2);
            let (event, rest) = bytes.split_at(end);
            self.push_event(event);
            bytes = rest;
        }
    }

    fn push_event(&mut self, event: &[u8]) {
        let like = self.like(event);
        let fresh = &event[like.start..event.len() - like.end];
        let size = fresh.len() + MAX_NUMBERS_BYTES;
        if !self.is_head_full && self.templates_bytes + self.head.len() + size <= self.head_limit {
            like.push(&mut self.head, fresh);
            return;
        }
        self.is_head_full = true;
        if self.newer.len() + size > self.tail_limit {
            self.is_cut |= !self.older.is_empty();
            self.older.clear();
            std::mem::swap(&mut self.older, &mut self.newer);
        }
        if size > self.tail_limit {
            // It fills the tail alone, and only its end counts.
            self.is_cut = true;
            let kept = self.tail_limit.saturating_sub(MAX_NUMBERS_BYTES).min(event.len());
            self.older.clear();
            Like::default().push(&mut self.newer, &event[event.len() - kept..]);
        } else {
            like.push(&mut self.newer, fresh);
        }
    }

    /// Compares an event with the templates; it becomes one if it has little in common with them and there is room.
    fn like(&mut self, event: &[u8]) -> Like {
        let mut best = Like::default();
        for number in std::iter::once(self.usual).chain(0..self.templates.len()) {
            let Some(template) = self.templates.get(number) else { break };
            let like = Like::of(event, template, number);
            if like.common() > best.common() {
                best = like;
            }
            if event.len() - best.common() <= USUAL_NEW_BYTES {
                self.usual = best.template;
                return best;
            }
        }
        let room = self.head_limit.saturating_sub(self.templates_bytes + self.head.len());
        let is_fit = (MIN_TEMPLATE_BYTES..=MAX_TEMPLATE_BYTES).contains(&event.len());
        let needed = event.len() + 2 + MAX_NUMBERS_BYTES;
        if is_fit && self.templates.len() < MAX_TEMPLATES && !self.is_head_full && needed <= room {
            self.templates.push(event.to_vec());
            self.templates_bytes += event.len() + 2;
            return Like { template: self.templates.len() - 1, start: event.len(), end: 0 };
        }
        best
    }

    /// Appends the capture as one value; absent if no byte came.
    pub fn push_value(&mut self, scratch: &mut Scratch) {
        let mut tail = std::mem::take(&mut self.older);
        tail.append(&mut self.newer);
        if self.head.is_empty() && tail.is_empty() {
            return scratch.push_absent();
        }
        let mut dropped = 0;
        while tail.len() - dropped > self.tail_limit {
            self.is_cut = true;
            let mut rest = &tail[dropped..];
            if Like::take(&mut rest).is_none() {
                break;
            }
            dropped = tail.len() - rest.len();
        }
        let mut head = Vec::with_capacity(self.templates_bytes + self.head.len() + tail.len());
        head.push(self.templates.len() as u8);
        for template in &self.templates {
            head.extend_from_slice(&(template.len() as u16).to_le_bytes());
            head.extend_from_slice(template);
        }
        head.append(&mut self.head);
        if !self.is_cut {
            head.append(&mut tail);
        }
        let tail = tail.get(dropped..).unwrap_or_default();
        let (kind, complete) = (BodyKind::PackedStream, !self.is_cut);
        scratch.push_body(&Body { kind, head: &head, tail, complete, text: self.text });
    }
}

/// The common parts of an event and a template, at both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Like {
    template: usize,
    start: usize,
    end: usize,
}

impl Like {
    fn of(event: &[u8], template: &[u8], number: usize) -> Self {
        let start = common_prefix(event, template);
        let end = common_suffix(&event[start..], &template[start..]);
        Self { template: number, start, end }
    }

    const fn common(&self) -> usize {
        self.start + self.end
    }

    fn push(&self, out: &mut Vec<u8>, fresh: &[u8]) {
        push_number(out, self.start << 2 | self.template);
        push_number(out, self.end);
        push_number(out, fresh.len());
        out.extend_from_slice(fresh);
    }

    /// Takes an entry from the front of `entries`; None if there is none.
    fn take<'a>(entries: &mut &'a [u8]) -> Option<(Self, &'a [u8])> {
        let first = take_number(entries)?;
        let end = take_number(entries)?;
        let length = take_number(entries)?;
        let (fresh, rest) = entries.split_at_checked(length)?;
        *entries = rest;
        Some((Self { template: first & 3, start: first >> 2, end }, fresh))
    }
}

pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0).take_while(|(a, b)| a == b).count() * 8;
    words + a[words..].iter().zip(&b[words..]).take_while(|(a, b)| a == b).count()
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_rchunks::<8>().1.iter().rev().zip(b.as_rchunks::<8>().1.iter().rev());
    let words = words.take_while(|(a, b)| a == b).count() * 8;
    let (a, b) = (&a[..a.len() - words], &b[..b.len() - words]);
    words + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

fn push_number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number of at most 28 bits; None for anything else.
fn take_number(from: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in [0, 7, 14, 21] {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// A stream, complete except for the part that is missing between head and tail.
#[derive(Debug, Default)]
pub struct Unpacked {
    head: Vec<u8>,
    tail: Vec<u8>,
    complete: bool,
    text: BodyText,
}

impl Unpacked {
    /// Puts the events together again; of noise, as many as there are.
    #[must_use]
    pub fn of(body: &Body<'_>) -> Self {
        let mut entries = body.head;
        let templates = take_templates(&mut entries).unwrap_or_default();
        let (head, tail) = (unpack(entries, &templates), unpack(body.tail, &templates));
        Self { head, tail, complete: body.complete, text: body.text }
    }

    /// The stream as if it had been captured without packing.
    #[must_use]
    pub fn body(&self) -> Body<'_> {
        let Self { head, tail, complete, text } = self;
        Body { kind: BodyKind::Stream, head, tail, complete: *complete, text: *text }
    }
}

fn take_templates<'a>(from: &mut &'a [u8]) -> Option<Vec<&'a [u8]>> {
    let (count, rest) = from.split_first()?;
    *from = rest;
    let mut templates = Vec::new();
    for _ in 0..(*count).min(MAX_TEMPLATES as u8) {
        let (length, rest) = from.split_first_chunk::<2>()?;
        let (template, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        *from = rest;
        templates.push(template);
    }
    Some(templates)
}

fn unpack(mut entries: &[u8], templates: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((like, fresh)) = Like::take(&mut entries) {
        let template = templates.get(like.template).copied().unwrap_or_default();
        if like.start > template.len() || like.end > template.len() || out.len() > MAX_UNPACKED {
            break;
        }
        out.extend_from_slice(&template[..like.start]);
        out.extend_from_slice(fresh);
        out.extend_from_slice(&template[template.len() - like.end..]);
    }
    out
}
