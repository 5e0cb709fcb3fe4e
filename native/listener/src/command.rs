//! What every command has: the program that runs it, and the failure that ends it early, with its line on stderr and its
//! exit code.

use listen::settings::ParametersError;
use listen::sink::SinkSettings;
use std::io::{self, Read, Write};
use std::path::Path;

/// The program that runs a command.
#[derive(Default)]
pub struct Host {
    /// The program's name, if it is not `inference-logging-listener`.
    pub name: Option<&'static str>,
    /// The configuration as JSON, if the host has read it. Options, environment and file are ignored then.
    pub configuration: Option<Vec<u8>>,
    /// Databases of the audit lane, if the host can open them.
    pub databases: Option<Box<dyn Databases>>,
}

impl Host {
    /// The program's name in messages.
    pub fn name(&self) -> &'static str {
        self.name.unwrap_or(super::NAME)
    }
}

/// Databases of the audit lane.
pub trait Databases: Send + Sync {
    /// The sink that writes the configured database.
    ///
    /// # Errors
    /// A sentence that names the parameter.
    fn writer(&self) -> Result<SinkSettings, String>;

    /// Returns a function that opens the lines of a database, in the order of their chain.
    fn reader(&self, path: &Path) -> Box<dyn Fn() -> io::Result<Box<dyn Read>> + Send + Sync>;
}

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
