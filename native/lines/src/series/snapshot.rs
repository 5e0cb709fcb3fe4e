//! The content of the file `metrics`, as any process reads it.

use super::engines::{self, EngineState};
use super::histogram::{EXEMPLAR_BUCKETS, WORDS};
use super::labels::{MAX_SERIES, OPERATIONS, OUTCOMES, text};
use super::observe::OTHER_NAME;
use super::routes::{self, RouteCounts, TenantCounts};
use super::{ExemplarWords, FILE_NAME, HEAD_BYTES, MAGIC, Numbers, Page, VERSION};
use queue::lock::open;
use queue::sigbus;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

/// A request that fell into a bucket: its trace, its value in seconds, and when it ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    pub trace_id: u128,
    pub span_id: u64,
    pub value: f64,
    pub unix_nano: u64,
}

impl Exemplar {
    /// When it ended, Unix time in seconds.
    #[must_use]
    pub fn unix_s(&self) -> f64 {
        self.unix_nano as f64 / 1e9
    }
}

/// The counts of a directory's requests; zeroes if no listener has led it yet.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Requests by outcome, as [`super::OUTCOMES`] names them.
    pub outcomes: [f64; OUTCOMES.len()],
    pub series: Vec<SeriesSnapshot>,
    /// The tenants that have any requests.
    pub tenants: Vec<TenantCounts>,
    /// The requests over HTTP by route.
    pub routes: Vec<RouteCounts>,
    /// The engines that have reported, however long ago.
    pub engines: Vec<EngineState>,
}

/// One series: its labels, histograms and tokens.
#[derive(Clone, Debug)]
pub struct SeriesSnapshot {
    pub operation: String,
    pub model: String,
    /// Empty for successful requests.
    pub error_type: String,
    /// As [`super::histogram::BOUNDS`] and [`super::histogram::TOKENS_WORD`] describe.
    pub words: [f64; WORDS],
    pub exemplars: [Option<Exemplar>; EXEMPLAR_BUCKETS],
}

/// Reads the counts of a queue directory.
///
/// # Errors
/// The file cannot be read, or `InvalidData` if it is of another version.
pub fn read(directory: &Path) -> io::Result<Snapshot> {
    let fd = match open(&directory.join(FILE_NAME), false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Snapshot::default()),
        other => other?,
    };
    let file = std::fs::File::from(fd.try_clone()?);
    if file.metadata()?.len() == size_of::<Page>() as u64 {
        return sigbus::with_mapped(&fd, read_page)?;
    }
    // Its leader is making it right now: where space is allocated by writing zeroes, the file grows step by step.
    let mut head = [0; HEAD_BYTES];
    file.read_at(&mut head, 0)?;
    if head == [0; HEAD_BYTES] { Ok(Snapshot::default()) } else { Err(other_version()) }
}

fn other_version() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the queue directory's metrics file is of another version")
}

fn read_page(page: &Page) -> io::Result<Snapshot> {
    match (page.version.load(Ordering::Acquire), page.magic.load(Ordering::Relaxed)) {
        // Its leader is making it right now.
        (0, _) => return Ok(Snapshot::default()),
        (VERSION, MAGIC) => {}
        _ => return Err(other_version()),
    }
    let len = (page.series_len.load(Ordering::Acquire) as usize).min(MAX_SERIES);
    let (models, errors) = (page.names.models.read(), page.names.errors.read());
    let (outcomes, tenants, routes, numbers): (_, _, _, Vec<_>) = page.generation.read(|copy| {
        let numbers = page.copies[copy][..len].iter().map(Numbers::read).collect();
        let tenants = routes::read_tenants(&page.tenant_names, &page.tenants[copy]);
        (page.outcomes[copy].read(), tenants, routes::numbers(&page.route_names, &page.routes[copy]), numbers)
    });
    let routes = routes::read(&page.route_names, &routes);
    let series = numbers.into_iter().enumerate().map(|(at, words)| {
        let [operation, model, error, ..] = page.keys[at].load(Ordering::Relaxed).to_le_bytes();
        SeriesSnapshot {
            operation: (*OPERATIONS.get(usize::from(operation)).unwrap_or(&OTHER_NAME)).to_owned(),
            model: text(&models, model),
            error_type: text(&errors, error),
            words,
            exemplars: page.exemplars[at].each_ref().map(read_exemplar),
        }
    });
    // A series without a count was made by a leader that died before it counted.
    let series = series.filter(|series| series.words.iter().any(|word| *word > 0.0)).collect();
    Ok(Snapshot { outcomes, series, tenants, routes, engines: engines::read(&page.engines) })
}

fn read_exemplar(words: &ExemplarWords) -> Option<Exemplar> {
    let version = words.version.load(Ordering::Acquire);
    if version == 0 || version & 1 != 0 {
        return None;
    }
    let [high, low] = words.trace_id.each_ref().map(|word| u128::from(word.load(Ordering::Relaxed)));
    let exemplar = Exemplar {
        trace_id: high << 64 | low,
        span_id: words.span_id.load(Ordering::Relaxed),
        value: f64::from_bits(words.value.load(Ordering::Relaxed)),
        unix_nano: words.unix_nano.load(Ordering::Relaxed),
    };
    fence(Ordering::Acquire);
    (words.version.load(Ordering::Relaxed) == version).then_some(exemplar)
}
