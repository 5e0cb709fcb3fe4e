//! A value of a body, as texts need it.

use super::parts::Piece;

/// A value of a body.
#[derive(Clone, Copy)]
pub enum Found<'a> {
    Text(Piece<'a>),
    Word(&'a [u8]),
}

impl<'a> Found<'a> {
    pub fn piece(self) -> Option<Piece<'a>> {
        match self {
            Self::Text(piece) => Some(piece),
            Self::Word(_) => None,
        }
    }

    /// A text that is certainly whole.
    pub fn whole(self) -> Option<&'a [u8]> {
        self.piece().filter(|piece| !piece.lacks_start && !piece.lacks_end).map(|piece| piece.raw)
    }

    pub fn number(self) -> Option<u64> {
        match self {
            Self::Word(word) => std::str::from_utf8(word).ok()?.parse().ok(),
            Self::Text(_) => None,
        }
    }

    /// A digit or sign: not null, true or false.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Word([b'-' | b'0'..=b'9', ..]))
    }
}
