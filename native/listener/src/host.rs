//! The program that runs a command: its name, and what it provides besides the command line.

use listen::sink::SinkSettings;
use std::io::{self, Read};
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
