//! `verify`: the books of directories, as JSON.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyIterator;
use segments::verify::Request;
use segments::verify::database::Database;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

/// Reads segments and queues without the GIL. `databases` are stores that Python reads: path, prefix, and a callable that
/// returns an iterator over blocks of whole lines, in the order of their chain.
///
/// Raises OSError if a directory or a segment can't be read.
#[pyfunction]
#[pyo3(signature = (directories, queue_directories, prefixes, chain_key, databases = Vec::new()))]
pub fn verify(
    py: Python<'_>,
    directories: Vec<PathBuf>,
    queue_directories: Vec<PathBuf>,
    prefixes: Vec<String>,
    chain_key: Option<Vec<u8>>,
    databases: Vec<(PathBuf, String, Py<PyAny>)>,
) -> PyResult<String> {
    let key = chain_key.map(<[u8; 32]>::try_from).transpose();
    let chain_key =
        key.map_err(|key| PyValueError::new_err(format!("chain_key has {} bytes, must have 32", key.len())))?;
    let databases = databases.into_iter().map(|(path, prefix, blocks)| database(path, prefix, blocks)).collect();
    let request = Request { directories, databases, queue_directories, prefixes, chain_key };
    Ok(py.detach(|| segments::verify::verify(&request))?.to_string())
}

fn database(path: PathBuf, prefix: String, blocks: Py<PyAny>) -> Database {
    let open = move || {
        let blocks = Python::attach(|py| blocks.bind(py).call0()?.try_iter().map(Bound::unbind));
        let blocks = blocks.map_err(in_words)?;
        Ok(Box::new(Blocks { blocks, block: Vec::new(), at: 0 }) as Box<dyn Read>)
    };
    Database { path, prefix, open: Arc::new(open) }
}

fn in_words(error: PyErr) -> io::Error {
    io::Error::other(error.to_string())
}

/// What an iterator over `bytes` yields, as one stream.
struct Blocks {
    blocks: Py<PyIterator>,
    block: Vec<u8>,
    at: usize,
}

impl Read for Blocks {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.block.len() {
            let next = Python::attach(|py| {
                self.blocks.bind(py).clone().next().transpose()?.map(|block| block.extract()).transpose()
            });
            let Some(block) = next.map_err(in_words)? else { return Ok(0) };
            (self.block, self.at) = (block, 0);
        }
        let taken = into.len().min(self.block.len() - self.at);
        into[..taken].copy_from_slice(&self.block[self.at..self.at + taken]);
        self.at += taken;
        Ok(taken)
    }
}
