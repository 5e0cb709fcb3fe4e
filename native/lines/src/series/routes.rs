//! Durations of requests over HTTP by route, method and status: `http.server.request.duration` of OpenTelemetry's
//! conventions, with three more bounds, since answers of models take longer.
//!
//! * route: the template that the framework names, never the path. The first [`FREE_ROUTES`] get their place at once; then
//!   a name must come back, see [`Admission`]: a mount with a parameter in its path has a name for each value. A name
//!   without a place counts as [`OTHER_ROUTE`]; no route was taken: empty.
//! * method: the known ones; anything else is `_OTHER`.
//! * status: the number; empty if the answer has not begun.
//! * Failed requests may take half of the series. Without room a request counts under [`OTHER_ROUTE`] and `_OTHER`.

use super::histogram::TOKEN_TYPES;
use super::labels::{Admission, NAME_BYTES, OTHER, OUTCOMES, Table, text};
use super::observe::{Answer, OTHER_NAME};
use super::{Numbers, is_value};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most names of routes.
pub const MAX_ROUTES: usize = 64;
/// Routes that get a place with their first request.
const FREE_ROUTES: usize = 32;
/// Most combinations of route, method and status.
const MAX_SERIES: usize = 256;
/// Routes without a place; every real one begins with a slash.
pub const OTHER_ROUTE: &str = "other";
/// The places that stand for none and for all others.
const RESERVED: usize = 2;
/// Names of methods by index; 0 is not used, so that a key is never 0.
const METHODS: [&str; 12] =
    ["", OTHER_NAME, "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"];
const OTHER_METHOD: u8 = 1;
const MAX_STATUS: u64 = 999;

/// Upper bounds of the buckets, in seconds: those of the conventions (1.41), then 20, 40 and 80.
pub const BOUNDS_S: [f64; 17] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
/// A word per bucket, the one without bound included, not cumulated, then the sum.
pub const ROUTE_WORDS: usize = BOUNDS_S.len() + 2;
const SUM_WORD: usize = BOUNDS_S.len() + 1;

queue::shared! {
    /// The names and labels in the file.
    pub struct RouteNames {
        names: Table<{ MAX_ROUTES + RESERVED }>,
        len: AtomicU32,
        unused: AtomicU32,
        /// Labels of each series: route and method as indices, a byte each, then the status, two bytes.
        keys: [AtomicU64; MAX_SERIES],
    }
}

/// The counts of all series.
pub type RouteNumbers = [Numbers<ROUTE_WORDS>; MAX_SERIES];

/// One series: its labels, and its histogram as [`ROUTE_WORDS`] describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteCounts {
    pub route: String,
    pub method: &'static str,
    /// 0: the answer had not begun.
    pub status: u16,
    pub words: [f64; ROUTE_WORDS],
}

/// The series of a request, and its duration; [`Served::NONE`]: it is not counted.
#[derive(Clone, Copy)]
pub struct Served {
    series: u16,
    duration_s: f64,
}

impl Served {
    pub const NONE: Self = Self { series: u16::MAX, duration_s: 0.0 };
}

/// The leader's knowledge of the labels.
pub struct Routes {
    page: &'static RouteNames,
    names: Vec<Box<[u8]>>,
    keys: Vec<u64>,
    admission: Admission,
    /// The last request's method, route, status and series: the next is mostly the same.
    last: (Vec<u8>, Vec<u8>, u64, u16),
    /// Series whose last change the other copy lacks.
    stale: [bool; MAX_SERIES],
}

impl Routes {
    pub fn new(page: &'static RouteNames) -> Self {
        let len = (page.len.load(Ordering::Acquire) as usize).min(MAX_SERIES);
        Self {
            names: page.names.read(),
            keys: page.keys[..len].iter().map(|key| key.load(Ordering::Relaxed)).collect(),
            admission: Admission::default(),
            last: (Vec::new(), Vec::new(), 0, 0),
            stale: [true; MAX_SERIES],
            page,
        }
    }

    /// The place of a request, whose `route` may have been redacted.
    #[inline]
    pub fn place(&mut self, answer: &Answer<'_>, route: &[u8]) -> Served {
        if answer.method.is_empty() || !is_value(answer.duration_s) {
            return Served::NONE;
        }
        let (method, last, status, series) = &self.last;
        let is_last = *status == answer.status && method == answer.method && last == route;
        let series = if is_last { *series } else { self.find(answer, route) };
        Served { series, duration_s: answer.duration_s }
    }

    #[inline(never)]
    fn find(&mut self, answer: &Answer<'_>, route: &[u8]) -> u16 {
        let method = METHODS[2..].iter().position(|name| name.as_bytes() == answer.method);
        let method = method.map_or(OTHER_METHOD, |at| at as u8 + 2);
        let status = if answer.status <= MAX_STATUS { answer.status as u16 } else { 0 };
        let name = self.name(route);
        let series = self.series(key(name, method, status));
        // A name without a place must be looked up again: it may get one.
        if name != OTHER {
            let (last_method, last, last_status, last_series) = &mut self.last;
            last_method.clear();
            last_method.extend_from_slice(answer.method);
            last.clear();
            last.extend_from_slice(route);
            (*last_status, *last_series) = (answer.status, series);
        }
        series
    }

    fn name(&mut self, route: &[u8]) -> u8 {
        if route.is_empty() {
            return 0;
        }
        if let Some(at) = self.names.iter().position(|known| **known == *route) {
            return (at + RESERVED) as u8;
        }
        let is_text = std::str::from_utf8(route).is_ok_and(|route| route != OTHER_ROUTE && !route.contains('\0'));
        let fits = route.len() <= NAME_BYTES && is_text;
        if !fits || !self.admission.admits(route, self.names.len(), FREE_ROUTES, MAX_ROUTES) {
            return OTHER;
        }
        let place = self.names.len() + RESERVED;
        self.page.names.append(place, route);
        self.names.push(route.into());
        place as u8
    }

    fn series(&mut self, wanted: u64) -> u16 {
        if let Some(place) = self.keys.iter().position(|known| *known == wanted) {
            return place as u16;
        }
        // The last place is for requests without another.
        let others = key(OTHER, OTHER_METHOD, 0);
        let room = if is_failed(wanted) { MAX_SERIES / 2 } else { MAX_SERIES - 1 };
        if self.keys.len() >= room && wanted != others {
            return self.series(others);
        }
        let place = self.keys.len();
        if place == MAX_SERIES {
            return place as u16 - 1; // a damaged page: no leader fills the last place with anything but others
        }
        self.page.keys[place].store(wanted, Ordering::Relaxed);
        self.page.len.store(place as u32 + 1, Ordering::Release);
        self.keys.push(wanted);
        place as u16
    }

    /// Makes the numbers `to`, which lack the last changes, as `from`, before anything is added.
    pub fn catch_up(&mut self, from: &RouteNumbers, to: &RouteNumbers) {
        for (series, stale) in self.stale.iter_mut().enumerate().filter(|(_, stale)| **stale) {
            from[series].copy_to(&to[series]);
            *stale = false;
        }
    }

    /// Adds a request that counts `weight` times.
    #[inline]
    pub fn add(&mut self, to: &RouteNumbers, served: Served, weight: f64) {
        let series = usize::from(served.series);
        let Some(numbers) = to.get(series) else { return };
        self.stale[series] = true;
        let bucket = BOUNDS_S.iter().position(|bound| served.duration_s <= *bound).unwrap_or(BOUNDS_S.len());
        numbers.add(bucket, weight);
        numbers.add(SUM_WORD, weight * served.duration_s);
    }
}

const fn key(route: u8, method: u8, status: u16) -> u64 {
    let [low, high] = status.to_le_bytes();
    u64::from_le_bytes([route, method, low, high, 0, 0, 0, 0])
}

const fn status_of(key: u64) -> u16 {
    let [_, _, low, high, ..] = key.to_le_bytes();
    u16::from_le_bytes([low, high])
}

fn is_failed(key: u64) -> bool {
    !(1..400).contains(&status_of(key))
}

/// The series that have any requests. The labels are read after the numbers that they belong to.
pub fn read(page: &RouteNames, numbers: &[[f64; ROUTE_WORDS]]) -> Vec<RouteCounts> {
    let names = page.names.read();
    let counted = numbers.iter().enumerate().filter(|(_, words)| words.iter().any(|word| *word > 0.0));
    let counts = counted.map(|(at, words)| {
        let key = page.keys[at].load(Ordering::Relaxed);
        let [route, method, ..] = key.to_le_bytes();
        let route = if route == OTHER { OTHER_ROUTE.to_owned() } else { text(&names, route) };
        let method = METHODS.get(usize::from(method)).unwrap_or(&OTHER_NAME);
        RouteCounts { route, method, status: status_of(key), words: *words }
    });
    counts.collect()
}

/// Reads the numbers of the series that have labels.
pub fn numbers(page: &RouteNames, numbers: &RouteNumbers) -> Vec<[f64; ROUTE_WORDS]> {
    let len = (page.len.load(Ordering::Acquire) as usize).min(MAX_SERIES);
    numbers[..len].iter().map(Numbers::read).collect()
}

// Counts by tenant, for the names that the configuration lists; all others count together.
//
// The table of names only grows, as that of models does: a name that is listed no more keeps its place. Places that run out
// count as [`OTHER_TENANT`].

/// Most names, with those of earlier configurations.
pub const MAX_TENANTS: usize = 64;
/// First place of a listed name; 0 is no tenant, 1 all others.
const FIRST: usize = 2;
/// The places of a table.
pub const PLACES: usize = MAX_TENANTS + FIRST;
/// The requests by outcome, then the tokens by type.
pub const TENANT_WORDS: usize = OUTCOMES.len() + TOKEN_TYPES.len();
/// The tenants that are not listed.
pub const OTHER_TENANT: &str = "other";

queue::shared! {
    /// The names in the file.
    pub struct TenantNames(Table<PLACES>);
}

/// The counts of all tenants.
pub type TenantNumbers = [Numbers<TENANT_WORDS>; PLACES];

/// What one tenant's requests add up to.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantCounts {
    /// Its name, or [`OTHER_TENANT`].
    pub name: String,
    /// As [`OUTCOMES`] names them.
    pub outcomes: [f64; OUTCOMES.len()],
    /// As [`TOKEN_TYPES`] names them.
    pub tokens: [f64; TOKEN_TYPES.len()],
}

/// The leader's knowledge of the names.
pub struct Tenants {
    names: Vec<Box<[u8]>>,
    /// The last tenant and its place: the next one is mostly the same.
    last: (Vec<u8>, u8),
    is_on: bool,
}

impl Tenants {
    /// Counts for the `listed` names, which get places; for no tenant at all if there are none.
    pub fn new(table: &'static TenantNames, listed: &[String]) -> Self {
        let mut names = table.0.read();
        for name in listed.iter().map(String::as_bytes) {
            let is_new = names.iter().all(|known| **known != *name);
            if is_new && names.len() < MAX_TENANTS && (1..=NAME_BYTES).contains(&name.len()) {
                table.0.append(names.len() + FIRST, name);
                names.push(name.into());
            }
        }
        Self { names, last: (Vec::new(), 0), is_on: !listed.is_empty() }
    }

    /// The place of a request's tenant; 0: it has none, or none is counted.
    #[inline]
    pub fn place(&mut self, tenant: &[u8]) -> u8 {
        if tenant.is_empty() || !self.is_on {
            return 0;
        }
        if self.last.0 != tenant {
            let place = self.names.iter().position(|name| **name == *tenant).map_or(OTHER, |at| (at + FIRST) as u8);
            self.last = (tenant.to_vec(), place);
        }
        self.last.1
    }
}

/// Reads the counts of the tenants that have any.
pub fn read_tenants(names: &TenantNames, numbers: &TenantNumbers) -> Vec<TenantCounts> {
    let names = names.0.read();
    let counted =
        numbers.iter().map(Numbers::read).enumerate().skip(1).filter(|(_, words)| words.iter().any(|word| *word > 0.0));
    let counts = counted.map(|(place, words)| {
        let (mut outcomes, mut tokens) = ([0.0; OUTCOMES.len()], [0.0; TOKEN_TYPES.len()]);
        outcomes.copy_from_slice(&words[..OUTCOMES.len()]);
        tokens.copy_from_slice(&words[OUTCOMES.len()..]);
        let name = if place == usize::from(OTHER) { OTHER_TENANT.to_owned() } else { text(&names, place as u8) };
        TenantCounts { name, outcomes, tokens }
    });
    counts.collect()
}
