//! The counts of the requests of a queue directory, in the shared file `metrics`: the leader counts, every process
//! reads.
//!
//! It is computed from the requests' records; each kept record counts as many requests as its `adjusted_count` says.
//! For all requests it counts the outcomes; for those that took tokens, by the answer's or the engine's report, the
//! tokens; for inference requests there are the GenAI server histograms, in the names and buckets of OpenTelemetry's
//! semantic conventions 1.41. Clients get chunks, so two histograms of streams time chunks; the time per token is over
//! streams whose tokens are known.
//!
//! Each record counts once, whichever process dies when: the additions of a batch wait until the sink took the batch
//! ([`Series::observe`]); then each queue's header notes the sequence up to which the next generation will include its
//! records, and one store makes numbers and notes valid ([`Series::commit`]); only then are the records released. A
//! successor that reads a record again knows by the note whether it was counted.
//!
//! All requests over HTTP are timed by route as well (`routes`). Beside them are the last statistics of engines (`engines`).
//!
//! Nothing in the file grows: labels and series are tables of fixed size, see `labels`.

use engines::{EngineWords, MAX_ENGINES};
use histogram::{BOUNDS, EXEMPLAR_BUCKETS, KINDS, TOKEN_TYPES, TOKENS_WORD, WORDS};
use labels::{Labels, MAX_SERIES, Names};
use observe::{Answer, InferenceRequest};
use queue::lock::open;
use queue::shared_page::Generation;
use queue::{memory, shared_page};
use routes::{RouteNames, RouteNumbers, Routes, TenantNames, TenantNumbers, Tenants};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

pub use engines::{EngineFields, EngineState, Reporter};
pub use labels::OUTCOMES;
pub use routes::{BOUNDS_S as ROUTE_BOUNDS_S, MAX_TENANTS, OTHER_TENANT, RouteCounts, Served, TenantCounts};
pub use snapshot::{Exemplar, SeriesSnapshot, Snapshot, read};

mod engines;
pub mod histogram;
mod labels;
pub(crate) mod observe;
mod routes;
mod snapshot;

const MAGIC: u64 = u64::from_le_bytes(*b"INFLOGM\0");
const VERSION: u32 = 6;
const FILE_NAME: &str = "metrics";
/// Of magic and version.
const HEAD_BYTES: usize = 12;

queue::shared! {
    /// The whole file; zeroes are a valid one without series.
    struct Page {
        magic: AtomicU64,
        version: AtomicU32,
        series_len: AtomicU32,
        generation: Generation,
        names: Names,
        tenant_names: TenantNames,
        /// Labels of each series: operation, model and error as indices, a byte each.
        keys: [AtomicU64; MAX_SERIES],
        route_names: RouteNames,
        outcomes: [Numbers<{ OUTCOMES.len() }>; 2],
        tenants: [TenantNumbers; 2],
        routes: [RouteNumbers; 2],
        copies: [[Numbers<WORDS>; MAX_SERIES]; 2],
        exemplars: [[ExemplarWords; EXEMPLAR_BUCKETS]; MAX_SERIES],
        engines: [EngineWords; MAX_ENGINES],
    }
}

queue::shared! {
    /// Counts, or the histograms and tokens of a series: floats as bits, since a record can count as 2.5 requests.
    struct Numbers<const N: usize>([AtomicU64; N]);
}

impl<const N: usize> Numbers<N> {
    fn read(&self) -> [f64; N] {
        self.0.each_ref().map(|word| f64::from_bits(word.load(Ordering::Relaxed)))
    }

    fn copy_to(&self, other: &Self) {
        for (old, new) in self.0.iter().zip(&other.0) {
            new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn add(&self, word: usize, more: f64) {
        let sum = f64::from_bits(self.0[word].load(Ordering::Relaxed)) + more;
        self.0[word].store(sum.to_bits(), Ordering::Relaxed);
    }
}

queue::shared! {
    /// The last request of a bucket. `version` is odd while the words change.
    struct ExemplarWords {
        version: AtomicU64,
        value: AtomicU64,
        trace_id: [AtomicU64; 2],
        span_id: AtomicU64,
        unix_nano: AtomicU64,
    }
}

impl ExemplarWords {
    fn store(&self, observed: &Observed, value: f64) {
        let version = self.version.load(Ordering::Relaxed) | 1;
        self.version.store(version, Ordering::Relaxed);
        fence(Ordering::Release);
        self.value.store(value.to_bits(), Ordering::Relaxed);
        for (word, part) in self.trace_id.iter().zip(observed.trace_id) {
            word.store(part, Ordering::Relaxed);
        }
        self.span_id.store(observed.span_id, Ordering::Relaxed);
        self.unix_nano.store(observed.unix_nano, Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Release);
    }
}

/// The counts that every record adds to.
struct Counted {
    weight: f64,
    outcome: u8,
    /// It is among the tenants' requests.
    has_tenant: bool,
    /// The rest of it is among the details.
    is_observed: bool,
    served: Served,
}

/// A tenant's request: the tenant's place.
struct OfTenant {
    tenant: u8,
    outcome: u8,
    weight: f64,
    tokens: [f64; TOKEN_TYPES.len()],
}

/// The values that one record adds to a series.
struct Observed {
    series: u8,
    weight: f64,
    /// In seconds, by histogram; negative or not finite: no value.
    values: [f64; KINDS],
    tokens: [f64; TOKEN_TYPES.len()],
    trace_id: [u64; 2],
    span_id: u64,
    unix_nano: u64,
}

/// The leader's handle of the file.
pub struct Series {
    page: &'static Page,
    labels: Labels,
    tenants: Tenants,
    routes: Routes,
    pending: Vec<Counted>,
    details: Vec<Observed>,
    of_tenants: Vec<OfTenant>,
    /// Series whose last change the other copy lacks.
    stale: u128,
    /// The same of the tenants.
    stale_tenants: bool,
}

const _: () = assert!(MAX_SERIES <= u128::BITS as usize);
/// Another layout needs another [`VERSION`].
const _: () = assert!(size_of::<Page>() == 723_168);

impl Series {
    /// Opens the file of `directory`, creating it if needed; the caller holds the leader lock. `tenants` are the names that are
    /// counted by themselves.
    ///
    /// # Errors
    /// The file is not available. A listener then goes on without it.
    pub fn open(directory: &Path, tenants: &[String]) -> io::Result<Self> {
        let path = directory.join(FILE_NAME);
        let mut fd = open(&path, true)?;
        if !allocate(&fd)? {
            // Of another version: its readers keep their mapping.
            std::fs::remove_file(&path)?;
            fd = open(&path, true)?;
            allocate(&fd)?;
        }
        // Never unmapped: each process maps it once per queue directory.
        let page: &Page = shared_page::map_whole(&fd, directory)?;
        page.magic.store(MAGIC, Ordering::Relaxed);
        page.version.store(VERSION, Ordering::Release);
        Ok(Self {
            tenants: Tenants::new(&page.tenant_names, tenants),
            routes: Routes::new(&page.route_names),
            labels: Labels::new(&page.names, &page.keys, &page.series_len),
            page,
            pending: Vec::new(),
            details: Vec::new(),
            of_tenants: Vec::new(),
            stale: !0,
            stale_tenants: true,
        })
    }

    /// The place of a request over HTTP among those by route; `route` is the answer's or what redaction left of it.
    #[inline]
    pub fn served(&mut self, answer: &Answer<'_>, route: &[u8]) -> Served {
        self.routes.place(answer, route)
    }

    /// Keeps what an engine's statistics say, at once: they are no counts.
    pub fn engine(&self, fields: &EngineFields, reporter: Reporter<'_>, payload: &[u8]) {
        engines::note(&self.page.engines, fields, reporter, payload);
    }

    /// Takes note of a record in the batch; only its outcome and its route count.
    #[inline]
    pub fn count(&mut self, outcome: &[u8], weight: f64, tenant: &[u8], served: Served) {
        let outcome = labels::outcome(outcome);
        let has_tenant = !tenant.is_empty() && self.add_tenant(tenant, outcome, weight, Default::default());
        self.pending.push(Counted { weight, outcome, has_tenant, is_observed: false, served });
    }

    /// Takes note of a tenant's request; returns whether tenants are counted.
    #[inline(never)]
    fn add_tenant(&mut self, tenant: &[u8], outcome: u8, weight: f64, tokens: [f64; TOKEN_TYPES.len()]) -> bool {
        let tenant = self.tenants.place(tenant);
        if tenant > 0 {
            self.of_tenants.push(OfTenant { tenant, outcome, weight, tokens });
        }
        tenant > 0
    }

    /// Takes note of a record in the batch.
    pub fn observe(&mut self, seen: &InferenceRequest<'_>, unix_nano: u64, tenant: &[u8], served: Served) {
        let trace_id = u128::from_be_bytes(seen.trace.trace_id);
        let outcome = labels::outcome(seen.outcome);
        let has_tenant = !tenant.is_empty() && self.add_tenant(tenant, outcome, seen.weight, seen.tokens);
        self.pending.push(Counted { weight: seen.weight, outcome, has_tenant, is_observed: true, served });
        self.details.push(Observed {
            series: self.labels.series(seen),
            weight: seen.weight,
            values: seen.values(),
            tokens: seen.tokens,
            trace_id: [(trace_id >> 64) as u64, trace_id as u64],
            span_id: u64::from_be_bytes(seen.trace.span_id),
            unix_nano,
        });
    }

    /// How many records wait for a commit.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Forgets all but the first `len` records that wait: they were not written, or were counted before.
    pub fn truncate(&mut self, len: usize) {
        let forgotten = self.pending.get(len..).unwrap_or_default();
        let details = forgotten.iter().filter(|counted| counted.is_observed).count();
        let of_tenants = forgotten.iter().filter(|counted| counted.has_tenant).count();
        self.details.truncate(self.details.len() - details);
        self.of_tenants.truncate(self.of_tenants.len() - of_tenants);
        self.pending.truncate(len);
    }

    /// The valid generation: it includes the records that headers note for it.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.page.generation.now()
    }

    /// Counts the waiting records, in one step. The caller has noted generation + 1 in the headers of its queues.
    pub fn commit(&mut self) {
        let (mut changed, stale_tenants, of_tenants) = (0u128, self.stale_tenants, &self.of_tenants);
        let (page, pending, details, stale) = (self.page, &mut self.pending, &mut self.details, self.stale);
        let routes = &mut self.routes;
        page.generation.change(|from, to| {
            page.outcomes[from].copy_to(&page.outcomes[to]);
            if stale_tenants {
                page.tenants[from].iter().zip(&page.tenants[to]).for_each(|(from, to)| from.copy_to(to));
            }
            routes.catch_up(&page.routes[from], &page.routes[to]);
            for counted in pending.drain(..) {
                page.outcomes[to].add(usize::from(counted.outcome), counted.weight);
                routes.add(&page.routes[to], counted.served, counted.weight);
            }
            for counted in of_tenants.iter() {
                let numbers = &page.tenants[to][usize::from(counted.tenant)];
                numbers.add(usize::from(counted.outcome), counted.weight);
                for (at, tokens) in counted.tokens.iter().enumerate() {
                    numbers.add(OUTCOMES.len() + at, counted.weight * tokens);
                }
            }
            let (from, to) = (&page.copies[from], &page.copies[to]);
            for series in (0..MAX_SERIES).filter(|series| stale >> series & 1 != 0) {
                from[series].copy_to(&to[series]);
            }
            for observed in details.iter() {
                changed |= 1 << observed.series;
                add(&to[usize::from(observed.series)], observed);
            }
        });
        // Only examples: they are shown after they count, and losing one does no harm.
        for observed in details.drain(..) {
            show(&page.exemplars[usize::from(observed.series)], &observed);
        }
        self.stale = changed;
        self.stale_tenants = !self.of_tenants.is_empty();
        self.of_tenants.clear();
    }
}

fn is_value(value: f64) -> bool {
    value >= 0.0 && value.is_finite()
}

fn add(numbers: &Numbers<WORDS>, observed: &Observed) {
    for (place, tokens) in observed.tokens.iter().enumerate() {
        numbers.add(TOKENS_WORD + place, observed.weight * tokens);
    }
    for (histogram, value) in BOUNDS.iter().zip(observed.values).filter(|(_, value)| is_value(*value)) {
        numbers.add(histogram.first_word + histogram.bucket(value), observed.weight);
        numbers.add(histogram.sum_word(), observed.weight * value);
    }
}

fn show(exemplars: &[ExemplarWords; EXEMPLAR_BUCKETS], observed: &Observed) {
    if observed.trace_id == [0; 2] {
        return;
    }
    for (histogram, value) in BOUNDS.iter().zip(observed.values).filter(|(_, value)| is_value(*value)) {
        if let Some(exemplar) = exemplars.get(histogram.first_bucket + histogram.bucket(value)) {
            exemplar.store(observed, value);
        }
    }
}

/// Gives the file its space; false if it has another version's size or head.
fn allocate(fd: &OwnedFd) -> io::Result<bool> {
    let mut head = [0u8; HEAD_BYTES];
    let file = std::fs::File::from(fd.try_clone()?);
    let bytes = file.metadata()?.len();
    if bytes != 0 && bytes != size_of::<Page>() as u64 {
        return Ok(false);
    }
    memory::allocate(fd, size_of::<Page>())?;
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut head, 0)?;
    let version = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    Ok(head == [0; HEAD_BYTES] || head.starts_with(&MAGIC.to_le_bytes()) && version == VERSION)
}
