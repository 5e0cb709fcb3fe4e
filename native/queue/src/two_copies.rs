//! Numbers in shared memory that change all at once, whichever process is killed in between.
//!
//! There are two copies; the generation's lowest bit names the valid one. A change writes the other copy and then
//! advances the generation, which is one store: before it nothing has changed, after it everything has. A reader that
//! is overtaken reads again.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// How often a reader begins again; a writer that changes faster than any reader can read has other troubles.
const TRIES: usize = 100;

crate::shared! {
    /// Names the valid one of two copies; zero, as in a new file, names the first.
    pub struct Generation(AtomicU64);
}

impl Generation {
    /// Reads the generation; it only grows.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Lets `read` read the valid copy, again if a writer changed it meanwhile.
    pub fn read<R>(&self, mut read: impl FnMut(usize) -> R) -> R {
        for _ in 1..TRIES {
            let before = self.now();
            let seen = read((before & 1) as usize);
            // Pairs with the fence in `change`: a reader that saw a word of the next change but one sees its generation.
            fence(Ordering::Acquire);
            if self.0.load(Ordering::Relaxed) == before {
                return seen;
            }
        }
        read((self.now() & 1) as usize)
    }

    /// Lets `write` make the copy `to` from the copy `from`, and makes it valid. One writer at a time.
    pub fn change(&self, write: impl FnOnce(usize, usize)) {
        let now = self.now();
        fence(Ordering::Release);
        write((now & 1) as usize, (now & 1 ^ 1) as usize);
        // Wraps: a damaged page must not stop the writer.
        self.0.store(now.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{AtomicU64, Generation, Ordering};

    #[test]
    fn readers_never_see_half_of_a_change() {
        let generation = Generation(AtomicU64::new(0));
        let copies: [[AtomicU64; 8]; 2] = Default::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for _ in 0..20_000 {
                    generation.change(|from, to| {
                        for (old, new) in copies[from].iter().zip(&copies[to]) {
                            new.store(old.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        }
                    });
                    // A reader gives up after so many changes in a row; real changes are milliseconds apart.
                    std::thread::yield_now();
                    (0..200).for_each(|_| std::hint::spin_loop());
                }
            });
            let mut last = 0;
            while !writer.is_finished() {
                let seen = generation.read(|copy| copies[copy].each_ref().map(|word| word.load(Ordering::Relaxed)));
                assert!(seen.iter().all(|word| *word == seen[0]), "{seen:?}");
                assert!(seen[0] >= last, "backwards");
                last = seen[0];
            }
        });
        assert_eq!(generation.now(), 20_000);
    }

    #[test]
    fn a_writer_that_dies_in_a_change_leaves_what_was_before() {
        let generation = Generation(AtomicU64::new(0));
        let copies: [AtomicU64; 2] = [AtomicU64::new(7), AtomicU64::new(0)];
        let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            generation.change(|_, to| {
                copies[to].store(8, Ordering::Relaxed);
                panic!("killed");
            });
        }));
        assert!(died.is_err());
        assert_eq!(generation.read(|copy| copies[copy].load(Ordering::Relaxed)), 7);
    }
}
