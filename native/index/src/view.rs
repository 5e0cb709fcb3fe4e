//! One block of a segment's index, of which columns are read when they are asked for, once.

use crate::block::{Block, Decoded, Values};
use crate::image::{Image, Reader, Unreadable};

/// One block, with what was read of it.
pub struct View<'a, 'i> {
    pub image: &'i Image,
    pub at: usize,
    pub block: &'i Block,
    reader: &'a mut Reader<'i>,
    read: Vec<(usize, Option<Decoded>)>,
}

impl<'a, 'i> View<'a, 'i> {
    /// Begins with the block at a place.
    #[must_use]
    pub fn new(image: &'i Image, at: usize, reader: &'a mut Reader<'i>) -> Self {
        Self { image, at, block: &image.blocks[at].1, reader, read: Vec::new() }
    }

    /// Returns the values of a column; None if no record has one.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn column(&mut self, id: usize) -> Result<Option<&Decoded>, Unreadable> {
        let place = match self.read.iter().position(|(read, _)| *read == id) {
            Some(place) => place,
            None => {
                self.read.push((id, self.reader.section(self.at, id)?));
                self.read.len() - 1
            }
        };
        Ok(self.read[place].1.as_ref())
    }

    /// Returns the numbers of a column for all records; NaN for none.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn dense(&mut self, id: usize) -> Result<Vec<f64>, Unreadable> {
        let rows = self.block.rows;
        Ok(self.column(id)?.map_or_else(|| vec![f64::NAN; rows], |decoded| decoded.dense(rows)))
    }

    /// Returns the numbers of a column that every record has.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn integers(&mut self, id: usize) -> Result<&[i64], Unreadable> {
        let rows = self.block.rows;
        match self.column(id)? {
            Some(Decoded { values: Values::Ints(values), .. }) if values.len() == rows => Ok(values),
            _ => Err(Unreadable::Damaged),
        }
    }

    /// Returns the texts of a column's dictionary.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn texts(&mut self, column: usize) -> Result<Vec<String>, Unreadable> {
        self.reader.texts(column)
    }
}
