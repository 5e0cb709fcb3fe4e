//! The program that runs a command: its name, and what it gives beside the command line.

use listen::sink::SinkSettings;
use std::io::{self, Read};
use std::path::Path;

/// The program that runs a command.
#[derive(Default)]
pub struct Host {
    /// Its name where it is another one than `inference-logging-listener`.
    pub name: Option<&'static str>,
    /// The configuration as JSON, where the host has read it. Options, environment and file are not looked at then.
    pub configuration: Option<Vec<u8>>,
    /// Databases of the audit lane, where the host can open them.
    pub databases: Option<Box<dyn Databases>>,
}

impl Host {
    /// The name, as messages have it.
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

    /// What opens the lines of a database, in the order of their chain.
    fn reader(&self, path: &Path) -> Box<dyn Fn() -> io::Result<Box<dyn Read>> + Send + Sync>;
}
