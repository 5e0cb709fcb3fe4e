//! Reads and writes the numbers of index files, little-endian and within bounds.

/// A file, or a part of one, is not what an index would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// Takes numbers and texts from the front of bytes.
pub struct Take<'a>(pub &'a [u8]);

impl<'a> Take<'a> {
    /// # Errors
    /// There are fewer bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        self.bytes(N)?.try_into().map_err(|_| Damaged)
    }

    /// # Errors
    /// There are fewer bytes.
    pub fn u8(&mut self) -> Result<u8, Damaged> {
        Ok(self.array::<1>()?[0])
    }

    /// # Errors
    /// There are fewer bytes.
    pub fn u32(&mut self) -> Result<u32, Damaged> {
        self.array().map(u32::from_le_bytes)
    }

    /// # Errors
    /// There are fewer bytes.
    pub fn u64(&mut self) -> Result<u64, Damaged> {
        self.array().map(u64::from_le_bytes)
    }

    /// # Errors
    /// There are fewer bytes, or they are not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Damaged> {
        let len = self.u32()? as usize;
        std::str::from_utf8(self.bytes(len)?).map_err(|_| Damaged)
    }
}

/// Appends numbers and texts in the form that [`Take`] reads.
pub trait Put {
    fn put_u8(&mut self, value: u8);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    fn put_text(&mut self, text: &str);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_text(&mut self, text: &str) {
        self.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.extend_from_slice(text.as_bytes());
    }
}
