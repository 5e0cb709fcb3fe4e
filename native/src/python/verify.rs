//! `verify`: the books of directories, as JSON.

use crate::verify::Request;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;

/// Reads segments and queues without the GIL; raises OSError if a directory or a segment can't be read.
#[pyfunction]
#[pyo3(signature = (directories, queue_directories, prefixes, chain_key))]
pub fn verify(
    py: Python<'_>,
    directories: Vec<PathBuf>,
    queue_directories: Vec<PathBuf>,
    prefixes: Vec<String>,
    chain_key: Option<Vec<u8>>,
) -> PyResult<String> {
    let key = chain_key.map(<[u8; 32]>::try_from).transpose();
    let chain_key =
        key.map_err(|key| PyValueError::new_err(format!("chain_key has {} bytes, must have 32", key.len())))?;
    let request = Request { directories, queue_directories, prefixes, chain_key };
    Ok(py.detach(|| crate::verify::verify(&request))?.to_string())
}
