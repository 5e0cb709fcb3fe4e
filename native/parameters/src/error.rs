//! What is wrong with a configuration.

use std::fmt;

/// The problems of a configuration. Retrying never helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParametersError {
    /// One for each problem: it begins with the parameter, and names the value and what is allowed.
    pub sentences: Vec<String>,
}

impl ParametersError {
    /// The parameters at fault, in the order of the sentences.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        let is_of_name = |byte: char| byte.is_ascii_alphanumeric() || byte == '_';
        self.sentences.iter().map(move |sentence| {
            let end = sentence.find(|byte| !is_of_name(byte)).unwrap_or(sentence.len());
            &sentence[..end]
        })
    }
}

impl From<Vec<String>> for ParametersError {
    fn from(sentences: Vec<String>) -> Self {
        Self { sentences }
    }
}

impl fmt::Display for ParametersError {
    /// One sentence a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentences.join("\n"))
    }
}

impl std::error::Error for ParametersError {}
