//! The state of engines, from the last `engine.stats` record of each, in each process that reports of it.
//!
//! These are gauges: a record that is read a second time says the same again, so that they need no generation, and a place
//! can be given to another engine. There are [`MAX_ENGINES`] places; a new engine takes that of the oldest record.

use queue::event::EventSchema;
use queue::record::{Value, Values};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Most engines of a queue directory.
pub const MAX_ENGINES: usize = 32;
/// The event of an engine's statistics.
const NAME: &str = "engine.stats";
/// The fields that are read, in the order of the words.
const FIELDS: [&str; 5] =
    ["engine.index", "engine.interval_s", "engine.running", "engine.waiting", "engine.kv_cache_usage"];

queue::shared! {
    /// The last record of an engine. `version` is odd while the words change; 0: nothing was ever here.
    pub struct EngineWords {
        version: AtomicU64,
        boot_id: AtomicU64,
        unix_nano: AtomicU64,
        /// Floats as bits, as [`FIELDS`] names them; not a number: the record does not have it.
        values: [AtomicU64; FIELDS.len()],
    }
}

/// What an engine's last record says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineState {
    /// The number of the engine in its server.
    pub index: f64,
    pub unix_nano: u64,
    /// Seconds that the record is about.
    pub interval_s: f64,
    pub running: f64,
    pub waiting: f64,
    pub kv_cache_usage: f64,
}

/// Who made a record, and when.
#[derive(Clone, Copy, Debug)]
pub struct Reporter<'a> {
    /// 16 hex digits.
    pub boot_id: &'a str,
    pub unix_nano: u64,
}

/// Where a record of statistics has its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineFields([Option<usize>; FIELDS.len()]);

impl EngineFields {
    /// None: the event is another one.
    #[must_use]
    pub fn of(schema: &EventSchema) -> Option<Self> {
        let place = |name: &str| schema.fields.iter().position(|field| field == name);
        (&*schema.name == NAME).then(|| Self(FIELDS.map(place)))
    }

    fn values(&self, payload: &[u8]) -> [f64; FIELDS.len()] {
        let mut found = [f64::NAN; FIELDS.len()];
        for (position, value) in Values::new(payload).map_while(Result::ok).enumerate() {
            if let Some(field) = self.0.iter().position(|place| *place == Some(position)) {
                found[field] = number(value);
            }
        }
        found
    }
}

fn number(value: Value<'_>) -> f64 {
    match value {
        Value::Uint(number) => number as f64,
        Value::Int(number) => number as f64,
        Value::Float(number) => number,
        _ => f64::NAN,
    }
}

/// Keeps what a record says, whose payload has been read without error.
#[inline(never)]
pub fn note(places: &[EngineWords; MAX_ENGINES], fields: &EngineFields, reporter: Reporter<'_>, payload: &[u8]) {
    let values = fields.values(payload);
    let boot_id = u64::from_str_radix(reporter.boot_id, 16).unwrap_or_default();
    let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let is_same = |words: &&EngineWords| {
        load(&words.version) != 0 && load(&words.boot_id) == boot_id && load(&words.values[0]) == values[0].to_bits()
    };
    let place = places.iter().find(is_same).or_else(|| {
        places.iter().min_by_key(|words| if load(&words.version) == 0 { 0 } else { load(&words.unix_nano) })
    });
    if let Some(place) = place {
        place.store(boot_id, reporter, &values);
    }
}

impl EngineWords {
    fn store(&self, boot_id: u64, reporter: Reporter<'_>, values: &[f64; FIELDS.len()]) {
        let version = self.version.load(Ordering::Relaxed) | 1;
        self.version.store(version, Ordering::Relaxed);
        fence(Ordering::Release);
        self.boot_id.store(boot_id, Ordering::Relaxed);
        self.unix_nano.store(reporter.unix_nano, Ordering::Relaxed);
        for (word, value) in self.values.iter().zip(values) {
            word.store(value.to_bits(), Ordering::Relaxed);
        }
        // Pairs with the first load of `read`. Never 0 again, also where a damaged page had the last number.
        self.version.store(version.wrapping_add(1).max(2), Ordering::Release);
    }

    fn read(&self) -> Option<EngineState> {
        let version = self.version.load(Ordering::Acquire);
        if version == 0 || version & 1 != 0 {
            return None;
        }
        let [index, interval_s, running, waiting, kv_cache_usage] =
            self.values.each_ref().map(|word| f64::from_bits(word.load(Ordering::Relaxed)));
        let unix_nano = self.unix_nano.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let state = EngineState { index, unix_nano, interval_s, running, waiting, kv_cache_usage };
        (self.version.load(Ordering::Relaxed) == version).then_some(state)
    }
}

/// Reads the engines that have reported, those that change at this moment left out.
pub fn read(places: &[EngineWords; MAX_ENGINES]) -> Vec<EngineState> {
    places.iter().filter_map(EngineWords::read).collect()
}
