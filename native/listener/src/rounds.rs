//! What the forms of `listen` share: the pace of their rounds, and their lines on stderr.

use queue::system::wait_writable;
use std::io::Write;
use std::time::Duration;

/// The longest delay before a change is noticed.
pub const LOOK: Duration = Duration::from_millis(500);
pub const DRAIN_LOOK: Duration = Duration::from_millis(50);
/// The share of the deadline that is kept for the last round, since producers may go on until the end.
pub const SHARE_OF_LAST_ROUND: f64 = 0.2;
/// The longest time that an option takes.
pub const LONGEST_INTERVAL_S: f64 = 86_400.0;

/// Reports the port that the system has chosen.
pub fn say_port(port: u16) {
    say(&format!("serves /metrics on port {port}"));
}

/// Writes a line to stderr. If nothing reads the pipe, the line is left out, so that it cannot hold up the signals.
pub fn say(line: &str) {
    let mut stderr = std::io::stderr();
    if wait_writable(&stderr, Duration::ZERO).unwrap_or(false) {
        let _ = stderr.write_all(format!("inference-logging listen: {line}\n").as_bytes());
    }
}
