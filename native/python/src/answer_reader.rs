//! `AnswerReader`: what an answer says, read as a recording reads it, for the command `replay`.

use lines::catalogue::Semconv;
use lines::extract::push_facts;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use queue::record::{Body, BodyKind, BodyText};
use request::capture::Content;
use request::events::{EventReader, Form};
use std::sync::{Mutex, MutexGuard};

/// Most bytes of an answer that are kept for its token counts.
const KEPT_BYTES: usize = 16 << 20;

struct Answer {
    events: EventReader,
    kept: Vec<u8>,
}

/// Reads one answer as its parts come.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct AnswerReader {
    answer: Mutex<Answer>,
    /// The content type is that of a stream.
    #[pyo3(get)]
    is_stream: bool,
}

impl AnswerReader {
    fn inner(&self) -> PyResult<MutexGuard<'_, Answer>> {
        self.answer.lock().map_err(|_| PyRuntimeError::new_err("a call has panicked"))
    }
}

#[pymethods]
impl AnswerReader {
    #[new]
    fn new(content_type: &[u8]) -> Self {
        let content = Content::of_type(content_type);
        let events = EventReader::new(Form::of(content), 0);
        Self { answer: Mutex::new(Answer { events, kept: Vec::new() }), is_stream: matches!(content, Content::Stream) }
    }

    /// Read the next bytes of the body, or its end; return how many chunks end with them.
    fn read(&self, part: &[u8], is_last: bool) -> PyResult<u32> {
        let mut answer = self.inner()?;
        let room = KEPT_BYTES - answer.kept.len();
        answer.kept.extend_from_slice(&part[..part.len().min(room)]);
        Ok(answer.events.read(part, is_last).chunks)
    }

    /// Return whether the body reports a failure.
    #[getter]
    fn has_failed(&self) -> PyResult<bool> {
        Ok(self.inner()?.events.has_failed())
    }

    /// Return the tokens of input and output, as far as the body declares them.
    fn tokens(&self) -> PyResult<(Option<u64>, Option<u64>)> {
        let answer = self.inner()?;
        let kind = if self.is_stream { BodyKind::Stream } else { BodyKind::Response };
        let body = Body { kind, head: &answer.kept, tail: &[], complete: true, text: BodyText::Withheld };
        let [input, output] = push_facts(&mut Vec::new(), &body, Semconv::default()).tokens;
        Ok((input, output))
    }
}
