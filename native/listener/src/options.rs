//! The command line of one command: arguments, and options. Most options have a value, and the last one counts.

use super::command::Failure;
use super::command::Host;
use crate::application;
use lexopt::{Arg, Parser};
use listen::settings::{Settings, plain};
use std::collections::HashMap;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

/// The syntax of a command's line.
pub struct Syntax {
    /// The command's name, which follows the program's.
    pub name: &'static str,
    pub help: &'static str,
    /// The names of options that take a value.
    pub valued: &'static [&'static str],
    /// The names of options without a value.
    pub flags: &'static [&'static str],
    pub most_arguments: usize,
}

/// The options that were given.
pub struct Options {
    program: &'static str,
    syntax: &'static Syntax,
    values: HashMap<String, Vec<String>>,
    arguments: Vec<String>,
}

impl Options {
    /// Reads a command line.
    ///
    /// # Errors
    /// The command line is wrong, or asks for the help.
    pub fn read(
        host: &Host,
        syntax: &'static Syntax,
        arguments: impl Iterator<Item = OsString>,
    ) -> Result<Self, Failure> {
        Self::read_before(host, syntax, arguments, None)
    }

    /// Reads the options before the name of a command. The name and what follows it go to `rest`.
    ///
    /// # Errors
    /// As [`Options::read`].
    pub fn read_before(
        host: &Host,
        syntax: &'static Syntax,
        arguments: impl Iterator<Item = OsString>,
        rest: Option<&mut Vec<OsString>>,
    ) -> Result<Self, Failure> {
        let mut options = Self { program: host.name(), syntax, values: HashMap::new(), arguments: Vec::new() };
        let mut parser = Parser::from_args(arguments);
        while let Some(argument) = parser.next().map_err(|error| options.wrong(&error.to_string()))? {
            match argument {
                Arg::Short('h') | Arg::Long("help") => return Err(Failure::Help(syntax.help.to_owned())),
                Arg::Long(name) if syntax.valued.contains(&name) => {
                    let name = name.to_owned();
                    let missing = format!("Option '--{name}' requires an argument.");
                    let value = parser.value().map_err(|_| options.wrong(&missing))?;
                    let value = value.into_string().map_err(|_| options.wrong(&format!("--{name}: must be UTF-8")))?;
                    options.values.entry(name).or_default().push(value);
                }
                Arg::Long(name) if syntax.flags.contains(&name) => {
                    options.values.insert(name.to_owned(), Vec::new());
                }
                Arg::Long(name) => return Err(options.wrong(&format!("No such option '--{name}'."))),
                Arg::Short(name) => return Err(options.wrong(&format!("No such option '-{name}'."))),
                Arg::Value(value) => match rest {
                    Some(rest) => {
                        rest.push(value);
                        rest.extend(parser.raw_args().into_iter().flatten());
                        return Ok(options);
                    }
                    None => options.arguments.push(value.to_string_lossy().into_owned()),
                },
            }
        }
        options.refuse_extra()?;
        Ok(options)
    }

    fn refuse_extra(&self) -> Result<(), Failure> {
        let extra = self.arguments.get(self.syntax.most_arguments..).unwrap_or_default();
        match extra {
            [] => Ok(()),
            [one] => Err(self.wrong(&format!("Got unexpected extra argument ({one})"))),
            all => Err(self.wrong(&format!("Got unexpected extra arguments ({})", all.join(" ")))),
        }
    }

    /// The text of an option, if it was given.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts(name).last().map(String::as_str)
    }

    /// Every value of an option, in their order.
    pub fn texts(&self, name: &str) -> &[String] {
        self.values.get(name).map_or(&[], Vec::as_slice)
    }

    /// Takes the options of a command into those of its group: they mean the same in both places.
    pub fn take(&mut self, of_command: &Self) {
        for (name, values) in &of_command.values {
            self.values.entry(name.clone()).or_default().extend(values.iter().cloned());
        }
    }

    /// Whether the command has such an option without a value.
    pub fn takes(&self, name: &str) -> bool {
        self.syntax.flags.contains(&name)
    }

    /// Whether an option without a value was given.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The arguments.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// The number that an option gives, if it was given.
    ///
    /// # Errors
    /// The text is not a number of `kind`, or the number is out of `range`.
    pub fn number<N: FromStr + PartialOrd + std::fmt::Display>(
        &self,
        name: &str,
        kind: &str,
        range: RangeInclusive<N>,
    ) -> Result<Option<N>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let wrong = |why: String| self.wrong(&format!("Invalid value for '--{name}': {why}"));
        let number: N = text.trim().parse().map_err(|_| wrong(format!("'{text}' is not a valid {kind}.")))?;
        if !range.contains(&number) {
            let (least, most) = (range.start(), range.end());
            return Err(wrong(format!("{text} is not in the range {least}<=x<={most}.")));
        }
        Ok(Some(number))
    }

    /// The failure for a wrong command line.
    pub fn wrong(&self, sentence: &str) -> Failure {
        Failure::usage(&format!("{} {}", self.program, self.syntax.name), sentence)
    }
}

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
