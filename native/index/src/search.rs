//! Runs a query over all segments, by several threads.

use crate::catalog::THREADS;
use crate::entry::{Entry, Snapshot};
use crate::query::Query;
use crate::scan::{Failed, Scan, Visitor};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// How far a search came.
#[derive(Clone, Debug, Default)]
pub struct Reached {
    pub scanned_rows: u64,
    /// The latest time of what was not searched, if the budget ended the search.
    pub stopped_at: Option<u64>,
    /// Something was left out, since it could not matter.
    pub skipped: bool,
    /// Bytes on disk of segments that have no index, or that could not be read.
    pub unindexed_bytes: u64,
}

impl Reached {
    /// Returns whether nothing is missing in the answer.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.stopped_at.is_none() && self.unindexed_bytes == 0
    }

    fn add(&mut self, other: &Self) {
        self.scanned_rows += other.scanned_rows;
        self.stopped_at = self.stopped_at.max(other.stopped_at);
        self.skipped |= other.skipped;
        self.unindexed_bytes += other.unindexed_bytes;
    }
}

/// Passes all records that fulfil the query to visitors, one for each thread; `forward`: the oldest segments first.
pub fn search<V: Visitor>(
    query: &Query,
    snapshot: &Snapshot,
    forward: bool,
    make: impl Fn() -> V + Sync,
) -> (Vec<V>, Reached) {
    let order = in_order(query, snapshot, forward);
    let next = AtomicUsize::new(0);
    let ended = Mutex::new(Vec::new());
    let run = || {
        let (mut visitor, mut reached) = (make(), Reached::default());
        // The first segment that matters is the first one of some thread.
        let mut is_first = true;
        while let Some((_, entry)) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            is_first &= !one(query, entry, forward, is_first, &mut visitor, &mut reached);
        }
        ended.lock().unwrap_or_else(PoisonError::into_inner).push((visitor, reached));
    };
    std::thread::scope(|scope| {
        for _ in 1..THREADS.min(order.len()) {
            scope.spawn(run);
        }
        run();
    });
    let (mut visitors, mut reached) = (Vec::new(), Reached::default());
    for (visitor, part) in ended.into_inner().unwrap_or_else(PoisonError::into_inner) {
        visitors.push(visitor);
        reached.add(&part);
    }
    (visitors, reached)
}

/// The segments that may hold what the query asks for, in the order of the search: each with its key, which takes a look
/// at all of its blocks. A function of its own, since `search` is compiled once for each kind of visitor.
fn in_order<'a>(query: &Query, snapshot: &'a Snapshot, forward: bool) -> Vec<(u128, &'a Arc<Entry>)> {
    let is_chosen = |entry: &&Arc<Entry>| query.begin_in(&entry.text, &entry.directory).is_some();
    // A segment without times comes before all others, backwards after them.
    let key = |entry: &Arc<Entry>| {
        let times = entry.image.as_ref().and_then(|image| image.times());
        let time = times.map_or(0, |(first, last)| 1 + u128::from(if forward { first } else { last }));
        if forward { time } else { u128::MAX - time }
    };
    let mut order: Vec<_> = snapshot.iter().filter(is_chosen).map(|entry| (key(entry), entry)).collect();
    order.sort_by_key(|(key, _)| *key);
    order
}

/// Searches a segment; returns whether it did, and not only left it out.
fn one<V: Visitor>(
    query: &Query,
    entry: &Entry,
    forward: bool,
    is_first: bool,
    visitor: &mut V,
    reached: &mut Reached,
) -> bool {
    let Some(image) = &entry.image else {
        reached.unindexed_bytes += entry.disk_bytes;
        return false;
    };
    reached.unindexed_bytes += entry.unread_bytes;
    let within = |times: (u64, u64)| times.1 >= query.from_ns && times.0 < query.to_ns;
    let mut blocks = image.blocks.iter().filter(|(_, block)| within(block.times)).peekable();
    if blocks.peek().is_none() {
        return false;
    }
    if !blocks.any(|(_, block)| visitor.admits(block)) {
        reached.skipped = true;
        return false;
    }
    if !is_first && Instant::now() >= query.deadline {
        reached.stopped_at = reached.stopped_at.max(image.times().map(|times| times.1));
        return false;
    }
    visitor.begin(entry);
    let scanned =
        Scan::new(query, entry, image, visitor.fields()).and_then(|scan| scan.run(visitor, forward, is_first));
    match scanned {
        Ok(scanned) => {
            reached.scanned_rows += scanned.rows;
            reached.stopped_at = reached.stopped_at.max(scanned.stopped_at);
            reached.skipped |= scanned.skipped;
        }
        Err(failed) => {
            if matches!(failed, Failed::Stale) {
                entry.is_damaged.store(true, Ordering::Relaxed);
            }
            reached.unindexed_bytes += entry.disk_bytes;
        }
    }
    true
}
