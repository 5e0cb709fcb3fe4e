//! The histograms, their buckets, and the places of their numbers and of the tokens in a series.

/// Bounds of `gen_ai.server.request.duration`, seconds (GenAI semantic conventions 1.41).
const DURATION_S: [f64; 14] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Those of `gen_ai.server.time_to_first_token`: here it is the first chunk.
const FIRST_CHUNK_S: [f64; 16] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// Those of `gen_ai.server.time_per_output_token`, and of chunks beside it.
const PER_TOKEN_S: [f64; 13] = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];

/// How many histograms a series has.
pub const KINDS: usize = 4;
/// Buckets of all of them, the last one of each without bound.
pub const ALL_BUCKETS: usize = DURATION_S.len() + FIRST_CHUNK_S.len() + 2 * PER_TOKEN_S.len() + KINDS;
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
pub const BOUNDS: [Histogram; KINDS] = [
    Histogram { name: "gen_ai_server_request_duration_seconds", bounds_s: &DURATION_S, first_word: 0, first_bucket: 0 },
    Histogram {
        name: "gen_ai_server_time_to_first_chunk_seconds",
        bounds_s: &FIRST_CHUNK_S,
        first_word: DURATION_S.len() + 2,
        first_bucket: DURATION_S.len() + 1,
    },
    Histogram {
        name: "gen_ai_server_time_per_chunk_seconds",
        bounds_s: &PER_TOKEN_S,
        first_word: DURATION_S.len() + FIRST_CHUNK_S.len() + 4,
        first_bucket: DURATION_S.len() + FIRST_CHUNK_S.len() + 2,
    },
    Histogram {
        name: "gen_ai_server_time_per_output_token_seconds",
        bounds_s: &PER_TOKEN_S,
        first_word: DURATION_S.len() + FIRST_CHUNK_S.len() + PER_TOKEN_S.len() + 6,
        first_bucket: DURATION_S.len() + FIRST_CHUNK_S.len() + PER_TOKEN_S.len() + 3,
    },
];

impl Histogram {
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
