//! A sink that is a Python callable, for stores that only Python's standard library reaches, such as SQLite.
//!
//! The sink runs on its own thread and takes the GIL for each batch, which no other sink does.

use listen::sink::settings::Other;
use listen::sink::{Now, Sink, SinkSettings, WriteError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io;
use std::sync::Arc;

/// Calls `writer` with the lines of each batch, and with None at the end.
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
