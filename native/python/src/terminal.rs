//! Records as text on a terminal, for the commands that print them.

use lines::terminal::{Look, Record};
use listen::settings::has_colours;
use pyo3::prelude::*;

/// Return a line of JSON as one line for a terminal of that width, without its end.
#[pyfunction]
pub fn terminal_line(line: &[u8], columns: usize, colours: bool) -> String {
    let mut out = Vec::with_capacity(256);
    Look { columns: Some(columns), colours, is_whole: false }.push(&mut out, &Record::read(line), false);
    String::from_utf8_lossy(out.trim_ascii_end()).into_owned()
}

/// Return whether text for people has colours, by `NO_COLOR`, `FORCE_COLOR` and `TERM`.
#[pyfunction]
pub fn terminal_has_colours(is_terminal: bool) -> bool {
    has_colours(is_terminal, |name| std::env::var(name).ok())
}
