//! Runs the listener's commands in the interpreter. Python opens the audit lane's databases; a sink that is a Python callable
//! writes stores that only Python's standard library reaches, such as SQLite.

use listen::sink::settings::Other;
use listen::sink::{Now, Sink, SinkSettings, WriteError};
use listener::command::{Databases, Host};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator};
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

/// Calls `writer` with the lines of each batch, and with None at the end; on its own thread, which takes the GIL for each
/// batch, as no other sink does.
struct PythonSink {
    writer: Arc<Py<PyAny>>,
}

/// Returns the settings of a sink that calls `writer`. The callable takes bytes and returns once they are committed,
/// all of them or none; with None it releases its resources.
pub fn python_sink(name: &str, writer: Py<PyAny>) -> SinkSettings {
    let writer = Arc::new(writer);
    let open = Arc::new(move || Box::new(PythonSink { writer: Arc::clone(&writer) }) as Box<dyn Sink>);
    SinkSettings::Other(Other { name: name.to_owned(), open })
}

impl PythonSink {
    fn call(&self, lines: Option<&[u8]>) -> io::Result<()> {
        let called = Python::try_attach(|py| {
            let lines = lines.map(|lines| PyBytes::new(py, lines));
            // The error becomes text, since it must be readable without an interpreter.
            self.writer.bind(py).call1((lines,)).map(drop).map_err(|error| io::Error::other(error.to_string()))
        });
        called.unwrap_or_else(|| Err(io::Error::other("the interpreter has ended")))
    }
}

impl Sink for PythonSink {
    fn name(&self) -> &'static str {
        "python"
    }

    fn write(&mut self, lines: &[u8], _records: u64, _now: Now) -> Result<(), WriteError> {
        self.call(Some(lines)).map_err(WriteError::nothing_written)
    }

    fn close(&mut self, _now: Now, _footer: &[u8]) -> io::Result<()> {
        self.call(None)
    }

    fn is_durable(&self) -> bool {
        true
    }
}
