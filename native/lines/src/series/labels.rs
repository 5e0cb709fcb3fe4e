//! Labels of the numbers in tables of fixed size, which no client can grow or fill with names of its own.
//!
//! * outcome: the known ones; anything else is `_OTHER`.
//! * operation: the names that this library gives; anything else, and none, is `_OTHER`.
//! * model: the one that answered, else the requested one. A new name needs a successful answer, or one that has failed
//!   after it named its model. The first [`FREE_MODELS`] get their place at once; then a name must come back
//!   [`RETURNS`] times while it is among the [`CANDIDATES`] most frequent new ones (Misra and Gries). So a client that
//!   invents a name for each request, on a server that accepts any name, gets no places, and does not keep a model that
//!   is really used from getting one.
//! * error: the record's `error.type`, else the status from 400 on, else the outcome; the first [`MAX_ERRORS`] of them.
//! * Failed requests may take half of the series, so that there is always room for successful ones.
//!
//! A name without a place counts as `_OTHER`. A place is never taken away: the meaning of a counter does not change.

use super::observe::{InferenceRequest, OTHER_NAME};
use crate::json::escape::unescape;
use request::outcome::Outcome;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

pub const MAX_SERIES: usize = 128;
const MAX_MODELS: usize = 64;
const MAX_ERRORS: usize = 32;
pub const NAME_BYTES: usize = 120;
/// Models that get a place with their first successful answer.
const FREE_MODELS: usize = 16;
const CANDIDATES: usize = 64;
const RETURNS: u32 = 16;

/// Index for names without a place, in each table of names.
pub const OTHER: u8 = 1;
/// Names of operations by index; 0 is not used, so that a key is never 0.
pub const OPERATIONS: [&str; 6] = ["", OTHER_NAME, "chat", "text_completion", "embeddings", "generate_content"];

/// Names of outcomes by index.
pub const OUTCOMES: [&str; 8] = [
    Outcome::Ok.name(),
    Outcome::Error.name(),
    Outcome::ClientDisconnect.name(),
    Outcome::Timeout.name(),
    Outcome::ServerShutdown.name(),
    Outcome::ProcessDied.name(),
    Outcome::Aborted.name(),
    OTHER_NAME,
];

/// The index of an outcome.
#[inline]
pub fn outcome(name: &[u8]) -> u8 {
    OUTCOMES.iter().position(|known| known.as_bytes() == name).unwrap_or(OUTCOMES.len() - 1) as u8
}

queue::shared! {
    /// Names in the file; the first two places stand for none and for `_OTHER`.
    pub struct Names {
        pub models: Table<MAX_MODELS>,
        pub errors: Table<MAX_ERRORS>,
    }
}

queue::shared! {
    /// A table that only grows. A name is complete before the length counts it.
    pub struct Table<const N: usize> {
        len: AtomicU64,
        names: [[AtomicU8; NAME_BYTES]; N],
    }
}

impl<const N: usize> Table<N> {
    /// The names from place 2 on; without the zeroes at their ends.
    pub fn read(&self) -> Vec<Box<[u8]>> {
        let len = (self.len.load(Ordering::Acquire) as usize).min(N - 2);
        let read = |name: &[AtomicU8; NAME_BYTES]| {
            let bytes: Vec<u8> = name.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
            bytes.iter().take_while(|byte| **byte != 0).copied().collect()
        };
        self.names[2..2 + len].iter().map(read).collect()
    }

    /// Gives `name` the next place.
    pub fn append(&self, place: usize, name: &[u8]) {
        for (stored, byte) in self.names[place].iter().zip(name) {
            stored.store(*byte, Ordering::Relaxed);
        }
        self.len.store(place as u64 - 1, Ordering::Release);
    }
}

/// The leader's knowledge of the tables.
pub struct Labels {
    names: &'static Names,
    keys: &'static [AtomicU64; MAX_SERIES],
    series_len: &'static AtomicU32,
    models: Vec<Box<[u8]>>,
    errors: Vec<Box<[u8]>>,
    series: Vec<u64>,
    /// The last successful request's operation, model in the form of the body, and series: the next is mostly the same.
    last: (Vec<u8>, Vec<u8>, u8),
    admission: Admission,
}

/// Lets new names in that come back, and not those that come once each (Misra and Gries).
#[derive(Default)]
pub struct Admission(Vec<(Box<[u8]>, u32)>);

impl Admission {
    /// Whether a new name gets a place now: the first `free` ones do at once, and there are `most` at most.
    pub fn admits(&mut self, name: &[u8], known: usize, free: usize, most: usize) -> bool {
        if known >= most {
            return false;
        }
        if known < free {
            return true;
        }
        let candidates = &mut self.0;
        if let Some(at) = candidates.iter().position(|(candidate, _)| **candidate == *name) {
            candidates[at].1 += 1;
            let admitted = candidates[at].1 >= RETURNS;
            if admitted {
                candidates.swap_remove(at);
            }
            return admitted;
        }
        if candidates.len() < CANDIDATES {
            candidates.push((name.into(), 1));
        } else {
            candidates.iter_mut().for_each(|(_, count)| *count -= 1);
            candidates.retain(|(_, count)| *count > 0);
        }
        false
    }
}

impl Labels {
    pub fn new(names: &'static Names, keys: &'static [AtomicU64; MAX_SERIES], series_len: &'static AtomicU32) -> Self {
        let len = (series_len.load(Ordering::Acquire) as usize).min(MAX_SERIES);
        Self {
            models: names.models.read(),
            errors: names.errors.read(),
            series: keys[..len].iter().map(|key| key.load(Ordering::Relaxed)).collect(),
            last: Default::default(),
            admission: Admission::default(),
            names,
            keys,
            series_len,
        }
    }

    /// The series of a request.
    #[inline]
    pub fn series(&mut self, seen: &InferenceRequest<'_>) -> u8 {
        let (operation, model, series) = &self.last;
        if operation == seen.operation && model == seen.model && seen.is_ok() {
            return *series;
        }
        self.find(seen)
    }

    #[inline(never)]
    fn find(&mut self, seen: &InferenceRequest<'_>) -> u8 {
        let operation = OPERATIONS[2..].iter().position(|name| name.as_bytes() == seen.operation);
        let operation = operation.map_or(OTHER, |at| at as u8 + 2);
        let error = if seen.is_ok() { 0 } else { self.error(seen) };
        let model = self.model(seen);
        let series = self.place(u64::from_le_bytes([operation, model, error, 0, 0, 0, 0, 0]));
        // A name without a place must be looked up again: it may get one.
        if error == 0 && operation != OTHER && model != OTHER && seen.model.len() <= NAME_BYTES {
            self.last.0.clear();
            self.last.0.extend_from_slice(seen.operation);
            self.last.1.clear();
            self.last.1.extend_from_slice(seen.model);
            self.last.2 = series;
        }
        series
    }

    fn place(&mut self, key: u64) -> u8 {
        if let Some(place) = self.series.iter().position(|known| *known == key) {
            return place as u8;
        }
        let failed = key.to_le_bytes()[2] != 0;
        // The last two places are for requests without another: successful, and failed.
        let (room, fallback) = if failed { (MAX_SERIES / 2, [OTHER; 3]) } else { (MAX_SERIES - 2, [OTHER, OTHER, 0]) };
        let others = u64::from_le_bytes([fallback[0], fallback[1], fallback[2], 0, 0, 0, 0, 0]);
        if self.series.len() >= room && key != others {
            return self.place(others);
        }
        let place = self.series.len();
        if place == MAX_SERIES {
            // Only in a damaged file: it has others in all places, also in the last two.
            return MAX_SERIES as u8 - 1;
        }
        self.keys[place].store(key, Ordering::Relaxed);
        self.series_len.store(place as u32 + 1, Ordering::Release);
        self.series.push(key);
        place as u8
    }

    fn model(&mut self, seen: &InferenceRequest<'_>) -> u8 {
        if seen.model.is_empty() {
            return 0;
        }
        let mut buffer = [0; NAME_BYTES];
        let (len, whole) = unescape(seen.model, &mut buffer);
        let name = &buffer[..len];
        if let Some(at) = self.models.iter().position(|known| **known == *name) {
            return at as u8 + 2;
        }
        if name.is_empty() || !whole || name.contains(&0) || !seen.names_a_model() || !self.admits(name) {
            return OTHER;
        }
        let place = self.models.len() + 2;
        self.names.models.append(place, name);
        self.models.push(name.into());
        place as u8
    }

    /// Whether a new model gets a place now.
    fn admits(&mut self, name: &[u8]) -> bool {
        self.admission.admits(name, self.models.len(), FREE_MODELS, MAX_MODELS - 2)
    }

    fn error(&mut self, seen: &InferenceRequest<'_>) -> u8 {
        let mut status = itoa::Buffer::new();
        let name = match seen {
            InferenceRequest { error_type, .. } if !error_type.is_empty() => error_type,
            InferenceRequest { status: 400.., .. } => status.format(seen.status).as_bytes(),
            _ => seen.outcome,
        };
        if let Some(at) = self.errors.iter().position(|known| **known == *name) {
            return at as u8 + 2;
        }
        if self.errors.len() >= MAX_ERRORS - 2 || !(1..=NAME_BYTES).contains(&name.len()) || name.contains(&0) {
            return OTHER;
        }
        let place = self.errors.len() + 2;
        self.names.errors.append(place, name);
        self.errors.push(name.into());
        place as u8
    }
}

/// The text of a label's index.
pub fn text(names: &[Box<[u8]>], index: u8) -> String {
    match index {
        0 => String::new(),
        OTHER => OTHER_NAME.to_owned(),
        _ => names
            .get(usize::from(index) - 2)
            .map_or_else(|| OTHER_NAME.to_owned(), |name| String::from_utf8_lossy(name).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_without_a_free_place_is_not_written_beyond() {
        // SAFETY: integers only, which zeroes are values of.
        let names: &'static Names = Box::leak(unsafe { Box::new_zeroed().assume_init() });
        let keys: &'static [AtomicU64; MAX_SERIES] =
            Box::leak(Box::new([const { AtomicU64::new(u64::MAX) }; MAX_SERIES]));
        let series_len: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(u32::MAX)));
        let mut labels = Labels::new(names, keys, series_len);
        for key in [1, u64::from_le_bytes([OTHER, OTHER, OTHER, 0, 0, 0, 0, 0])] {
            assert_eq!(usize::from(labels.place(key)), MAX_SERIES - 1);
        }
        assert!(keys.iter().all(|key| key.load(Ordering::Relaxed) == u64::MAX));
    }
}
