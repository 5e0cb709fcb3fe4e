//! The histograms, their buckets, and the places of their numbers and of the tokens in a series.

/// Bounds of `gen_ai.server.request.duration`, seconds (GenAI semantic conventions 1.41).
const DURATION_S: [f64; 14] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Those of `gen_ai.server.time_to_first_token`: here it is the first chunk.
const FIRST_CHUNK_S: [f64; 16] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// Those of `gen_ai.server.time_per_output_token`, and of chunks beside it.
const PER_TOKEN_S: [f64; 13] = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];

/// How many histograms a series has.
pub const KINDS: usize = 7;
/// Buckets of all of them, the last one of each without bound.
pub(crate) const ALL_BUCKETS: usize = BOUNDS[KINDS - 1].first_bucket + BOUNDS[KINDS - 1].buckets();
/// The buckets that keep an example each: those of the first histograms, by what the client sees.
pub(crate) const EXEMPLAR_BUCKETS: usize = BOUNDS[KINDS - ENGINE_KINDS].first_bucket;
/// The last of the histograms, over times in the engine.
pub(crate) const ENGINE_KINDS: usize = 3;
/// The types of tokens, in the order of their words.
pub const TOKEN_TYPES: [&str; 2] = ["input", "output"];
/// The first of their words, after the histograms.
pub const TOKENS_WORD: usize = ALL_BUCKETS + KINDS;
/// Words of a series: its buckets, a sum for each histogram, and its tokens.
pub const WORDS: usize = TOKENS_WORD + TOKEN_TYPES.len();

/// One histogram and its place among the words of a series: a word per bucket, not cumulated, then the sum.
pub struct Histogram {
    pub name: &'static str,
    pub bounds_s: &'static [f64],
    pub first_word: usize,
    pub first_bucket: usize,
}

/// The histograms, in the order of [`Observed`](super::Observed) values.
pub const BOUNDS: [Histogram; KINDS] = {
    let duration = Histogram::first("gen_ai_server_request_duration_seconds", &DURATION_S);
    let first_chunk = duration.then("gen_ai_server_time_to_first_chunk_seconds", &FIRST_CHUNK_S);
    let per_chunk = first_chunk.then("gen_ai_server_time_per_chunk_seconds", &PER_TOKEN_S);
    let per_token = per_chunk.then("gen_ai_server_time_per_output_token_seconds", &PER_TOKEN_S);
    let queued = per_token.then("inference_logging_engine_queue_time_seconds", &DURATION_S);
    let prefill = queued.then("inference_logging_engine_prefill_time_seconds", &DURATION_S);
    let decode = prefill.then("inference_logging_engine_decode_time_seconds", &DURATION_S);
    [duration, first_chunk, per_chunk, per_token, queued, prefill, decode]
};

impl Histogram {
    /// A histogram at the beginning of the words.
    #[must_use]
    pub const fn first(name: &'static str, bounds_s: &'static [f64]) -> Self {
        Self { name, bounds_s, first_word: 0, first_bucket: 0 }
    }

    /// The histogram behind this one.
    const fn then(&self, name: &'static str, bounds_s: &'static [f64]) -> Self {
        let (first_word, first_bucket) = (self.sum_word() + 1, self.first_bucket + self.buckets());
        Self { name, bounds_s, first_word, first_bucket }
    }

    /// The bucket of a value: the first whose bound is not below it.
    #[must_use]
    pub fn bucket(&self, value: f64) -> usize {
        self.bounds_s.iter().position(|bound| value <= *bound).unwrap_or(self.bounds_s.len())
    }

    /// Buckets, the one without bound included.
    #[must_use]
    pub const fn buckets(&self) -> usize {
        self.bounds_s.len() + 1
    }

    /// The word after the last bucket's.
    #[must_use]
    pub const fn sum_word(&self) -> usize {
        self.first_word + self.buckets()
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL_BUCKETS, BOUNDS, TOKENS_WORD};

    #[test]
    fn the_histograms_lie_one_behind_the_other() {
        let (mut word, mut bucket) = (0, 0);
        for histogram in &BOUNDS {
            assert_eq!((histogram.first_word, histogram.first_bucket), (word, bucket), "{}", histogram.name);
            word += histogram.buckets() + 1;
            bucket += histogram.buckets();
        }
        assert_eq!((word, bucket), (TOKENS_WORD, ALL_BUCKETS));
    }

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let [duration, ..] = &BOUNDS;
        assert_eq!([0.0, 0.01, 0.0100001, 81.92, 81.93].map(|value| duration.bucket(value)), [0, 0, 1, 13, 14]);
    }
}
