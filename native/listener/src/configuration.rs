//! The configuration of a command: its options, the environment, and the file that either names.

use super::failure::Failure;
use super::options::Options;
use listen::settings::Settings;
use std::path::PathBuf;

/// Parameters that options give, and the names of these.
const OPTIONS: [(&str, &str); 4] = [
    ("config_file", "config"),
    ("service_name", "service-name"),
    ("queue_directory", "queue-directory"),
    ("directory", "directory"),
];

/// A configuration and the directory of its queues.
pub struct Configuration {
    /// As it was given.
    pub settings: Settings,
    /// The configured directory, or the default one.
    pub queue_directory: PathBuf,
}

impl Configuration {
    /// Reads it; of the options, those that are `taken` name parameters.
    ///
    /// # Errors
    /// Each wrong parameter.
    pub fn read(options: &Options, taken: &[&str]) -> Result<Self, Failure> {
        Self::with(options, taken, &[])
    }

    /// Reads it, with more parameters from the command line.
    ///
    /// # Errors
    /// Each wrong parameter.
    pub fn with(options: &Options, taken: &[&str], more: &[(&str, &str)]) -> Result<Self, Failure> {
        let given = OPTIONS.iter().filter(|(_, option)| taken.contains(option));
        let given = given.filter_map(|(name, option)| Some((*name, options.text(option)?)));
        let given: Vec<(&str, &str)> = given.chain(more.iter().copied()).collect();
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            // A name that is no text is none of ours.
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        });
        let settings = Settings::from_sources(&given, environment).map_err(Failure::Configuration)?;
        let queue_directory = settings.resolved_queue_directory();
        Ok(Self { settings, queue_directory })
    }

    /// Refuses a store that needs Python.
    ///
    /// # Errors
    /// The configuration has one.
    pub fn refuse_foreign_store(&self) -> Result<(), Failure> {
        let sentence = "audit_sink='sqlite': must be file here; a database needs `inference-logging`";
        let refused = || Failure::Configuration(vec![sentence.to_owned()].into());
        if self.settings.has_foreign_store() { Err(refused()) } else { Ok(()) }
    }

    /// The settings with the directory of the queues in any case.
    pub fn resolved(&self) -> Settings {
        self.settings.with_queue_directory(&self.queue_directory)
    }
}
