//! Copied, moved and lying queue directories: no byte of a segment is destroyed unless an available queue holds it, and
//! the records of the queues are written, once if that can be known.

use crate::support::{Intercepted, dense, emit_each, listener_settings, numbers, open_producer};
use listen::delivery::{Delivery, Kept, Sinks};
use listen::leader::Leader;
use listen::sink::file::{DurableSettings, FileSink, FileSinkConfig};
use listen::sink::{Now, Sink};
use queue::control::{Control, PRIMARY_SLOT};
use queue::producer::Producer;
use queue::queue_file;
use segments::segment::SegmentName;
use segments::verify::{Request, verify};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What happens once the lines of a write are in the segment, before the sink returns.
type Hook = Box<dyn FnMut() + Send>;

/// A place with queues and segments, and leaders that come and go.
struct Place {
    root: tempfile::TempDir,
    is_durable: bool,
    leaders: u64,
    kept: Kept,
}

impl Place {
    fn new(is_durable: bool) -> Self {
        let root = tempfile::tempdir().unwrap();
        ["queues", "logs"].iter().for_each(|name| fs::create_dir(root.path().join(name)).unwrap());
        Self { root, is_durable, leaders: 0, kept: Kept::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn leader(&mut self, queues: &str, mut written: Option<Hook>) -> Leader {
        self.leaders += 1;
        let mut config = FileSinkConfig::new(self.path("logs"), "test", format!("{:016x}", self.leaders));
        config.durable = self.is_durable.then(DurableSettings::default);
        let inner = FileSink::open(config).unwrap();
        let sink: Box<dyn Sink> = Box::new(Intercepted::new(inner, move |inner, _, lines, records, now| {
            let done = inner.write(lines, records, now);
            written.iter_mut().for_each(|hook| hook());
            done
        }));
        let sinks = Sinks { kept: Kept::clone(&self.kept), ..Sinks::from(sink) };
        let queues = self.path(queues);
        let control = Control::open(&queues).unwrap();
        let settings = listener_settings(&queues);
        Leader::new(settings, control, Delivery::here(sinks, control, now()), now())
    }

    /// Lets a new leader do everything that it can with the queues of a directory.
    fn recover(&mut self, queues: &str) {
        let mut leader = self.leader(queues, None);
        rounds(&mut leader);
        leader.close(now());
    }

    fn producer(&self) -> (Producer, u16) {
        open_producer(&self.path("queues"))
    }

    /// The bytes of every segment.
    fn bytes(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.path("logs")).unwrap().map(|entry| entry.unwrap());
        let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
        named
            .filter(|(name, _)| SegmentName::parse(name).is_some())
            .map(|(name, path)| (name, fs::read(path).unwrap()))
            .collect()
    }

    fn lines(&self) -> Vec<Value> {
        let text: String = self.bytes().into_values().map(|bytes| String::from_utf8(bytes).unwrap()).collect();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn kept(&self) -> Vec<String> {
        self.kept.lock().unwrap().clone()
    }

    fn problems(&self, queues: &[&str]) -> Value {
        let queue_directories = queues.iter().map(|name| self.path(name)).collect();
        let directories = vec![self.path("logs")];
        verify(&Request { directories, queue_directories, ..Request::default() }).unwrap()["problems"].take()
    }

    fn copy(&self) -> Hook {
        let (from, to) = (self.path("queues"), self.path("copy"));
        let mut done = false;
        Box::new(move || {
            if !std::mem::replace(&mut done, true) {
                copy_directory(&from, &to);
            }
        })
    }
}

fn now() -> Now {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Now { unix_nano: since.as_nanos() as u64, monotonic: since }
}

fn rounds(leader: &mut Leader) {
    // Each look of a new leader, a batch, its release, and the end of each process.
    for _ in 0..12 {
        leader.round(now(), true);
    }
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A place whose queues were copied within a write of the first ten of thirty records, all of which are written since.
fn copied_within_a_write(is_durable: bool) -> (Place, (Producer, u16), Leader) {
    let mut place = Place::new(is_durable);
    let producer = place.producer();
    emit_each(&producer.0, producer.1, 0, 0..10);
    let mut leader = place.leader("queues", Some(place.copy()));
    rounds(&mut leader);
    emit_each(&producer.0, producer.1, 0, 10..30);
    rounds(&mut leader);
    (place, producer, leader)
}

/// Everything that was in the segments is still there, byte for byte.
fn assert_kept(before: &BTreeMap<String, Vec<u8>>, after: &BTreeMap<String, Vec<u8>>) {
    before.iter().for_each(|(name, bytes)| assert_eq!(after.get(name), Some(bytes), "{name} was changed"));
}

#[test]
fn a_copy_made_within_a_write_destroys_nothing_that_was_written_since_and_doubles_nothing() {
    for is_durable in [false, true] {
        let (mut place, producer, mut leader) = copied_within_a_write(is_durable);
        producer.0.close();
        rounds(&mut leader);
        leader.close(now());
        let before = place.bytes();
        assert_eq!((numbers(&place.lines(), 0), place.problems(&["queues"])), (dense(30), json!([])));

        place.recover("copy");
        assert_kept(&before, &place.bytes());
        assert_eq!((numbers(&place.lines(), 0), place.problems(&["queues", "copy"])), (dense(30), json!([])));
        assert_eq!(place.kept().len(), usize::from(is_durable), "{:?}", place.kept());
        assert_eq!(queue_file::list(&place.path("copy")).unwrap(), Vec::<PathBuf>::new(), "nothing is left in it");
    }
}

#[test]
fn a_copy_whose_original_is_still_written_is_left_alone() {
    for is_durable in [false, true] {
        let (mut place, producer, mut leader) = copied_within_a_write(is_durable);
        let before = place.bytes();

        place.recover("copy");
        assert_kept(&before, &place.bytes());
        assert_eq!(numbers(&place.lines(), 0), dense(30));
        assert!(place.kept().iter().any(|kept| kept.contains("a listener still writes")), "{:?}", place.kept());
        assert_eq!(queue_file::list(&place.path("copy")).unwrap().len(), 1, "it can be recovered later");

        producer.0.close();
        rounds(&mut leader);
        leader.close(now());
        place.recover("copy");
        assert_eq!((numbers(&place.lines(), 0), place.problems(&["queues", "copy"])), (dense(30), json!([])));
    }
}

#[test]
fn a_copy_is_all_that_is_left_of_a_host_and_its_records_are_written_once() {
    for is_durable in [false, true] {
        let mut place = Place::new(is_durable);
        let producer = place.producer();
        emit_each(&producer.0, producer.1, 0, 0..10);
        let mut leader = place.leader("queues", None);
        rounds(&mut leader);
        emit_each(&producer.0, producer.1, 0, 10..30);
        drop(leader);
        copy_directory(&place.path("queues"), &place.path("copy"));
        let before = place.bytes();
        place.recover("copy");
        assert_kept(&before, &place.bytes());
        let found = (numbers(&place.lines(), 0), place.problems(&["copy"]), place.kept());
        assert_eq!(found, (dense(30), json!([]), vec![]));
    }
}

#[test]
fn a_queue_directory_that_was_moved_is_recovered_as_if_it_stood_where_it_was() {
    // Not committed, and so cut off and written again.
    let (mut place, producer) = died_within_a_commit();
    drop(producer);
    let before = place.bytes();
    fs::rename(place.path("queues"), place.path("moved")).unwrap();
    place.recover("moved");
    assert_ne!(before.values().next(), place.bytes().values().next(), "the write was cut off");
    assert_eq!((numbers(&place.lines(), 0), place.kept()), (dense(10), vec![]));
}

/// A durable place in which a leader died within the commit of ten records, which the queue still holds or has lost,
/// and the bytes of its one segment.
fn died_within_a_commit() -> (Place, (Producer, u16)) {
    let mut place = Place::new(true);
    let producer = place.producer();
    emit_each(&producer.0, producer.1, 0, 0..10);
    let mut leader = place.leader("queues", Some(Box::new(|| std::panic::resume_unwind(Box::new("killed")))));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rounds(&mut leader))).is_err());
    drop(leader);
    (place, producer)
}

/// Lies in the control page; each names something that must never be cut.
fn lies(place: &Place) -> Vec<(&'static str, PathBuf, u64)> {
    let (logs, elsewhere) = (place.path("logs"), place.path("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    let (name, bytes) = place.bytes().into_iter().next().unwrap();
    let header = bytes.iter().position(|byte| *byte == b'\n').unwrap() as u64 + 1;
    let foreign = elsewhere.join("letter.txt");
    fs::write(&foreign, "line\n".repeat(800)).unwrap();
    let other = SegmentName { boot_id: "00000000000000aa".into(), ..SegmentName::parse(&name).unwrap() };
    fs::copy(&foreign, elsewhere.join(&name)).unwrap();
    fs::hard_link(&foreign, logs.join(other.to_string())).unwrap();
    let linked = SegmentName { number: 7, ..other.clone() };
    std::os::unix::fs::symlink(logs.join(&name), logs.join(linked.to_string())).unwrap();
    let prefixed = SegmentName { prefix: "other".into(), ..SegmentName::parse(&name).unwrap() };
    fs::copy(logs.join(&name), logs.join(prefixed.to_string())).unwrap();
    vec![
        ("a file that is no segment", foreign.clone(), 100),
        ("a file that is no segment, from its beginning", foreign, 0),
        ("a hard link of it with a segment's name", logs.join(other.to_string()), 100),
        ("a symbolic link", logs.join(linked.to_string()), header),
        ("a segment of another prefix", logs.join(prefixed.to_string()), header),
        ("the segment, from its beginning", logs.join(&name), 0),
        ("the segment, within its header", logs.join(&name), header - 1),
        ("the segment, within a line", logs.join(&name), header + 10),
        ("a path back and forth", logs.join("../elsewhere/letter.txt"), 100),
    ]
}

#[test]
fn the_control_page_names_nothing_that_is_cut_unless_it_is_a_write_of_this_sink() {
    let count = lies(&died_within_a_commit().0).len();
    for number in 0..count {
        for is_durable in [true, false] {
            let (mut place, _producer) = died_within_a_commit();
            place.is_durable = is_durable;
            let (what, path, offset) = lies(&place).swap_remove(number);
            let control = Control::open(&place.path("queues")).unwrap();
            control.publish_write(PRIMARY_SLOT, Some((&path, offset)));
            let (before, victim) = (place.bytes(), fs::read(&path).unwrap());
            place.recover("queues");
            assert_kept(&before, &place.bytes());
            assert_eq!(fs::read(&path).unwrap(), victim, "{what}");
            let records = numbers(&place.lines_but_of("other-"), 0);
            assert!(dense(10).iter().all(|n| records.contains(n)), "{what}: nothing is lost");
        }
    }
}

#[test]
fn a_write_that_no_queue_holds_any_more_or_that_has_a_footer_stays() {
    for is_sealed in [false, true] {
        let (mut place, producer) = died_within_a_commit();
        let (name, mut bytes) = place.bytes().into_iter().next().unwrap();
        if is_sealed {
            bytes.extend_from_slice(&segments::segment::footer_line(1, 1, 10, 0, b""));
            fs::write(place.path("logs").join(name), bytes).unwrap();
        } else {
            let file = &producer.0.queue().unwrap().file;
            let head = file.ring().head();
            file.header().releasing.store(head.to_word(), std::sync::atomic::Ordering::Release);
            file.ring().release(head);
        }
        let before = place.bytes();
        place.recover("queues");
        assert_kept(&before, &place.bytes());
        assert_eq!((numbers(&place.lines(), 0), place.kept().len()), (dense(10), 1), "{:?}", place.kept());
    }
}

#[test]
fn a_write_that_another_listener_still_has_under_way_is_waited_for() {
    let (mut place, producer) = died_within_a_commit();
    let (name, _) = place.bytes().into_iter().next().unwrap();
    let file = fs::OpenOptions::new().append(true).open(place.path("logs").join(name)).unwrap();
    let lock = segments::segment::LiveLock::hold(std::sync::Arc::new(file));
    let before = place.bytes();
    let mut leader = place.leader("queues", None);
    rounds(&mut leader);
    assert_eq!(place.bytes(), before);
    drop(lock);
    rounds(&mut leader);
    assert_eq!((numbers(&place.lines(), 0), place.kept()), (dense(10), vec![]));
    assert_eq!(producer.0.queue().unwrap().file.counts().in_queue, 0);
    leader.close(now());
}

impl Place {
    fn lines_but_of(&self, prefix: &str) -> Vec<Value> {
        let named = self.bytes().into_iter().filter(|(name, _)| !name.starts_with(prefix));
        let texts: Vec<String> = named.map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned()).collect();
        texts.concat().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}
