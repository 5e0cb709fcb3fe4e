//! How much of a queue goes into a batch.

/// How much more a batch takes.
#[derive(Clone, Copy)]
pub struct Room {
    /// Reached by the last record that is added.
    pub bytes: usize,
    pub records: u64,
    /// The sequence of the first record that is left for later.
    pub until: u64,
}

impl Room {
    /// Room for `bytes`.
    #[must_use]
    pub const fn of_bytes(bytes: usize) -> Self {
        Self { bytes, records: u64::MAX, until: u64::MAX }
    }

    /// Room for a number of records of any size.
    #[must_use]
    pub const fn of_records(records: u64) -> Self {
        Self { bytes: usize::MAX, records, until: u64::MAX }
    }
}
