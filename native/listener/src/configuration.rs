//! The configuration of a command: its options, the environment, and the file that one of these names.

use super::application;
use super::failure::Failure;
use super::host::Host;
use super::options::Options;
use listen::settings::{Settings, plain};
use std::path::PathBuf;

/// Parameters that an option sets, each with the option's name.
const OPTIONS: [(&str, &str); 4] = [
    ("config_file", "config"),
    ("service_name", "service-name"),
    ("queue_directory", "queue-directory"),
    ("directory", "directory"),
];

/// A configuration and the directory of its queues.
pub struct Configuration {
    /// The settings as they were given.
    pub settings: Settings,
    /// The configured directory, or the default one.
    pub queue_directory: PathBuf,
}

impl Configuration {
    /// Reads the configuration. `taken` names the options that set parameters.
    ///
    /// # Errors
    /// Each wrong parameter.
    pub fn read(host: &Host, options: &Options, taken: &[&str]) -> Result<Self, Failure> {
        Self::with(host, options, taken, &[])
    }

    /// Reads the configuration, with more parameters from the command line.
    ///
    /// # Errors
    /// Each wrong parameter.
    pub fn with(host: &Host, options: &Options, taken: &[&str], more: &[(&str, &str)]) -> Result<Self, Failure> {
        if let Some(json) = &host.configuration {
            return Settings::from_json(json).map(Self::of).map_err(Failure::Configuration);
        }
        let given = OPTIONS.iter().filter(|(_, option)| taken.contains(option));
        let given = given.filter_map(|(name, option)| Some((*name, options.text(option)?)));
        let given: Vec<(&str, &str)> = given.chain(more.iter().copied()).collect();
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            // A name that is not text is not one of our variables.
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        });
        Settings::from_sources(&given, environment).map(Self::of).map_err(Failure::Configuration)
    }

    fn of(settings: Settings) -> Self {
        let queue_directory = settings.resolved_queue_directory();
        Self { settings, queue_directory }
    }

    /// This configuration with the queue directory of the application that it means; with `--all`, one for each.
    ///
    /// # Errors
    /// Several are meant.
    pub fn of_application(self, options: &Options) -> Result<Vec<Self>, Failure> {
        let more = if options.takes("all") { ". --all means all of them" } else { "" };
        let wrong = |sentence: String| options.wrong(&(sentence + more));
        let found = application::meant(&self.settings, options.text("service-name").is_some(), options.has("all"))
            .map_err(wrong)?;
        let named = found.iter().map(|path| {
            let settings = self.settings.with_queue_directory(path);
            Self { settings, queue_directory: plain(path) }
        });
        let named: Vec<Self> = named.collect();
        Ok(if named.is_empty() { vec![self] } else { named })
    }

    /// Refuses a store that needs Python, where the host has no Python.
    ///
    /// # Errors
    /// The configuration has such a store.
    pub fn refuse_foreign_store(&self, host: &Host) -> Result<(), Failure> {
        let sentence = "audit_sink='sqlite': must be file here; a database needs `inference-logging`";
        let refused = || Failure::Configuration(vec![sentence.to_owned()].into());
        if host.databases.is_none() && self.settings.has_foreign_store() { Err(refused()) } else { Ok(()) }
    }

    /// The settings, with the queue directory always filled in.
    pub fn resolved(&self) -> Settings {
        self.settings.with_queue_directory(&self.queue_directory)
    }
}
