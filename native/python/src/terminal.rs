//! Records as text on a terminal, for the commands that print them.

use lines::terminal::{Look, Record, is_plain_word, safe, safe_utf16};
use listen::settings::has_colours;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// Return a line of JSON as one line for a terminal of that width, without its end.
#[pyfunction]
pub fn terminal_line(line: &[u8], columns: usize, colours: bool) -> String {
    let mut out = Vec::with_capacity(256);
    Look { columns: Some(columns), colours, is_whole: false }.push(&mut out, &Record::read(line), false);
    String::from_utf8_lossy(out.trim_ascii_end()).into_owned()
}

/// Return the text on one line without control characters: each is escaped as in JSON, `\u001b`.
#[pyfunction]
pub fn terminal_safe(text: &Bound<'_, PyString>) -> PyResult<String> {
    if let Ok(text) = text.to_str() {
        return Ok(safe(text));
    }
    let encoded = text.call_method1("encode", ("utf-16-le", "surrogatepass"))?.cast_into::<PyBytes>()?;
    let units = encoded.as_bytes().chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    Ok(safe_utf16(units))
}

/// Return whether the text stands without quotes as one word of `key=value`.
#[pyfunction]
pub fn terminal_is_word(text: &Bound<'_, PyString>) -> bool {
    text.to_str().is_ok_and(is_plain_word)
}

/// Return whether text for people has colours, by `NO_COLOR`, `FORCE_COLOR` and `TERM`.
#[pyfunction]
pub fn terminal_has_colours(is_terminal: bool) -> bool {
    has_colours(is_terminal, |name| std::env::var(name).ok())
}
