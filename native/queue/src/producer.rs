//! The producing side of one process: severity limits, counted refusals, and a queue that is replaced after a fork or a
//! loss.
//!
//! The usual emit is: one pointer load, one compare-and-swap, one copy, one store. No lock, no system call, no
//! allocation.
//!
//! Requests in flight have slots in the same file ([`slots`]).
//!
//! A queue, once published, is never freed while the process lives: another thread may be between loading the pointer
//! and reserving. Closing the ring makes such a late reservation fail, and [`QueueFile::disown`] gives the pages back.

use crate::configuration;
use crate::control::Control;
use crate::event::{self, EventSchema, FIRST_USER_ID};
use crate::layout::{Dropped, LEVELS, Reason, level_index};
use crate::lock::{ForkSafe, ProcessLock};
use crate::queue_file::{self, QueueFile};
use crate::sigbus;
use crate::system::{now_unix_nano, random_id};
use renewal::Room;
use replaced::Replaced;
pub use replaced::poll;
use ring::Refused;
use ring::slots::FreeSlots;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};

mod renewal;
mod replaced;
pub mod slots;

/// The parameters of a queue.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    pub directory: PathBuf,
    /// Bytes of the ring: a power of two.
    pub queue_bytes: u64,
    /// Requests in flight that the queue file has slots for.
    pub in_flight_slots: u32,
    /// Largest payload of one record.
    pub max_record_bytes: u32,
    /// DEBUG and INFO are refused above this share of the queue; WARN and above until it is full.
    pub overflow_info_ratio: f64,
    /// Fill, in bytes, at which the listener is woken before its interval ends.
    pub wake_bytes: u64,
    /// The configuration that the directory belongs to ([`configuration`]). None: any.
    pub configuration: Option<String>,
    /// Built-in events beside those of every queue.
    pub events: Vec<EventSchema>,
}

impl QueueSettings {
    fn largest_record_bytes(&self) -> u32 {
        self.max_record_bytes.min(u32::try_from(self.queue_bytes / 4).unwrap_or(u32::MAX))
    }
}

/// How often a queue is made in a directory that somebody deletes.
const ATTEMPTS: usize = 5;

/// This process's queue and everything that an emit needs to know about it.
pub struct Queue {
    pub file: Arc<QueueFile>,
    pub control: Control,
    limit_words: [u32; LEVELS.len()],
    wake_words: u32,
    max_record_bytes: u32,
    free_slots: FreeSlots,
    /// Whether this process may change the slots: not in a forked child, not after the end, not if there are none.
    keeps_slots: AtomicBool,
    /// How often pages of the directory had been lost before this queue was made.
    lost_pages: usize,
    looked_unix_nano: AtomicU64,
    /// Shows other processes that this process lives.
    lock: ForkSafe<Option<ProcessLock>>,
}

impl Queue {
    /// A directory that is deleted meanwhile is made again.
    fn create(settings: &QueueSettings, schemas: &[EventSchema]) -> io::Result<Self> {
        let is_gone =
            |created: &io::Result<Self>| created.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        (1..ATTEMPTS)
            .map(|_| Self::create_once(settings, schemas))
            .find(|created| !is_gone(created))
            .unwrap_or_else(|| Self::create_once(settings, schemas))
    }

    fn create_once(settings: &QueueSettings, schemas: &[EventSchema]) -> io::Result<Self> {
        let agree = |how: fn(&Path, &str) -> io::Result<()>| match &settings.configuration {
            Some(text) => how(&settings.directory, text),
            None => Ok(()),
        };
        agree(configuration::claim)?;
        let boot_id = random_id()?;
        let ((file, lock), sizes) = renewal::make_largest(settings, |sizes| {
            QueueFile::create(&settings.directory, sizes, boot_id, now_unix_nano())
        })?;
        let lost_pages = sigbus::lost_pages(&settings.directory);
        let stored = schemas.iter().try_for_each(|schema| file.append_schema(&schema.to_bytes()));
        let mapped = stored.and_then(|()| Control::open(&settings.directory));
        let control = mapped.and_then(|control| agree(configuration::confirm).map(|()| control)).inspect_err(|_| {
            // The queue was never used: no listener may take it for the queue of a dead process.
            let _ = std::fs::remove_file(&file.path);
            file.disown(true);
        })?;
        let words = sizes.data_bytes / 8;
        let info = (words as f64 * settings.overflow_info_ratio) as u32;
        let limit_words = std::array::from_fn(|level| if level <= level_index(9) { info } else { words as u32 });
        let wake_words = (settings.wake_bytes / 8).min(words / 4) as u32;
        let max_record_bytes = settings.largest_record_bytes();
        let free_slots = FreeSlots::all(sizes.slot_count);
        let keeps_slots = AtomicBool::new(sizes.slot_count > 0);
        Ok(Self {
            file,
            control,
            limit_words,
            wake_words,
            max_record_bytes,
            free_slots,
            keeps_slots,
            lost_pages,
            looked_unix_nano: AtomicU64::new(0),
            lock: ForkSafe::new(Some(lock)),
        })
    }

    /// Closes the file of a queue that is finished: otherwise the descriptor stays open for the life of the process.
    pub fn unlock(&self) {
        drop(self.lock.with(Option::take));
    }

    /// Puts one record into the queue and returns the low 32 bits of its sequence, or the reason for the refusal, which
    /// is not counted yet. `AlreadyShutdown` and `NoQueue`: this queue takes nothing any more, but another one may.
    #[inline]
    fn offer(
        &self,
        event: u16,
        severity: u8,
        time_unix_nano: u64,
        payload: &[u8],
        note: impl FnOnce(u32),
    ) -> Result<u32, Reason> {
        if payload.len() > self.max_record_bytes as usize {
            return Err(Reason::Oversize);
        }
        match self.file.ring().reserve(payload.len() as u32, self.limit_words[level_index(severity)]) {
            Ok(reservation) => {
                let (used, sequence) = (reservation.used_words, reservation.sequence);
                note(sequence);
                reservation.commit(event, severity, time_unix_nano, payload);
                if used >= self.wake_words {
                    self.control.wake();
                }
                Ok(sequence)
            }
            Err(Refused::Full) => {
                self.control.wake();
                Err(if self.is_gone(time_unix_nano) { Reason::NoQueue } else { Reason::QueueFull })
            }
            Err(Refused::Closed) => Err(Reason::AlreadyShutdown),
        }
    }
}

/// Why an event is not registered.
#[derive(Debug)]
pub enum NotRegistered {
    /// A bad name, or other fields than before. Retrying never helps.
    Refused(String),
    /// The schema area of the queue is full: events that are already registered still work.
    NoRoom(String),
}

impl std::fmt::Display for NotRegistered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Refused(text) | Self::NoRoom(text)) = self;
        f.write_str(text)
    }
}

/// The producer of one process. Shared by every emitting thread; survives forks by taking a new queue.
pub struct Producer {
    queue: AtomicPtr<Queue>,
    settings: QueueSettings,
    schemas: ForkSafe<Vec<EventSchema>>,
    /// Set in a forked child until it has a queue: its first record or request creates it.
    wants_queue: AtomicBool,
    /// Number of forks between this process and the one that opened the producer.
    generation: AtomicU32,
    /// Refusals while there is no queue to count them in; the next queue counts them.
    pub without_queue: Dropped,
    after_reopen: OnceLock<Box<dyn Fn() + Send + Sync>>,
    before_close: OnceLock<fn(&Queue)>,
    closed: AtomicBool,
    /// The owner's name in this process's queues.
    name: OnceLock<String>,
    /// A thread is about to replace a lost queue.
    renewing: AtomicBool,
    renewals: AtomicU64,
    replaced: ForkSafe<Vec<Replaced>>,
    /// Monotonic nanoseconds before which a lost queue is not replaced again.
    next_renewal_nano: AtomicU64,
    room: Room,
}

impl Producer {
    /// Creates the queue and registers the built-in events.
    ///
    /// # Errors
    /// The queue file cannot be created; see [`QueueFile::create`].
    pub fn open(settings: QueueSettings) -> io::Result<Self> {
        let mut schemas = event::builtin();
        schemas.extend_from_slice(&settings.events);
        schemas.sort_by_key(|schema| schema.id);
        let queue = Box::new(Queue::create(&settings, &schemas)?);
        Ok(Self {
            queue: AtomicPtr::new(Box::into_raw(queue)),
            settings,
            schemas: ForkSafe::new(schemas),
            wants_queue: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            without_queue: Dropped(Default::default()),
            after_reopen: OnceLock::new(),
            before_close: OnceLock::new(),
            closed: AtomicBool::new(false),
            name: OnceLock::new(),
            renewing: AtomicBool::new(false),
            renewals: AtomicU64::new(0),
            replaced: ForkSafe::new(Vec::new()),
            next_renewal_nano: AtomicU64::new(0),
            room: Room::new(),
        })
    }

    /// Sets what runs after a process has taken a new queue, in a forked child or in place of a lost one: the start of
    /// its listener.
    pub fn after_reopen(&self, run: impl Fn() + Send + Sync + 'static) {
        let _ = self.after_reopen.set(Box::new(run));
    }

    /// Sets what ends the requests in flight in a queue that is about to be closed; the queue's slots then belong to
    /// `run`.
    pub fn before_close(&self, run: fn(&Queue)) {
        let _ = self.before_close.set(run);
    }

    /// The largest record that a queue takes.
    #[must_use]
    pub fn max_record_bytes(&self) -> usize {
        self.settings.largest_record_bytes() as usize
    }

    /// Names this process, so that reports of its death have a name; the first name stays.
    pub fn set_name(&self, name: &str) {
        let name = self.name.get_or_init(|| name.to_owned());
        if let Some(queue) = self.queue() {
            queue.file.header().set_producer_name(name);
        }
    }

    /// The current queue, if there is one.
    #[inline]
    pub fn queue(&self) -> Option<&'static Queue> {
        // SAFETY: published queues are never freed. Acquire pairs with the Release in `reopen`.
        unsafe { self.queue.load(Ordering::Acquire).as_ref() }
    }

    /// Puts one record into the queue, stamped with the time now. Returns whether it was accepted; never blocks.
    #[inline]
    pub fn emit(&self, event: u16, severity: u8, payload: &[u8]) -> bool {
        match self.offer(event, severity, payload) {
            Ok(_) => true,
            Err(reason) => self.refuse(reason, severity),
        }
    }

    /// As `emit`, for a record that was made before the queue.
    #[cold]
    pub fn emit_at(&self, time_unix_nano: u64, event: u16, severity: u8, payload: &[u8]) -> bool {
        let offered = self.queue().map(|queue| queue.offer(event, severity, time_unix_nano, payload, |_| ()));
        match offered.unwrap_or(Err(Reason::NoQueue)) {
            Ok(_) => true,
            Err(reason) => self.refuse(reason, severity),
        }
    }

    /// As `emit`, for a caller that may try again: returns the queue and the low 32 bits of the record's sequence, or
    /// the reason for the refusal. The refusal is not counted; a caller that gives up counts it with [`Self::refuse`].
    ///
    /// # Errors
    /// The reason.
    #[inline]
    pub fn offer(&self, event: u16, severity: u8, payload: &[u8]) -> Result<(&Queue, u32), Reason> {
        let now = now_unix_nano();
        let Some(queue) = self.queue() else { return self.offer_anew(event, severity, now, payload) };
        match queue.offer(event, severity, now, payload, |_| ()) {
            Ok(sequence) => Ok((queue, sequence)),
            Err(Reason::AlreadyShutdown | Reason::NoQueue) => self.offer_anew(event, severity, now, payload),
            Err(reason) => Err(reason),
        }
    }

    /// The queue of a forked child, which is created here.
    #[cold]
    fn queue_after_fork(&self) -> Option<&'static Queue> {
        if self.wants_queue.load(Ordering::Acquire) {
            self.renew();
        }
        self.queue()
    }

    /// Forgets the parent's queue in a forked child; the next record or request creates the child's own.
    pub fn after_fork_in_child(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        let parents = self.queue.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: published queues are never freed.
        if let Some(parents) = unsafe { parents.as_ref() } {
            parents.keeps_slots.store(false, Ordering::Release);
            self.wants_queue.store(true, Ordering::Release);
        }
        // The thread that was renewing the queue is the parent's, as is the reason for a pause.
        self.renewing.store(false, Ordering::Release);
        self.next_renewal_nano.store(0, Ordering::Relaxed);
        self.room.clear();
        self.replaced.with(|replaced| std::mem::forget(std::mem::take(replaced)));
        queue_file::forget_parents_queues();
    }

    /// Changes with each fork: a request of another generation belongs to another process.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Ends the requests in flight, and refuses every record from now on, counted as `already_shutdown`. Idempotent.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wants_queue.store(false, Ordering::Release);
        // Pairs with the fence in `reopen`.
        fence(Ordering::SeqCst);
        let run = |queue: &Queue| {
            if let Some(run) = self.before_close.get() {
                run(queue);
            }
        };
        self.replaced.with(|replaced| replaced.iter().for_each(|replaced| replaced.before_close(run)));
        if let Some(queue) = self.queue() {
            queue.before_close(run);
            queue.file.ring().close();
        }
    }

    /// Registers an event and returns its id; the same name with the same fields gives the same id.
    ///
    /// # Errors
    /// A sentence that names the event or field: a bad name, one of [`event::OF_LISTENERS`], other fields than at its first
    /// registration, or a full schema area.
    pub fn register(&self, name: &str, fields: &[String]) -> Result<u16, String> {
        self.register_form(name, fields, false).map_err(|error| error.to_string())
    }

    /// As `register`; with `may_vary`, the same name may also have other fields, and then gets another id.
    ///
    /// # Errors
    /// As `register`.
    pub fn register_form(&self, name: &str, fields: &[String], may_vary: bool) -> Result<u16, NotRegistered> {
        if event::OF_LISTENERS.contains(&name) {
            let why = format!("event {name:?} is the listener's own and cannot be registered");
            return Err(NotRegistered::Refused(why));
        }
        self.schemas.with(|schemas| {
            let mut named = schemas.iter().filter(|schema| schema.name == name);
            if let Some(known) = named.clone().find(|schema| schema.fields == fields) {
                return Ok(known.id);
            }
            if let Some(known) = named.find(|known| !may_vary || known.id < FIRST_USER_ID) {
                return Err(NotRegistered::Refused(format!(
                    "event {name:?} is already registered with fields {:?}, not {fields:?}",
                    known.fields
                )));
            }
            let no_room = |why: String| NotRegistered::NoRoom(format!("event {name:?} cannot be registered: {why}"));
            let users = schemas.iter().filter(|schema| schema.id >= FIRST_USER_ID).count();
            let id = u16::try_from(users).ok().and_then(|count| FIRST_USER_ID.checked_add(count));
            let id = id.ok_or_else(|| no_room("too many events".to_owned()))?;
            let schema =
                EventSchema::new(id, name, fields).map_err(|error| NotRegistered::Refused(error.to_string()))?;
            if let Some(queue) = self.queue() {
                let stored = queue.file.append_schema(&schema.to_bytes());
                stored.map_err(|error| no_room(error.to_string()))?;
            }
            schemas.push(schema);
            Ok(id)
        })
    }
}
