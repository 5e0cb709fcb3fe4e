//! The process that is supervised.

use queue::system;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

pub struct Child {
    pid: u32,
}

impl Child {
    /// Starts a command: the name or the path of a program, and its arguments.
    ///
    /// # Errors
    /// A sentence: the program cannot be started.
    pub fn start(command: &[OsString]) -> Result<Self, String> {
        let [program, arguments @ ..] = command else { return Err("no command".to_owned()) };
        let mut starting = Command::new(program);
        system::unmask_signals(starting.args(arguments));
        let child = starting.spawn();
        child
            .map(|child| Self { pid: child.id() })
            .map_err(|error| format!("{}: {error}", Path::new(program).display()))
    }

    pub fn signal(&self, number: i32) {
        system::send_signal(self.pid, number);
    }

    /// Collects every process that has ended, also those that others left to the first process of a container. Returns
    /// the exit code of this one if it has ended; after a signal that is 128 and its number.
    pub fn reap(&self) -> Option<u8> {
        let mut code = None;
        while let Some((pid, status)) = system::ended_child() {
            if pid == self.pid {
                code = Some(exit_code(ExitStatus::from_raw(status)));
            }
        }
        code
    }

    /// Bytes of memory that are its own; 0 where the system does not say.
    pub fn memory_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = anonymous.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or_default() << 10
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|number| 128 + number));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
