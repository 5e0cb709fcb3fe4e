//! What a text may contain, as far as a quick look shows.

/// What a text may contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints(u8);

impl Hints {
    /// An at sign.
    pub const AT: Self = Self(1);
    /// Digits enough for a number of a card or a phone.
    pub const DIGITS: Self = Self(2);
    /// The beginning of a key or credentials, or their names.
    pub const KEYS: Self = Self(4);
    /// The name of a field.
    pub const NAMES: Self = Self(8);
    /// Escapes or percent-encoding that can hide any of the others.
    pub const CODED: Self = Self(16);
    /// A match of an expression of the configuration.
    pub const CUSTOM: Self = Self(32);
    /// The mark of a cut.
    pub const CUT: Self = Self(64);

    /// Anything at all.
    pub const ALL: Self = Self(127);

    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn add(&mut self, other: Self, is_there: bool) {
        if is_there {
            self.0 |= other.0;
        }
    }
}

impl std::ops::BitOr for Hints {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
