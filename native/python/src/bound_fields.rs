//! Fields of a logger that are encoded once, as the values of a record.

use pyo3::prelude::*;
use queue::record::Scratch;

/// Fields that are encoded once: of every record of a logger, or of one record as a map.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct BoundFields {
    pub entries: Vec<BoundField>,
}

#[derive(Clone)]
pub struct BoundField {
    pub name: Box<str>,
    /// Key and value, as they stand in a map.
    pub encoded: Box<[u8]>,
}

impl BoundFields {
    /// Appends all of them as one map.
    pub fn push(&self, scratch: &mut Scratch) {
        scratch.push_map_begin(self.entries.len() as u32);
        self.entries.iter().for_each(|field| scratch.push_values(&field.encoded));
    }
}
