//! The failure that ends a command early: the line on stderr, and the exit code.

use listen::settings::ParametersError;
use std::io::Write;

/// The command has succeeded; a check found nothing.
pub const OK: u8 = 0;
/// Something failed or is left over, or a check found something.
pub const FAILED: u8 = 1;
/// The command line or the configuration is wrong; nothing was done.
pub const USAGE: u8 = 2;
/// A signal ended the command early.
pub const INTERRUPTED: u8 = 130;
/// The reader of the output has gone away (`… | head`): 128 + SIGPIPE, without a message.
const BROKEN_PIPE: u8 = 141;

/// The reason why a command ends.
pub enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// The configuration is wrong.
    Configuration(ParametersError),
    /// A resource is not available.
    Open(String),
    /// The command could not do what was asked for.
    Refused(String),
    /// The user asked for the help, which is no failure.
    Help(String),
}

impl Failure {
    /// A sentence about the command line of `program`.
    pub fn usage(program: &str, sentence: &str) -> Self {
        Self::Usage(format!("Error: {sentence} (see {program} --help)"))
    }

    /// Prints the failure, and returns the exit code.
    pub fn show(&self) -> u8 {
        match self {
            Self::Usage(line) => eprintln!("{line}"),
            Self::Configuration(error) => {
                eprintln!("inference-logging: inference_logging is configured wrongly:");
                error.sentences.iter().for_each(|sentence| eprintln!("  {sentence}"));
            }
            Self::Open(sentence) => eprintln!("inference-logging: {sentence}"),
            Self::Refused(sentence) => eprintln!("Error: {sentence}"),
            Self::Help(text) => return show(text, OK),
        }
        if matches!(self, Self::Open(_) | Self::Refused(_)) { FAILED } else { USAGE }
    }
}

/// Writes a text to stdout. Returns `code`, or the code for a reader that has gone away.
pub fn show(text: &str, code: u8) -> u8 {
    let written = std::io::stdout().lock().write_all(text.as_bytes());
    if written.is_err() { BROKEN_PIPE } else { code }
}
