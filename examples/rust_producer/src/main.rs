//! A program in Rust: events whose fields are registered once, and a message.

use inferlog::{Error, Log, severity};
use std::time::Duration;

const STEPS: u64 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Of the environment, `INFERENCE_LOGGING_...`, and the file that it names.
    let log = Log::from_environment()?;
    let accepted = work(log)?;
    // Waits up to ten seconds until all of it is written.
    let is_written = log.close(Duration::from_secs(10));
    println!("{accepted} of {STEPS} steps are on record; all is written: {is_written}");
    Ok(())
}

/// Logs each step of an engine; returns how many were accepted.
pub fn work(log: Log) -> Result<usize, Error> {
    let step = log.register("engine.step", &["step", "running", "kv_cache_usage"], false)?;
    log.message(None, severity::INFO, "engine", "model loaded", &[("model", "tiny".into())]);
    let emit = |number: &u64| log.emit(step, severity::INFO, &[(*number).into(), 3_u64.into(), 0.71.into()]);
    Ok((0..STEPS).filter(emit).count())
}
