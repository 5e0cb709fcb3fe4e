//! A few bytes that are kept while more come.

/// At most `MAX` bytes; what is beyond is left out.
#[derive(Clone, Debug)]
pub struct Held<const MAX: usize> {
    bytes: [u8; MAX],
    length: u8,
}

impl<const MAX: usize> Default for Held<MAX> {
    fn default() -> Self {
        Self { bytes: [0; MAX], length: 0 }
    }
}

impl<const MAX: usize> Held<MAX> {
    /// Adds bytes; returns whether all had room.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let from = usize::from(self.length);
        let kept = bytes.len().min(MAX - from);
        self.bytes[from..from + kept].copy_from_slice(&bytes[..kept]);
        self.length += kept as u8;
        kept == bytes.len()
    }

    pub fn get(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub const fn clear(&mut self) {
        self.length = 0;
    }
}
