//! One queue directory that is served: its listeners, on a thread that acts as the user that owns it.

use super::super::command::Host;
use super::super::listeners::{Counts, Listeners};
use super::pattern::Found;
use crate::control;
use crate::listeners::{DRAIN_LOOK, LOOK, SHARE_OF_LAST_ROUND};
use crate::options::Configuration;
use listen::settings::Settings;
use listen::sink::Now;
use listen::status::health::{Health, HealthWatch};
use listen::status::metrics::family::Family;
use listen::status::metrics::of_directory;
use queue::queue_file::check_directory;
use queue::{configuration, platform, system};
use std::fs::{DirBuilder, Permissions, set_permissions, symlink_metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// A question to a directory's thread; the answer comes with the directory's name.
pub enum Ask {
    Health(Sender<(String, Arc<Health>)>),
    Metrics(Sender<(String, Vec<Family>)>),
    /// Drain, at most until then.
    End(Instant),
}

/// How a directory's thread has ended.
pub enum End {
    /// No producer has named its configuration yet.
    Unclaimed,
    /// It cannot be served, with a sentence.
    Refused(String),
    /// Its servers had ended and all is written; it is removed.
    Forgotten,
    /// It was asked to end, and left so many records.
    Closed(u64),
}

/// A directory that is served.
pub struct Served {
    pub asks: Sender<Ask>,
    counts: Arc<Mutex<Counts>>,
    is_open: Arc<AtomicBool>,
    thread: JoinHandle<End>,
}

impl Served {
    /// Starts the thread.
    ///
    /// # Errors
    /// A sentence: the directory of the segments cannot be made, or there is no thread.
    pub fn start(found: &Found, settings: Arc<Settings>, forget_after: Duration) -> Result<Self, String> {
        let (user, own) = (found.owner.0, system::user());
        if user != own && own != 0 {
            return Err(format!("it belongs to user {user}, and this process is not root"));
        }
        prepare(&settings, found)?;
        let (asks, asked) = channel();
        let (counts, is_open) = (Arc::default(), Arc::default());
        let shared = (Arc::clone(&counts), Arc::clone(&is_open));
        let work = Work { found: found.clone(), settings, forget_after, asked, counts: shared.0, is_open: shared.1 };
        let thread = Builder::new().name("inference-each".to_owned()).spawn(move || work.run());
        let thread = thread.map_err(|error| format!("no thread can be started: {error}"))?;
        Ok(Self { asks, counts, is_open, thread })
    }

    /// Whether the directory was not refused: its listeners have started.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// The last counts of the listeners.
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How it has ended; waits for that.
    pub fn end(self) -> End {
        self.thread.join().unwrap_or_else(|_| End::Refused("its thread has failed".to_owned()))
    }

    /// The number of records that it left; waits for its end.
    pub fn left(self) -> u64 {
        match self.end() {
            End::Closed(left) => left,
            End::Unclaimed | End::Forgotten | End::Refused(_) => 0,
        }
    }
}

/// Makes the directories of the segments: the last one belongs to the owner of the queues, and this process's group may
/// list it.
fn prepare(settings: &Settings, found: &Found) -> Result<(), String> {
    let below = found.name();
    let mut directories = vec![settings.directory()];
    if settings.audit.is_some() && settings.audit_directory() != settings.directory().join("audit") {
        directories.push(settings.audit_directory());
    }
    for directory in directories {
        let path = directory.join(&below);
        prepare_directory(&path, found.owner.0).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn prepare_directory(path: &Path, user: u32) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let facts = symlink_metadata(path)?;
    if !facts.is_dir() {
        return Err(io::Error::other("is no directory"));
    }
    if facts.uid() == system::user() && user != facts.uid() {
        set_permissions(path, Permissions::from_mode(0o750))?;
    }
    if facts.uid() != user {
        lchown(path, Some(user), None)?;
    }
    Ok(())
}

struct Work {
    found: Found,
    settings: Arc<Settings>,
    forget_after: Duration,
    asked: Receiver<Ask>,
    counts: Arc<Mutex<Counts>>,
    is_open: Arc<AtomicBool>,
}

impl Work {
    fn run(self) -> End {
        match self.open() {
            Ok((configuration, listeners)) => {
                self.is_open.store(true, Ordering::Relaxed);
                let watch = listeners.watch(&configuration);
                self.serve(&listeners, &watch)
            }
            Err(end) => end,
        }
    }

    /// Becomes the owner of the directory, and starts the listeners with the configuration that its producers have noted.
    fn open(&self) -> Result<(Configuration, Listeners), End> {
        let path = &self.found.path;
        become_owner(self.found.owner).map_err(End::Refused)?;
        let noted = check_directory(path).and_then(|()| configuration::read(path));
        let noted = noted.map_err(|error| End::Refused(error.to_string()))?.ok_or(End::Unclaimed)?;
        let below = PathBuf::from(self.found.name());
        let settings = self.settings.of_directory(&noted, (path, &below), &self.found.attributes);
        let settings = settings.map_err(|error| End::Refused(error.sentences.join("; ")))?;
        let configuration = Configuration { settings, queue_directory: path.clone() };
        let listeners = Listeners::open(&Host::default(), &configuration, true).map_err(End::Refused)?;
        Ok((configuration, listeners))
    }

    fn serve(&self, listeners: &Listeners, watch: &HealthWatch) -> End {
        let mut idle_since = None;
        loop {
            // Repeated each round: if the directory was deleted, the process has a new queue.
            listeners.set_only_listens();
            self.count(listeners);
            match self.asked.recv_timeout(LOOK) {
                Ok(Ask::End(end)) => return self.drain(listeners, watch, end),
                Ok(ask) => self.answer(&ask, watch),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.drain(listeners, watch, Instant::now()),
            }
            let has_ended = listeners.has_ended();
            idle_since = if has_ended { idle_since.or_else(|| Some(Instant::now())) } else { None };
            if idle_since.is_some_and(|since: Instant| since.elapsed() >= self.forget_after) {
                return self.forget(listeners);
            }
        }
    }

    fn count(&self, listeners: &Listeners) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = listeners.counts();
    }

    fn answer(&self, ask: &Ask, watch: &HealthWatch) {
        // The one who asked may not wait any more.
        match ask {
            Ask::Health(to) => drop(to.send((self.found.name(), watch.recent(Now::read())))),
            Ask::Metrics(to) => {
                drop(to.send((self.found.name(), of_directory(watch, Now::read()).unwrap_or_default())))
            }
            Ask::End(_) => {}
        }
    }

    /// Goes on while servers produce, and writes what is left.
    fn drain(&self, listeners: &Listeners, watch: &HealthWatch, end: Instant) -> End {
        let left = end.saturating_duration_since(Instant::now());
        let (mut end, last_round) = (end, end - left.mul_f64(SHARE_OF_LAST_ROUND));
        while listeners.is_needed() && Instant::now() < last_round {
            match self.asked.recv_timeout(DRAIN_LOOK) {
                Ok(Ask::End(sooner)) => {
                    end = end.min(sooner);
                    break;
                }
                Ok(ask) => self.answer(&ask, watch),
                Err(_) => {}
            }
        }
        listeners.close(end);
        self.count(listeners);
        End::Closed(listeners.left())
    }

    /// Ends the listeners of a directory without servers, and removes it. A server that starts at this moment is seen, or
    /// makes the directory anew: it is found and served again.
    fn forget(&self, listeners: &Listeners) -> End {
        listeners.close(Instant::now() + self.settings.values.drain_deadline_s);
        self.count(listeners);
        match control::remove_directory(&self.found.path) {
            Ok(None) => End::Forgotten,
            Ok(Some(why)) => End::Refused(format!("its servers have ended, and it stays: {why}")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => End::Forgotten,
            Err(error) => End::Refused(format!("its servers have ended, and it cannot be removed: {error}")),
        }
    }
}

/// Gives this thread, and those that it starts, to the owner of a directory.
pub fn become_owner((user, group): (u32, u32)) -> Result<(), String> {
    if user == system::user() {
        return Ok(());
    }
    // The group of root may list the segments of all.
    let group = if group == 0 { user } else { group };
    let refused = |error: io::Error| format!("it belongs to user {user}, and this process cannot act as that: {error}");
    platform::become_user(user, group).map_err(refused)
}
