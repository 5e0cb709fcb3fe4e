//! Runs the listener's commands in the interpreter; Python opens the audit lane's databases.

use super::writer::python_sink;
use listen::sink::SinkSettings;
use listener::host::{Databases, Host};
use pyo3::prelude::*;
use pyo3::types::PyIterator;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Run a command line of `inference-logging-listener` with this configuration, one JSON object, and return the exit code.
///
/// The output of the command goes to the descriptors of standard output and standard error. `writer` returns a callable
/// that writes the configured database: it takes the lines of each batch, and None at the end. `reader` takes the path
/// of a database, and returns an iterator over blocks of whole lines, in the order of their chain.
#[pyfunction]
pub fn run_listener(
    py: Python<'_>,
    arguments: Vec<OsString>,
    configuration: Vec<u8>,
    writer: Py<PyAny>,
    reader: Py<PyAny>,
) -> u8 {
    let databases = PythonDatabases { writer, reader: Arc::new(reader) };
    let host = Host {
        name: Some("inference-logging"),
        configuration: Some(configuration),
        databases: Some(Box::new(databases)),
    };
    py.detach(|| listener::run(&host, arguments.into_iter()))
}

struct PythonDatabases {
    writer: Py<PyAny>,
    reader: Arc<Py<PyAny>>,
}

impl Databases for PythonDatabases {
    fn writer(&self) -> Result<SinkSettings, String> {
        Python::attach(|py| match self.writer.bind(py).call0() {
            Ok(writer) => Ok(python_sink("sqlite", writer.unbind())),
            Err(error) => Err(error.value(py).to_string()),
        })
    }

    fn reader(&self, path: &Path) -> Box<dyn Fn() -> io::Result<Box<dyn Read>> + Send + Sync> {
        let (reader, path) = (Arc::clone(&self.reader), PathBuf::from(path));
        Box::new(move || {
            let blocks = Python::attach(|py| reader.bind(py).call1((&path,))?.try_iter().map(Bound::unbind));
            let blocks = blocks.map_err(in_words)?;
            Ok(Box::new(Blocks { blocks, block: Vec::new(), at: 0 }))
        })
    }
}

fn in_words(error: PyErr) -> io::Error {
    io::Error::other(error.to_string())
}

/// The `bytes` that an iterator yields, as one stream.
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
