//! `ctl`: changes level, sampling and capture of running servers for a while, each change on record.
//!
//! The servers map one page of the queue directory. A change is one store to that page, and every process sees it with
//! its next request. Nothing is sent to the servers, and none has to run: a server that starts later sees what is in
//! force.

use super::application;
use super::command::Host;
use super::command::{self, Failure, OK, USAGE};
use super::control::{self, Control};
use super::options::{Options, Syntax};
use crate::options::Configuration;
use listen::overrides::{self, Change, Override, checked_route};
use listen::settings::queue_directories;
use queue::event::{ERROR, INFO, WARN};
use queue::hex;
use request::runtime::settings::{CHUNKS_MODES, CaptureTarget, Until};
use request::sampler::checked_ratio;
use segments::segment::Utc;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

const DEBUG: u8 = 5;
const LEVELS: [(&str, u8); 4] = [("DEBUG", DEBUG), ("INFO", INFO), ("WARN", WARN), ("ERROR", ERROR)];
const MOST_ERRORS: i64 = 1_000_000;
const FOR: &str = "15m";
const CAPTURES: [&str; 3] = ["trace", "route", "errors"];

/// Which servers are meant; these options may stand before and behind the command.
const PLACE: &[&str] = &["config", "service-name", "queue-directory"];
const PLACE_FOR: &[&str] = &["for", "config", "service-name", "queue-directory"];
const ALL: &[&str] = &["all"];

static GROUP: Syntax = Syntax { name: "ctl", help: HELP, valued: PLACE, flags: ALL, most_arguments: 0 };
static COMMANDS: [Syntax; 9] = [
    Syntax { name: "ctl disable", help: HELP, valued: PLACE_FOR, flags: ALL, most_arguments: 0 },
    Syntax { name: "ctl enable", help: HELP, valued: PLACE, flags: ALL, most_arguments: 0 },
    Syntax { name: "ctl level", help: HELP, valued: PLACE_FOR, flags: ALL, most_arguments: 1 },
    Syntax { name: "ctl sample-ratio", help: HELP, valued: PLACE_FOR, flags: ALL, most_arguments: 1 },
    Syntax { name: "ctl chunks", help: HELP, valued: PLACE_FOR, flags: ALL, most_arguments: 1 },
    Syntax {
        name: "ctl capture",
        help: HELP,
        valued: &["trace", "route", "errors", "for", "config", "service-name", "queue-directory"],
        flags: ALL,
        most_arguments: 0,
    },
    Syntax { name: "ctl show", help: HELP, valued: PLACE, flags: &["all", "json"], most_arguments: 0 },
    Syntax { name: "ctl reset", help: HELP, valued: PLACE, flags: ALL, most_arguments: 0 },
    Syntax { name: "ctl clean", help: HELP, valued: PLACE, flags: ALL, most_arguments: 0 },
];
const HELP: &str = "\
Usage: inference-logging-listener ctl [OPTIONS] COMMAND [ARGS]...

  Change level, sampling and capture while the servers run, or switch it all off, for a while.

  The servers are those of this folder's application: found by the queue directory of their configuration, which is
  read here from the same environment and file, else by the segments in the configured directory. --service-name names
  those of a service. If there are several, they are listed and nothing changes. Only the user to whom a queue
  directory belongs can change anything (its mode is 0700). Each change is on record (control.changed) before it takes
  effect, in all processes at once.

Options, before or behind the command:
  --config PATH           JSON file, as if config_file named it.
  --service-name TEXT     As service_name of the servers.
  --queue-directory PATH  As queue_directory of the servers.
  --all                   Mean each queue directory of the application, if it has several.
  -h, --help              Show this message and exit.

Commands:
  disable             Record nothing: requests pass through, loggers and events do nothing. The audit lane goes on.
  enable              Record again what disable has switched off, before its time is over.
  level LEVEL         Accept application records from LEVEL on: DEBUG, INFO, WARN or ERROR.
  sample-ratio RATIO  Record this share of traces, those of routes with a ratio of their own included.
  chunks MODE         Record streams in this MODE: off, summary, timeline or events.
  capture             Record everything there is of --trace ID, of --route PATH, or of the next --errors N.
  show [--json]       Show what is in force, and until when.
  reset               End everything that is in force; the servers do again as they are configured.
  clean               Remove the application's queue directories whose processes have all ended; with --all, those of
                      all services that this user has by default.

  disable, level, sample-ratio, chunks and capture take --for TIME: how long, such as 90s, 15m or 2h, at most
  control_limit_s.  [default: 15m]
";

/// A parsed command line: the program, the options of `ctl`, and those of its command.
struct Given<'a> {
    host: &'a Host,
    group: Options,
    options: Options,
}

/// Runs the command to its end.
///
/// # Errors
/// The command line or the configuration is wrong, or the change cannot be made.
pub fn run(host: &Host, arguments: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let mut rest = Vec::new();
    let mut group = Options::read_before(host, &GROUP, arguments, Some(&mut rest))?;
    let mut rest = rest.into_iter();
    let Some(command) = rest.next() else {
        eprint!("{HELP}");
        return Ok(USAGE);
    };
    let command = command.to_string_lossy();
    let syntax = COMMANDS.iter().find(|syntax| syntax.name.strip_prefix("ctl ") == Some(&*command));
    let syntax = syntax.ok_or_else(|| group.wrong(&format!("no such command: '{command}'")))?;
    let options = Options::read(host, syntax, rest)?;
    group.take(&options);
    let given = Given { host, group, options };
    match &*command {
        "clean" => given.clean(),
        "show" => given.show(given.options.has("json")),
        "enable" => given.end(Control::enable),
        "reset" => given.end(Control::reset),
        _ => given.change(&command),
    }
}

impl Given<'_> {
    fn change(&self, command: &str) -> Result<u8, Failure> {
        let change = self.wanted(command)?;
        let seconds = self.seconds()?;
        for (_, control) in self.controls()? {
            control.change(&change, seconds).map_err(Failure::Refused)?;
        }
        self.show(false)
    }

    fn end(&self, end: fn(&Control) -> Result<usize, String>) -> Result<u8, Failure> {
        let mut ended = 0;
        for (_, control) in self.controls()? {
            ended += end(&control).map_err(Failure::Refused)?;
        }
        Ok(command::show(&format!("ended: {ended}\n"), OK))
    }

    fn show(&self, as_json: bool) -> Result<u8, Failure> {
        let mut text = String::new();
        for (directory, control) in self.controls()? {
            let (directory, now) = (directory.display().to_string(), overrides::now());
            let listed = overrides::in_force(&control.runtime.settings(), now);
            text += &if as_json { in_json(&directory, &listed, now) } else { in_words(&directory, &listed, now) };
        }
        Ok(command::show(&text, OK))
    }

    fn clean(&self) -> Result<u8, Failure> {
        let settings = self.configuration()?.settings;
        let name = self.group.text("service-name");
        let own = || application::every(&settings, name.is_some());
        let directories = if self.group.has("all") { queue_directories(name) } else { own() };
        let mut text = String::new();
        for directory in directories {
            let place = directory.display();
            let kept = control::remove_directory(&directory).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => self.options.wrong(&format!("queue_directory={place}: does not exist")),
                _ => Failure::Refused(format!("queue_directory={place}: {error}")),
            })?;
            text += &kept.map_or_else(|| format!("removed {place}\n"), |why| format!("kept {place}: {why}\n"));
        }
        Ok(command::show(&text, OK))
    }

    fn configuration(&self) -> Result<Configuration, Failure> {
        Configuration::read(self.host, &self.group, PLACE)
    }

    /// The controls of the servers that are meant; all of them can be opened before anything changes.
    fn controls(&self) -> Result<Vec<(PathBuf, Control)>, Failure> {
        let meant = self.configuration()?.of_application(&self.group)?;
        let open = |one: Configuration| {
            let directory = one.queue_directory;
            let place = directory.display();
            let control = Control::open(&directory, "ctl").map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => self.options.wrong(&application::missing(&directory)),
                _ => Failure::Refused(format!("queue_directory={place}: {error}")),
            })?;
            Ok((directory, control))
        };
        meant.into_iter().map(open).collect()
    }

    /// The duration of a change.
    fn seconds(&self) -> Result<f64, Failure> {
        let text = self.options.text("for").unwrap_or(FOR);
        let wrong = |why: &str| self.options.wrong(&format!("Invalid value for '--for': '{text}': {why}"));
        let seconds = duration_s(text).ok_or_else(|| wrong("must be a time such as 90s, 15m, 2h or 7d"))?;
        let limit_s = self.configuration()?.settings.values.control_limit_s;
        if !(seconds > 0.0 && seconds <= limit_s) {
            return Err(wrong(&format!("must be above 0 and at most control_limit_s={limit_s}")));
        }
        Ok(seconds)
    }

    fn wanted(&self, command: &str) -> Result<Change, Failure> {
        match command {
            "level" => {
                let choice = self.choice(&LEVELS.map(|(name, _)| name), "LEVEL", |text| text.to_uppercase())?;
                Ok(Change::Level(LEVELS[choice].1))
            }
            "sample-ratio" => {
                let text = self.argument("RATIO")?;
                let wrong = || format!("Invalid value for 'RATIO': '{text}' is not a valid float.");
                let ratio: f64 = text.trim().parse().map_err(|_| self.options.wrong(&wrong()))?;
                let refused = |_| self.options.wrong(&format!("sample_ratio={text}: must be 0, or from 2**-56 to 1"));
                checked_ratio(ratio).map(Change::Ratio).map_err(refused)
            }
            "chunks" => Ok(Change::Chunks(self.choice(&CHUNKS_MODES, "MODE", str::to_owned)? as u8)),
            "capture" => self.capture().map(Change::Capture),
            _ => Ok(Change::Disabled),
        }
    }

    fn capture(&self) -> Result<CaptureTarget, Failure> {
        let errors = self.options.number("errors", "integer range", 1..=MOST_ERRORS)?;
        if CAPTURES.iter().filter(|name| self.options.text(name).is_some()).count() != 1 {
            return Err(self.options.wrong("name one of --trace, --route and --errors"));
        }
        if let Some(errors) = errors {
            return Ok(CaptureTarget::Errors(errors as u32));
        }
        if let Some(route) = self.options.text("route") {
            return checked_route(route).map_err(|sentence| self.options.wrong(&sentence));
        }
        let text = self.options.text("trace").unwrap_or_default();
        let id = hex::read(text.to_ascii_lowercase().as_bytes()).filter(|id| *id != [0; 16]);
        let refused = || self.options.wrong(&format!("capture.trace={text}: must be 32 hex digits, not all 0"));
        Ok(CaptureTarget::Trace(id.ok_or_else(refused)?))
    }

    fn argument(&self, name: &str) -> Result<&str, Failure> {
        let argument = self.options.arguments().first();
        argument.map(String::as_str).ok_or_else(|| self.options.wrong(&format!("Missing argument '{name}'.")))
    }

    fn choice(&self, choices: &[&str], name: &str, normal: fn(&str) -> String) -> Result<usize, Failure> {
        let text = self.argument(name)?;
        let chosen = choices.iter().position(|choice| *choice == normal(text));
        chosen.ok_or_else(|| {
            let all = choices.iter().map(|choice| format!("'{choice}'")).collect::<Vec<_>>().join(", ");
            self.options.wrong(&format!("Invalid value for '{{{}}}': '{text}' is not one of {all}.", choices.join("|")))
        })
    }
}

fn in_json(directory: &str, overrides: &[Override], now: Until) -> String {
    let one = |one: &Override| {
        json!({
            "what": one.what,
            "value": value(one),
            "until_unix_nano": one.until.unix_nano,
            "remaining_s": remaining_s(one, now),
        })
    };
    let overrides: Vec<Value> = overrides.iter().map(one).collect();
    crate::ascii_text(&json!({"queue_directory": directory, "overrides": overrides})) + "\n"
}

fn value(one: &Override) -> Value {
    serde_json::from_str(&one.value).unwrap_or_default()
}

fn remaining_s(one: &Override, now: Until) -> f64 {
    (one.until.monotonic_nano - now.monotonic_nano) as f64 / 1e9
}

fn in_words(directory: &str, overrides: &[Override], now: Until) -> String {
    let mut text = format!("queue directory  {directory}\n");
    if overrides.is_empty() {
        text += "nothing is changed: all is as configured\n";
    }
    for one in overrides {
        let value = value(one).as_str().map_or_else(|| one.value.clone(), str::to_owned);
        let value = if one.what == "capture.errors" { value + " more" } else { value };
        let until = Utc::from_unix_nano(one.until.unix_nano).to_string();
        let until = until.split('.').next().unwrap_or_default();
        text += &format!("{:<16} {value}  until {until}Z, {:.0} s left\n", one.what, remaining_s(one, now));
    }
    text
}

/// The seconds of `90s`, `15m`, `2h` or `7d`.
fn duration_s(text: &str) -> Option<f64> {
    let (number, unit) = text.trim().split_at_checked(text.trim().len().checked_sub(1)?)?;
    let unit_s = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let is_number =
        |digits: &str| (1..10).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit());
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    if is_number(whole) && is_number(part) { number.parse::<f64>().ok().map(|number| number * unit_s) } else { None }
}
