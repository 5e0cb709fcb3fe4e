//! A queue directory and a directory of segments, written by the real leader in small batches, so that there are many.

use crate::support::{INFO, emit, listener_settings, queue_settings, register};
use listen::delivery::{Delivery, Sinks};
use listen::housekeeper::{HousekeepingSettings, Rounds};
use listen::leader::{Leader, Round};
use listen::sink::file::{ChainSettings, DurableSettings, FileSink, FileSinkConfig};
use listen::sink::{Now, Sink};
use queue::control::Control;
use queue::event;
use queue::producer::Producer;
use queue::published::housekeeping::HousekeepingWords;
use queue::record::Scratch;
use queue::system::now_unix_nano;
use segments::chain::{Algorithm, Value as ChainValue};
use segments::compress;
use segments::retention::Moment;
use segments::retention::{Limits, Removed};
use segments::segment::{Form, SegmentName};
use segments::segment_store::RealStore;
use segments::verify::{Request, verify};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const KEY: ChainValue = [3; 32];

/// The clock by which queues are created: their beginning must be before the reports.
fn now() -> Now {
    Now { unix_nano: now_unix_nano(), monotonic: Duration::from_secs(1) }
}

pub struct Place {
    queues: TempDir,
    pub segments: TempDir,
    rotate_bytes: u64,
    chain: bool,
}

impl Place {
    pub fn new(rotate_bytes: u64) -> Self {
        let (queues, segments) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        Self { queues, segments, rotate_bytes, chain: false }
    }

    /// The output of several processes that have ended; each was refused one record.
    pub fn write(processes: u64, records: u64) -> Self {
        Self::new(1200).written(processes, records)
    }

    pub fn chained() -> Self {
        Self { chain: true, ..Self::new(1200) }.written(2, 30)
    }

    fn written(self, processes: u64, records: u64) -> Self {
        let producers: Vec<Producer> = (0..processes).map(|_| self.producer()).collect();
        for (thread, producer) in producers.iter().enumerate() {
            self.emit(producer, thread as u64, records);
            assert!(!producer.emit(register(producer), INFO, &[0; 10_000]), "too large");
            producer.close();
        }
        self.lead(1);
        self
    }

    pub fn queues(&self) -> &Path {
        self.queues.path()
    }

    pub fn producer(&self) -> Producer {
        Producer::open(queue_settings(self.queues())).unwrap()
    }

    pub fn emit(&self, producer: &Producer, thread: u64, records: u64) {
        let event = register(producer);
        (0..records).for_each(|n| assert!(emit(producer, event, INFO, thread, n)));
    }

    fn sink(&self, boot_id: u64) -> Box<dyn Sink> {
        let mut config = FileSinkConfig::new(self.segments.path(), "test", format!("{boot_id:016x}"));
        config.rotate_bytes = self.rotate_bytes;
        let chain = ChainSettings { algorithm: Algorithm::Sha256, key: Some(KEY) };
        config.durable = self.chain.then_some(DurableSettings { chain: Some(chain) });
        Box::new(FileSink::open(config).unwrap())
    }

    /// A listener leads, writes all there is, and ends.
    pub fn lead(&self, boot_id: u64) {
        self.lead_and(boot_id, || (), false);
    }

    /// The same; `meanwhile` runs before its end, and its records are written if `goes_on`.
    pub fn lead_and(&self, boot_id: u64, meanwhile: impl FnOnce(), goes_on: bool) {
        let control = Control::open(self.queues()).unwrap();
        let settings = listen::leader::ListenerSettings { flush_bytes: 300, ..listener_settings(self.queues()) };
        let delivery = Delivery::here(Sinks::from(self.sink(boot_id)), control, now());
        let mut leader = Leader::new(settings, control, delivery, now());
        let drain = |leader: &mut Leader| while leader.round(now(), true) == Round::Wrote || leader.has_work() {};
        drain(&mut leader);
        meanwhile();
        if goes_on {
            drain(&mut leader);
        }
        leader.close(now());
    }

    /// The files of segments, in the order of writing.
    pub fn files(&self) -> Vec<PathBuf> {
        let names = fs::read_dir(self.segments.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let parsed = names.filter_map(|name| SegmentName::parse_file(name.to_str().unwrap()));
        let mut found: Vec<(SegmentName, Form)> = parsed.collect();
        found.sort_by(|one, other| one.0.cmp(&other.0));
        found.into_iter().map(|(name, form)| self.segments.path().join(name.file_name(form))).collect()
    }

    pub fn compress(&self, wanted: impl Fn(u64) -> bool) {
        for path in self.files() {
            let file = path.file_name().unwrap().to_str().unwrap();
            let Some((name, Form::Plain)) = SegmentName::parse_file(file) else { continue };
            if wanted(name.number) {
                let plain = fs::File::open(&path).unwrap();
                let dir = self.segments.path();
                compress::compress(&mut RealStore, dir, &name, &plain, 1, &mut |_| true).unwrap();
            }
        }
    }

    /// Removes all but the newest `keep` segments, as retention does; returns the removals to report.
    pub fn retain(&self, keep: usize) -> Vec<Removed> {
        let files = self.files();
        let quota_bytes = files[files.len() - keep..].iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        let limits = Limits { quota_bytes, ..Limits::default() };
        let directories = vec![self.segments.path().to_owned()];
        let settings = HousekeepingSettings::new(directories, "test", limits, None, Default::default()).unwrap();
        let words: &'static HousekeepingWords = Box::leak(Box::default());
        let mut reported = Vec::new();
        Rounds::new(settings, words, RealStore, words.unreported().map(Removed::from)).round(
            Moment::read(),
            &mut |_| true,
            &mut |_, removed| {
                reported.push(removed.clone());
                true
            },
        );
        reported
    }

    /// Puts the report of a removal into a queue, as the housekeeper does.
    pub fn report_removed(&self, producer: &Producer, removed: &Removed) {
        let mut payload = Scratch::new();
        payload.push_str("quota");
        payload.push_uint(removed.segments);
        payload.push_uint(removed.bytes);
        payload.push_str(&removed.oldest);
        payload.push_str(&removed.newest);
        payload.push_json(segments::segment_account::spans_json(removed.spans.iter()).as_bytes());
        assert!(producer.emit(event::SEGMENTS_REMOVED, 13, payload.as_slice()));
    }

    /// Changes a file; the returned closure undoes that.
    pub fn alter(&self, path: &Path, change: impl FnOnce(&str) -> String) -> impl Fn() {
        let (before, path) = (fs::read_to_string(path).unwrap(), path.to_owned());
        let after = change(&before);
        assert_ne!(before, after);
        fs::write(&path, after).unwrap();
        move || fs::write(&path, &before).unwrap()
    }

    pub fn verify(&self) -> Value {
        self.verify_with_key(Some(KEY))
    }

    pub fn verify_with_key(&self, chain_key: Option<ChainValue>) -> Value {
        let queue_directories = vec![self.queues().to_owned()];
        verify(&Request { queue_directories, chain_key, ..self.request() }).unwrap()
    }

    pub fn verify_without_queues(&self) -> Value {
        verify(&self.request()).unwrap()
    }

    fn request(&self) -> Request {
        Request { directories: vec![self.segments.path().to_owned()], most_waiting: 77, ..Request::default() }
    }
}
