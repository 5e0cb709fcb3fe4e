//! Metrics and health of all directories as one: every directory's thread answers for itself.

use super::super::endpoint::{JSON, TEXT};
use super::super::http::{Reply, Request};
use super::Fleet;
use super::served::Ask;
use crate::ascii;
use listen::status::health::{Answer, Health, liveness, producers, readiness};
use listen::status::metrics::accept::choose;
use listen::status::metrics::family::Family;
use listen::status::metrics::several::joined;
use listen::status::metrics::text::render;
use listen::status::metrics::{MEMINFO, of_node};
use queue::published::housekeeping::{HousekeepingWords, REASONS};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long an answer may take. A thread that hangs in a file system does not hold up those of the others.
const PATIENCE: Duration = Duration::from_secs(2);

/// The answer to one request.
pub fn reply(fleet: &Fleet, ended: &HousekeepingWords, request: &Request) -> Reply {
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        return Reply::of(405, TEXT, b"Method Not Allowed");
    }
    match request.path.as_str() {
        "/metrics" => metrics(fleet, ended, &request.accept),
        "/health" => probe(fleet, readiness),
        "/live" => probe(fleet, liveness),
        "/producers" => probe(fleet, producers),
        _ => Reply::of(404, TEXT, b"Not Found"),
    }
}

/// 503 where one directory's answer is 503, or does not come; the body has the answers of those.
fn probe(fleet: &Fleet, answer: fn(&Health) -> Answer) -> Reply {
    let answers = collected(fleet, Ask::Health);
    let directories = answers.len();
    let failing = answers.into_iter().filter_map(|(name, health)| match health.map(|health| answer(&health)) {
        Some(Answer { status: 200, .. }) => None,
        Some(Answer { body, .. }) => Some((name, body)),
        None => Some((name, r#"{"status": "no_answer"}"#.to_owned())),
    });
    let failing: Vec<String> =
        failing.map(|(name, body)| format!("{}: {body}", ascii::text(&name.as_str().into()))).collect();
    let status = if failing.is_empty() { "ok" } else { "failing" };
    let body =
        format!(r#"{{"status": "{status}", "directories": {directories}, "failing": {{{}}}}}"#, failing.join(", "));
    Reply::of(if failing.is_empty() { 200 } else { 503 }, JSON, body.as_bytes())
}

fn metrics(fleet: &Fleet, ended: &HousekeepingWords, accept: &str) -> Reply {
    let answers = collected(fleet, Ask::Metrics);
    let mut directories = Family::gauge("inference_logging_directories", "Queue directories that one process serves");
    let silent = answers.values().filter(|families| families.is_none()).count();
    let refused = fleet.refused.load(Ordering::Relaxed);
    for (state, count) in [("served", answers.len() - silent), ("refused", refused), ("no_answer", silent)] {
        directories.add(vec![("state", state.to_owned())], count as f64);
    }
    let mut families = joined(answers.into_iter().filter_map(|(name, families)| Some((name, families?))));
    families.push(directories);
    families.extend(removed(ended));
    families.extend(of_node(Path::new(MEMINFO), None));
    let chosen = choose(accept);
    Reply::of(200, &chosen.content_type, &render(&families, chosen.format))
}

fn removed(words: &HousekeepingWords) -> [Family; 2] {
    let mut segments = Family::counter(
        "inference_logging_ended_segments_removed",
        "Segments of forgotten directories that were removed, for their age or the limit of all of these",
    );
    let mut bytes =
        Family::counter("inference_logging_ended_segments_removed_bytes", "Bytes of these segments").unit("bytes");
    for reason in REASONS {
        let label = || vec![("reason", reason.name().to_owned())];
        segments.add(label(), words.segments_removed[reason as usize].load(Ordering::Relaxed) as f64);
        bytes.add(label(), words.removed_bytes[reason as usize].load(Ordering::Relaxed) as f64);
    }
    [segments, bytes]
}

/// The answers of all directories by name. None: it did not come in time.
fn collected<T>(fleet: &Fleet, ask: fn(Sender<(String, T)>) -> Ask) -> BTreeMap<String, Option<T>> {
    let (to, answers) = channel();
    let asked = fleet.asked().into_iter().filter(|(_, asks)| asks.send(ask(to.clone())).is_ok());
    let mut all: BTreeMap<String, Option<T>> = asked.map(|(name, _)| (name, None)).collect();
    drop(to);
    let end = Instant::now() + PATIENCE;
    loop {
        match answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok((name, answer)) => drop(all.insert(name, Some(answer))),
            // Everybody has answered or ended: a thread that ends drops the question.
            Err(RecvTimeoutError::Disconnected) => {
                all.retain(|_, answer| answer.is_some());
                return all;
            }
            Err(RecvTimeoutError::Timeout) => return all,
        }
    }
}
