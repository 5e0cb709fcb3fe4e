//! `listen --each`: the listener of many queue directories, in one process: those of all pods of a node.
//!
//! Directories are found as they come. Each has a thread of its own, with the listeners of its lanes, which acts as the
//! user that owns the directory: what servers of one user put there is read and written with no other rights than theirs.
//! A directory whose servers have ended, and in which nothing waits, is drained, removed and forgotten.

use super::command::{FAILED, Failure, OK};
use super::listeners::Counts;
use super::options::Options;
use crate::http::{self, JSON, Reply, Request, TEXT};
use crate::listeners::{DRAIN_LOOK, LONGEST_INTERVAL_S, LOOK, say, say_port};
use crate::options::Configuration;
use ended::EndedSegments;
use libc::SIGHUP;
use listen::settings::Settings;
use listen::status::health::{Answer, Health, liveness, producers, readiness};
use listen::status::metrics::family::{Family, joined};
use listen::status::metrics::text::{choose, render};
use listen::status::metrics::{MEMINFO, of_node};
use pattern::{Found, Pattern};
use queue::published::housekeeping::{HousekeepingWords, REASONS};
use queue::system::{ENDING, Signals, raise_file_limit};
use served::{Ask, End, Served};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{DirBuilder, Permissions, set_permissions};
use std::io::{self, IsTerminal};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

mod ended;
mod pattern;
mod served;

const FORGET_AFTER_S: f64 = 60.0;
/// How long a directory that was refused, or that has no configuration yet, is left alone.
const RETRY: Duration = Duration::from_secs(1);
/// Directories at one time: some more than a node has pods.
const MOST: usize = 512;
/// How long the end waits, beyond the deadline, for listeners that hang.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs the command to its end.
///
/// # Errors
/// The command line or the configuration is wrong, or something is not available.
pub fn run(
    options: &Options,
    configuration: Configuration,
    signals: &Signals,
    interval_s: f64,
    port: Option<(&str, u16)>,
) -> Result<u8, Failure> {
    let text = options.text("each").unwrap_or_default();
    let pattern =
        Pattern::parse(text).map_err(|why| options.wrong(&format!("Invalid value for '--each': {text:?} {why}")))?;
    let forget_after = options.number("forget-after-s", "float range", 0.0..=LONGEST_INTERVAL_S)?;
    let ended_bytes = options.number("ended-bytes", "integer range", 0..=i64::MAX)?;
    let settings = Arc::new(configuration.settings);
    if settings.has_foreign_store() {
        let sentence = "audit_sink='sqlite': must be file where one process listens in many directories";
        return Err(Failure::Configuration(vec![sentence.to_owned()].into()));
    }
    for path in options.texts("make") {
        make(Path::new(path)).map_err(|error| Failure::Open(format!("--make {path}: {error}")))?;
    }
    let _ = raise_file_limit();
    let fleet = Arc::new(Fleet::default());
    let ended = EndedSegments::new(Arc::clone(&settings), pattern.clone(), ended_bytes.map(i64::unsigned_abs));
    if let Some((address, port)) = port {
        let (fleet, ended) = (Arc::clone(&fleet), ended.counts());
        let answer = move |request: &_| reply(&fleet, ended, request);
        say_port(http::serve_at(address, port, answer).map_err(Failure::Open)?);
    }
    let forget_after = Duration::from_secs_f64(forget_after.unwrap_or(FORGET_AFTER_S));
    let mut watch = Watch { settings, pattern, forget_after, fleet, refused: HashMap::new(), ended, is_full: false };
    watch.listen(signals, interval_s);
    Ok(watch.drain(signals))
}

/// Makes a directory in which any user may make one of its own, and may not touch those of others.
fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    set_permissions(path, Permissions::from_mode(0o1777))
}

/// The directories that are served.
#[derive(Default)]
struct Fleet {
    members: Mutex<BTreeMap<String, Served>>,
    /// How many were refused, and are tried again.
    refused: AtomicUsize,
}

impl Fleet {
    fn members(&self) -> MutexGuard<'_, BTreeMap<String, Served>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of each directory, and where to ask its thread.
    fn asked(&self) -> Vec<(String, Sender<Ask>)> {
        self.members().iter().map(|(name, served)| (name.clone(), served.asks.clone())).collect()
    }

    /// Takes out the directories whose threads have ended.
    fn take_ended(&self) -> Vec<(String, Served)> {
        let mut members = self.members();
        let ended = members.iter().filter(|(_, served)| served.has_ended());
        let names: Vec<String> = ended.map(|(name, _)| name.clone()).collect();
        names.into_iter().filter_map(|name| members.remove_entry(&name)).collect()
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for (name, served) in self.members().iter() {
            let mut own = served.counts();
            own.problems.iter_mut().for_each(|problem| *problem = format!("{name}:{problem}"));
            counts.add(own);
        }
        counts
    }

    /// The line of the status.
    fn status(&self) -> String {
        let (served, refused) = (self.members().len(), self.refused.load(Ordering::Relaxed));
        format!("directories={served} refused={refused} {}", self.counts())
    }
}

/// The loop that finds directories and forgets them.
struct Watch {
    settings: Arc<Settings>,
    pattern: Pattern,
    forget_after: Duration,
    fleet: Arc<Fleet>,
    /// Directories that are not served: why, and when they are tried again.
    refused: HashMap<String, (Option<String>, Instant)>,
    ended: EndedSegments,
    is_full: bool,
}

impl Watch {
    /// Serves directories until a signal asks for the end.
    fn listen(&mut self, signals: &Signals, interval_s: f64) {
        let mut due = Instant::now();
        loop {
            self.take_ended();
            self.look();
            if interval_s > 0.0 && Instant::now() >= due {
                say(&self.fleet.status());
                due = Instant::now() + Duration::from_secs_f64(interval_s);
            }
            match signals.wait(LOOK) {
                Some(number) if ENDING.contains(&number) => return,
                Some(SIGHUP) if io::stderr().is_terminal() => return,
                Some(_) => say(&self.fleet.status()),
                None => {}
            }
        }
    }

    /// Starts to serve what is new.
    fn look(&mut self) {
        let found = self.pattern.find();
        let names: BTreeSet<String> = found.iter().map(Found::name).collect();
        self.refused.retain(|name, _| names.contains(name));
        for found in found {
            let name = found.name();
            let is_due = self.refused.get(&name).is_none_or(|(_, at)| Instant::now() >= *at);
            if !is_due || self.fleet.members().contains_key(&name) || !self.has_room(&name) {
                continue;
            }
            match Served::start(&found, Arc::clone(&self.settings), self.forget_after) {
                Ok(served) => drop(self.fleet.members().insert(name, served)),
                Err(sentence) => self.refuse(name, Some(sentence)),
            }
        }
        self.fleet.refused.store(self.refused_now(), Ordering::Relaxed);
        self.ended.look(names);
    }

    /// Those that were refused at the last try. What was served since stays noted, so that its reason is not repeated.
    fn refused_now(&self) -> usize {
        let members = self.fleet.members();
        let is_refused =
            |name: &String, why: &Option<String>| why.is_some() && !members.get(name).is_some_and(Served::is_open);
        self.refused.iter().filter(|(name, (why, _))| is_refused(name, why)).count()
    }

    fn has_room(&mut self, name: &str) -> bool {
        let is_full = self.fleet.members().len() >= MOST;
        if is_full && !std::mem::replace(&mut self.is_full, is_full) {
            say(&format!("{name} and others wait: {MOST} directories are the most"));
        }
        self.is_full = is_full;
        !is_full
    }

    fn refuse(&mut self, name: String, why: Option<String>) {
        let before = self.refused.get(&name).and_then(|(why, _)| why.as_ref());
        if let Some(why) = why.as_ref().filter(|why| Some(*why) != before) {
            say(&format!("{name} is not served: {why}"));
        }
        self.refused.insert(name, (why, Instant::now() + RETRY));
    }

    /// Forgets the directories whose threads have ended, or tries them again.
    fn take_ended(&mut self) {
        let ended = self.fleet.take_ended();
        for (name, served) in ended {
            let counts = served.counts();
            match served.end() {
                End::Unclaimed => self.refuse(name, None),
                End::Refused(sentence) => self.refuse(name, Some(sentence)),
                End::Forgotten => say(&format!("{name} is forgotten: {counts}")),
                End::Closed(left) => say(&format!("{name} has ended: {counts} left={left}")),
            }
        }
    }

    /// Lets every listener write what is left, and returns the exit code.
    fn drain(&mut self, signals: &Signals) -> u8 {
        say(&format!("draining {}", self.fleet.status()));
        let deadline = self.settings.values.drain_deadline_s;
        let ask = |end: Instant| self.fleet.asked().iter().for_each(|(_, asks)| drop(asks.send(Ask::End(end))));
        let mut end = Instant::now() + deadline;
        ask(end);
        let are_open = || self.fleet.members().values().any(|served| !served.has_ended());
        while are_open() && Instant::now() < end + PATIENCE {
            if signals.wait(DRAIN_LOOK).is_some_and(|number| ENDING.contains(&number)) {
                end = end.min(Instant::now());
                ask(end);
            }
        }
        let status = self.fleet.counts();
        let members = std::mem::take(&mut *self.fleet.members());
        let left: u64 = members.into_values().map(|served| if served.has_ended() { served.left() } else { 1 }).sum();
        say(&format!("ended {status} left={left}"));
        if left > 0 { FAILED } else { OK }
    }
}

// Metrics and health of all directories as one: every directory's thread answers for itself.

/// How long an answer may take. A thread that hangs in a file system does not hold up those of the others.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

/// The answer to one request.
fn reply(fleet: &Fleet, ended: &HousekeepingWords, request: &Request) -> Reply {
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
        failing.map(|(name, body)| format!("{}: {body}", crate::ascii_text(&name.as_str().into()))).collect();
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
    let end = Instant::now() + ANSWER_PATIENCE;
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
