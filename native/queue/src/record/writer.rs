//! The writing half of `record`: a scratch buffer on the caller's stack that takes tagged values.
//!
//! Invariants of [`Scratch`]: while `limit == INLINE_BYTES` the payload is `inline[..len]`, all of it initialised, and
//! `spill` is empty; once a value did not fit, `limit == 0`, `len == 0` and the payload is `spill`. So one comparison
//! per value, `need <= limit - len`, decides between the two.

use super::room::{Room, copy_short};
use super::{Body, Tag, Trace};
use std::mem::MaybeUninit;

/// Payloads up to this size never touch the allocator.
pub const INLINE_BYTES: usize = 2048;

/// Tag, kind, two lengths and flags of a body.
const BODY_OVERHEAD_BYTES: usize = 11;

/// Collects the tagged values of one record, on the stack up to [`INLINE_BYTES`], in a `Vec` beyond.
///
/// Pushing never fails. A piece longer than `u32::MAX` bytes is cut there; queues refuse such records anyway.
pub struct Scratch {
    len: usize,
    limit: usize,
    spill: Vec<u8>,
    inline: [MaybeUninit<u8>; INLINE_BYTES],
}

impl Default for Scratch {
    #[inline(always)]
    fn default() -> Self {
        Self::new()
    }
}

impl Scratch {
    /// Make an empty scratch; allocates nothing.
    #[inline(always)]
    pub fn new() -> Self {
        Self { len: 0, limit: INLINE_BYTES, spill: Vec::new(), inline: [const { MaybeUninit::uninit() }; INLINE_BYTES] }
    }

    /// Forget all values; memory that was spilled to is kept for the next record.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
        self.limit = INLINE_BYTES;
        self.spill.clear();
    }

    /// Return the payload written so far.
    #[inline(always)]
    pub fn as_slice(&self) -> &[u8] {
        if self.limit == 0 {
            return &self.spill;
        }
        // SAFETY: `len <= INLINE_BYTES`, and `inline[..len]` was initialised by the pushes that advanced `len`.
        unsafe { std::slice::from_raw_parts(self.inline.as_ptr().cast(), self.len) }
    }

    /// The inline bytes that are left, for many small values in a row; none once something did not fit.
    #[inline(always)]
    pub fn room(&mut self) -> Room<'_> {
        // SAFETY: `len <= limit <= INLINE_BYTES`; `inline` is borrowed with the scratch.
        unsafe { Room::new(&mut self.len, self.inline.as_mut_ptr().cast(), self.limit) }
    }

    /// Push "no value": the encoder leaves the key out.
    #[inline(always)]
    pub fn push_absent(&mut self) {
        self.fixed([Tag::Absent as u8]);
    }

    /// Push so many of them.
    #[inline(always)]
    pub fn push_absents(&mut self, count: usize) {
        let to = self.claim(count);
        // SAFETY: `claim` returned that many writable bytes that nothing else borrows.
        unsafe { to.write_bytes(Tag::Absent as u8, count) }
    }

    /// Push JSON `null`.
    #[inline(always)]
    pub fn push_null(&mut self) {
        self.fixed([Tag::Null as u8]);
    }

    /// Push a boolean.
    #[inline(always)]
    pub fn push_bool(&mut self, value: bool) {
        self.fixed([Tag::False as u8 + u8::from(value)]);
    }

    /// Push a signed integer.
    #[inline(always)]
    pub fn push_int(&mut self, value: i64) {
        self.word(Tag::Int, value.to_le_bytes());
    }

    /// Push an unsigned integer.
    #[inline(always)]
    pub fn push_uint(&mut self, value: u64) {
        self.word(Tag::Uint, value.to_le_bytes());
    }

    /// Push a float; NaN and infinities are kept.
    #[inline(always)]
    pub fn push_float(&mut self, value: f64) {
        self.word(Tag::Float, value.to_le_bytes());
    }

    /// Push text.
    #[inline(always)]
    pub fn push_str(&mut self, value: &str) {
        self.piece(Tag::Str, value.as_bytes());
    }

    /// Push text that may be invalid UTF-8; the encoder replaces what is not.
    #[inline(always)]
    pub fn push_bytes(&mut self, value: &[u8]) {
        self.piece(Tag::Bytes, value);
    }

    /// Push texts with their tags, [`Tag::Str`] or [`Tag::Bytes`]; an empty one is absent. Less code than as many calls.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub fn push_texts(&mut self, texts: &[(Tag, &[u8])]) {
        for (tag, text) in texts {
            match text.is_empty() {
                true => self.push_absent(),
                false => self.piece(*tag, text),
            }
        }
    }

    /// Push numbers of eight bytes with their tags. Less code than as many calls.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub fn push_numbers(&mut self, numbers: &[(Tag, u64)]) {
        for (tag, bits) in numbers {
            self.word(*tag, bits.to_le_bytes());
        }
    }

    /// Push encoded JSON. The caller promises one valid JSON value without raw line breaks (as orjson writes it).
    #[inline(always)]
    pub fn push_json(&mut self, value: &[u8]) {
        self.piece(Tag::Json, value);
    }

    /// Push values that another scratch has collected.
    pub fn push_values(&mut self, values: &[u8]) {
        let to = self.claim(values.len());
        // SAFETY: `claim` returned that many writable bytes, exclusively ours, so `values` does not overlap.
        unsafe { to.copy_from_nonoverlapping(values.as_ptr(), values.len()) }
    }

    /// Push a trace context; at the top level only.
    #[inline]
    pub fn push_trace(&mut self, trace: &Trace) {
        let mut value = [0; 34];
        value[0] = Tag::Trace as u8;
        value[1..17].copy_from_slice(&trace.trace_id);
        value[17..25].copy_from_slice(&trace.span_id);
        value[25..33].copy_from_slice(&trace.parent_span_id);
        value[33] = trace.flags;
        self.fixed(value);
    }

    /// Push a chunk timeline in microseconds.
    pub fn push_gaps(&mut self, micros: &[u32]) {
        let micros = &micros[..micros.len().min(u32::MAX as usize)];
        self.counted(Tag::Gaps, micros.len() as u32);
        for gap in micros {
            self.fixed(gap.to_le_bytes());
        }
    }

    /// Begin a map: `count` pairs of [`Self::push_map_key`] and one value must follow.
    #[inline]
    pub fn push_map_begin(&mut self, count: u32) {
        self.counted(Tag::Map, count);
    }

    /// Push the key of the next map entry.
    #[inline]
    pub fn push_map_key(&mut self, key: &str) {
        self.untagged_piece(key.as_bytes());
    }

    /// Push a captured body; at the top level only. The tail of a complete body is dropped.
    pub fn push_body(&mut self, body: &Body<'_>) {
        self.fixed([Tag::Body as u8, body.kind as u8]);
        self.untagged_piece(body.head);
        self.untagged_piece(if body.complete { &[] } else { body.tail });
        self.fixed([u8::from(body.complete) | (body.text as u8) << 1]);
    }

    /// Push a whole body whose beginning is its head, and whose end stands elsewhere; at the top level only.
    #[inline]
    pub fn push_body_in_two(&mut self, body: &Body<'_>, rest: &[u8]) {
        let (head, rest) = (capped(body.head), capped(rest));
        let bytes = head.len() + rest.len();
        debug_assert!(body.complete && bytes <= u32::MAX as usize);
        let to = self.claim(BODY_OVERHEAD_BYTES + bytes);
        // SAFETY: `claim` returned so many writable bytes, exclusively ours, so that neither slice overlaps: two bytes, the
        // length and the bytes of the head, an empty tail, and a byte.
        unsafe {
            to.cast::<[u8; 2]>().write_unaligned([Tag::Body as u8, body.kind as u8]);
            to.add(2).cast::<[u8; 4]>().write_unaligned((bytes as u32).to_le_bytes());
            copy_short(head.as_ptr(), to.add(6), head.len());
            copy_short(rest.as_ptr(), to.add(6 + head.len()), rest.len());
            to.add(6 + bytes).cast::<[u8; 4]>().write_unaligned([0; 4]);
            to.add(10 + bytes).write(1 | (body.text as u8) << 1);
        }
    }

    #[inline(always)]
    fn word(&mut self, tag: Tag, value: [u8; 8]) {
        let to = self.claim(9);
        // SAFETY: `claim` returned 9 writable bytes that nothing else borrows.
        unsafe {
            to.write(tag as u8);
            to.add(1).cast::<[u8; 8]>().write_unaligned(value);
        }
    }

    #[inline]
    fn counted(&mut self, tag: Tag, count: u32) {
        let to = self.claim(5);
        // SAFETY: `claim` returned 5 writable bytes that nothing else borrows.
        unsafe {
            to.write(tag as u8);
            to.add(1).cast::<[u8; 4]>().write_unaligned(count.to_le_bytes());
        }
    }

    #[inline(always)]
    fn piece(&mut self, tag: Tag, bytes: &[u8]) {
        let bytes = capped(bytes);
        let to = self.claim(5 + bytes.len());
        // SAFETY: `claim` returned `5 + bytes.len()` writable bytes, exclusively ours, so `bytes` does not overlap.
        unsafe {
            to.write(tag as u8);
            to.add(1).cast::<[u8; 4]>().write_unaligned((bytes.len() as u32).to_le_bytes());
            copy_short(bytes.as_ptr(), to.add(5), bytes.len());
        }
    }

    #[inline]
    fn untagged_piece(&mut self, bytes: &[u8]) {
        let bytes = capped(bytes);
        let to = self.claim(4 + bytes.len());
        // SAFETY: `claim` returned `4 + bytes.len()` writable bytes, exclusively ours, so `bytes` does not overlap.
        unsafe {
            to.cast::<[u8; 4]>().write_unaligned((bytes.len() as u32).to_le_bytes());
            copy_short(bytes.as_ptr(), to.add(4), bytes.len());
        }
    }

    #[inline(always)]
    fn fixed<const N: usize>(&mut self, bytes: [u8; N]) {
        // SAFETY: `claim` returned N writable bytes that nothing else borrows.
        unsafe { self.claim(N).cast::<[u8; N]>().write_unaligned(bytes) }
    }

    /// Count `need` bytes as written and return where they go; the caller fills all of them at once.
    #[inline(always)]
    fn claim(&mut self, need: usize) -> *mut u8 {
        if need <= self.limit - self.len {
            // SAFETY: `len + need <= limit <= INLINE_BYTES`, so the pointer and the bytes behind it stay inside `inline`.
            let to = unsafe { self.inline.as_mut_ptr().cast::<u8>().add(self.len) };
            self.len += need;
            return to;
        }
        self.claim_spilled(need)
    }

    #[cold]
    #[inline(never)]
    fn claim_spilled(&mut self, need: usize) -> *mut u8 {
        let mut spill = std::mem::take(&mut self.spill);
        if self.limit != 0 {
            spill.reserve((self.len + need).max(4 * INLINE_BYTES));
            spill.extend_from_slice(self.as_slice());
            self.len = 0;
            self.limit = 0;
        }
        let at = spill.len();
        spill.resize(at + need, 0);
        self.spill = spill;
        self.spill[at..].as_mut_ptr()
    }
}

#[inline(always)]
fn capped(bytes: &[u8]) -> &[u8] {
    if bytes.len() > u32::MAX as usize { &bytes[..u32::MAX as usize] } else { bytes }
}
