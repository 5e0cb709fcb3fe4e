//! Sequences as intervals: the gaps between them, the sequences that are there twice, and the part of a gap that is
//! explained.

/// Sequences from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub first: u64,
    pub last: u64,
}

impl Interval {
    /// How many sequences it has.
    #[must_use]
    pub fn records(self) -> u64 {
        self.last - self.first + 1
    }

    /// The common part of both.
    #[must_use]
    pub fn overlap(self, other: Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(Self { first, last })
    }

    /// The rest of it without `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Vec<Self> {
        let Some(cut) = self.overlap(other) else { return vec![self] };
        let before = (cut.first > self.first).then(|| Self { first: self.first, last: cut.first - 1 });
        let behind = (cut.last < self.last).then(|| Self { first: cut.last + 1, last: self.last });
        before.into_iter().chain(behind).collect()
    }
}

/// A run of present sequences, and its owner.
#[derive(Clone, Copy, Debug)]
pub struct Stretch<T> {
    pub interval: Interval,
    pub of: T,
}

/// Missing sequences, and their neighbours on both sides.
#[derive(Clone, Copy, Debug)]
pub struct Gap<T> {
    pub interval: Interval,
    pub after: Option<T>,
    pub before: Option<T>,
}

/// Sequences that are there twice.
#[derive(Clone, Copy, Debug)]
pub struct Doubled<T> {
    pub interval: Interval,
    pub places: [T; 2],
}

/// Walks over stretches: finds the sequences that are missing below `until`, and those that are there twice.
pub fn walk<T: Copy>(stretches: &mut [Stretch<T>], until: u64) -> (Vec<Gap<T>>, Vec<Doubled<T>>) {
    stretches.sort_by_key(|stretch| (stretch.interval.first, stretch.interval.last));
    let (mut gaps, mut doubled) = (Vec::new(), Vec::new());
    // The sequence that should come next, and the owner of the one before it.
    let (mut next, mut after) = (0_u64, None);
    for Stretch { interval, of } in stretches.iter().copied() {
        if interval.first > next {
            let missing = Interval { first: next, last: interval.first - 1 };
            gaps.push(Gap { interval: missing, after, before: Some(of) });
        }
        if let (true, Some(other)) = (interval.first < next, after) {
            let both = Interval { first: interval.first, last: interval.last.min(next - 1) };
            doubled.push(Doubled { interval: both, places: [other, of] });
        }
        if after.is_none() || interval.last >= next {
            (next, after) = (interval.last.saturating_add(1), Some(of));
        }
    }
    if until > next {
        gaps.push(Gap { interval: Interval { first: next, last: until - 1 }, after, before: None });
    }
    (gaps, doubled)
}

/// Divides intervals into the parts that the explanations cover, each with its own, and the rest.
pub fn explain<T: Copy>(whole: Interval, explanations: &[(Interval, T)]) -> (Vec<(Interval, T)>, Vec<Interval>) {
    let (mut explained, mut rest) = (Vec::new(), vec![whole]);
    for (known, why) in explanations {
        explained.extend(rest.iter().filter_map(|part| part.overlap(*known)).map(|part| (part, *why)));
        rest = rest.into_iter().flat_map(|part| part.without(*known)).collect();
    }
    explained.sort_by_key(|(part, _)| part.first);
    (explained, rest)
}
