//! A configuration from its sources: the command line takes precedence over the environment, and the environment over a
//! file.
//!
//! `inference_logging/record/config/config.py` reads the same variables and files. A file here must be JSON, which
//! is YAML too, or have lines of a name and a value.

use crate::common::expanded;
use crate::words::ParametersError;
use std::path::Path;

const PREFIX: &str = "INFERENCE_LOGGING_";
const CONFIG_FILE: &str = "config_file";
/// The key of an object with parameters that only experts need; they count like those beside it.
pub(crate) const ADVANCED: &str = "advanced";
pub(crate) const VERSION: &str = "version";

/// A value as a reader has it.
pub(crate) trait Form: for<'a> From<&'a str> {
    /// The value that the text of a variable stands for, by the type of its parameter.
    fn of_variable(name: &str, text: &str) -> Self;

    /// The values of a file, without a version that is right.
    fn of_file(bytes: &[u8]) -> Result<Vec<(String, Self)>, String>;

    /// What is wrong with the value, in a sentence that begins with the parameter.
    fn fault(&self, name: &str) -> Option<String>;
}

/// Values with where each comes from, and the problems of their sources.
struct Gathered<V> {
    values: Vec<(String, V)>,
    origins: Vec<String>,
    file: Option<String>,
    sentences: Vec<String>,
}

/// Gathers the valid values of `keywords`, `config_file` perhaps among them, then of the variables of `environment` whose
/// names begin with `INFERENCE_LOGGING_`, then of the file that either names.
pub(crate) fn gathered<V: Form>(
    keywords: &[(&str, &str)],
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Vec<(String, V)>, ParametersError> {
    let mut gathered = Gathered { values: Vec::new(), origins: Vec::new(), file: None, sentences: Vec::new() };
    for (name, text) in keywords {
        gathered.add_text(name, text, V::from(*text), "keyword".to_owned());
    }
    for (variable, text) in environment {
        let Some(rest) = variable.strip_prefix(PREFIX).filter(|rest| !is_service_link(rest)) else { continue };
        let name = rest.to_ascii_lowercase();
        if name == ADVANCED || name == VERSION {
            gathered.sentences.push(format!("{name} (environment {variable}): is no parameter with a variable"));
            continue;
        }
        gathered.add_text(&name, &text, V::of_variable(&name, &text), format!("environment {variable}"));
    }
    gathered.add_file();
    gathered.checked()
}

impl<V: Form> Gathered<V> {
    fn add_text(&mut self, name: &str, text: &str, value: V, origin: String) {
        if name == CONFIG_FILE {
            self.file.get_or_insert_with(|| text.to_owned());
        } else {
            self.add(name.to_owned(), value, origin);
        }
    }

    /// Adds a value, unless a stronger source has given one.
    fn add(&mut self, name: String, value: V, origin: String) {
        if self.values.iter().all(|(known, _)| *known != name) {
            self.values.push((name, value));
            self.origins.push(origin);
        }
    }

    /// Adds the values of the file that is named, if one is.
    fn add_file(&mut self) {
        let Some(path) = self.file.take().filter(|path| !path.is_empty()).map(expanded) else { return };
        let bytes = std::fs::read(Path::new(&path)).map_err(|error| format!("can't be read: {error}"));
        match bytes.and_then(|bytes| V::of_file(&bytes)) {
            Ok(values) if values.iter().any(|(name, _)| name == CONFIG_FILE) => {
                self.sentences.push(format!("{CONFIG_FILE}='{path}': a file can't name another file"));
            }
            Ok(values) => values.into_iter().for_each(|(name, value)| self.add(name, value, "file".to_owned())),
            Err(reason) => self.sentences.push(format!("{CONFIG_FILE}='{path}': {reason}")),
        }
    }

    fn checked(mut self) -> Result<Vec<(String, V)>, ParametersError> {
        let given = self.values.iter().zip(&self.origins);
        let faults = given
            .filter_map(|((name, value), origin)| value.fault(name).map(|sentence| with_origin(&sentence, origin)));
        self.sentences.extend(faults);
        if self.sentences.is_empty() { Ok(self.values) } else { Err(self.sentences.into()) }
    }
}

/// Whether Kubernetes gives each pod this variable for a Service of its namespace: one called inference-logging must not
/// stop it.
fn is_service_link(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    (0..words.len()).any(|at| match &words[at..] {
        ["SERVICE", "HOST"] | ["PORT"] | ["SERVICE", "PORT", ..] => true,
        ["PORT", number, "TCP" | "UDP" | "SCTP", ..] => is_number(number),
        _ => false,
    })
}

/// Puts the origin of the value into a sentence: behind the value, or behind an unknown name.
fn with_origin(sentence: &str, origin: &str) -> String {
    let end = sentence.rfind(": must be ").or_else(|| sentence.find(": unknown "));
    let (what, why) = sentence.split_at(end.unwrap_or(sentence.len()));
    format!("{what} ({origin}){why}")
}
