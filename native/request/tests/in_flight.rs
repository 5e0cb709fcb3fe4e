//! Reading a slot into which something else has written.

use proptest::prelude::*;
use request::fields;
use request::in_flight::terminal;
use request::outcome::Outcome;
use ring::slots::{SLOT_WORDS, Slots};
use std::sync::atomic::{AtomicU64, Ordering};

proptest! {
    #[test]
    fn noise_in_a_slot_neither_panics_nor_stays_open(words in proptest::collection::vec(any::<u64>(), SLOT_WORDS), tag in 0usize..4) {
        let words: Vec<AtomicU64> = words.into_iter().map(AtomicU64::new).collect();
        let tag = [*b"OPEN", *b"CLAI", *b"ENDS", *b"junk"][tag];
        let low = words[0].load(Ordering::Relaxed) & 0xffff_ffff;
        words[0].store(u64::from(u32::from_le_bytes(tag)) << 32 | low, Ordering::Relaxed);
        let slot = Slots::new(&words).get(0).unwrap();
        slot.settle_end(|_| false);
        let record = terminal::record(slot, Outcome::ProcessDied, 5, &fields::schemas());
        assert!(record.payload.len() < 4096);
    }
}
