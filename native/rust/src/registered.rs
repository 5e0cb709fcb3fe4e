//! The events that a log has registered, by id.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a log knows of its events. A program may write over a handle, which then must not name another event, such as one of
/// the listener's own.
pub struct Registered([OnceLock<Box<Block>>; BLOCKS]);

type Block = [AtomicU32; 1 << BLOCK_BITS];
const BLOCK_BITS: u32 = 8;
const BLOCKS: usize = 1 << (u16::BITS - BLOCK_BITS);

impl Registered {
    pub const fn new() -> Self {
        Self([const { OnceLock::new() }; BLOCKS])
    }

    /// Takes note of an event; `form` is all but its id, and not 0.
    pub fn note(&self, id: u16, form: u32) {
        let block = self.0[usize::from(id >> BLOCK_BITS)]
            .get_or_init(|| Box::new([const { AtomicU32::new(0) }; 1 << BLOCK_BITS]));
        block[usize::from(id) % block.len()].store(form, Ordering::Release);
    }

    /// Whether an event is one of them. Takes no lock.
    #[inline]
    pub fn has(&self, id: u16, form: u32) -> bool {
        let block = self.0[usize::from(id >> BLOCK_BITS)].get();
        block.is_some_and(|block| block[usize::from(id) % block.len()].load(Ordering::Acquire) == form)
    }
}
