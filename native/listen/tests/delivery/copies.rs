//! Additional sinks: each at its own pace, without delaying another sink or the queue.

use super::{named, reported};
use crate::support::{
    INFO, Memory, PATIENCE, dense, emit, emit_each, listener_settings, numbers, open_producer, wait_until,
};
use listen::delivery::{Delivery, Sinks};
use listen::leader::Leader;
use listen::listener::Listener;
use queue::control::Control;
use queue::producer::Producer;
use queue::published::sinks::{SinkRole, SinkState};
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

struct Trio {
    directory: TempDir,
    primary: Memory,
    copies: [Memory; 2],
    leader: Leader,
    producer: Producer,
    event: u16,
    emitted: u64,
}

impl Trio {
    fn new(buffer_bytes: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (primary, copies) = (Memory::default(), [Memory::default(), Memory::default()]);
        let control = Control::open(directory.path()).unwrap();
        let now = listen::sink::Now::read();
        let additional = vec![named("first", copies[0].clone()), named("second", copies[1].clone())];
        let sinks = Sinks { additional, buffer_bytes, ..primary.sinks() };
        let leader =
            Leader::new(listener_settings(directory.path()), control, Delivery::here(sinks, control, now), now);
        let (producer, event) = open_producer(directory.path());
        Self { directory, primary, copies, leader, producer, event, emitted: 0 }
    }

    fn write(&mut self, count: u64) {
        for _ in 0..count {
            assert!(emit(&self.producer, self.event, INFO, 0, self.emitted));
            self.emitted += 1;
        }
        self.leader.round(listen::sink::Now::read(), true);
        assert_eq!(self.producer.queue().unwrap().file.counts().in_queue, 0, "the queue waits for no copy");
    }

    fn dropped(&self, row: usize) -> u64 {
        let page = Control::open(self.directory.path()).unwrap().page();
        page.sinks[row].records_dropped.load(Ordering::Relaxed)
    }
}

#[test]
fn every_sink_gets_every_line_in_order() {
    let mut trio = Trio::new(1 << 20);
    (0..5).for_each(|_| trio.write(3));
    for copy in &trio.copies {
        wait_until("the copy is there", || copy.taken().bytes.len() == trio.primary.taken().bytes.len());
        assert_eq!(copy.taken().bytes, trio.primary.taken().bytes);
    }
    let page = Control::open(trio.directory.path()).unwrap().page();
    let rows: Vec<_> = page.sinks[..4].iter().map(|row| (row.role(), row.name())).collect();
    let additional = Some(SinkRole::Additional);
    let expected = [(Some(SinkRole::Primary), "memory"), (additional, "first"), (additional, "second"), (None, "")];
    assert_eq!(rows, expected.map(|(role, name)| (role, name.to_owned())));
    assert_eq!(page.sinks[1].records_written.load(Ordering::Relaxed), 15);
}

#[test]
fn a_copy_that_hangs_drops_and_counts_for_itself_alone_and_is_reported_when_it_recovers() {
    let mut trio = Trio::new(2000);
    let (resume, wait) = channel::<()>();
    let (enter, entered) = channel();
    let wait = Mutex::new(wait);
    trio.copies[0].taken().before_write = Some(Box::new(move |_| {
        let _ = enter.send(());
        let _ = wait.lock().unwrap().recv();
    }));
    trio.write(1);
    entered.recv_timeout(PATIENCE).unwrap();
    for n in 1..41 {
        wait_until("the other has all so far", || numbers(&trio.copies[1].lines(), 0) == dense(n));
        trio.write(1);
    }
    assert_eq!(numbers(&trio.primary.lines(), 0), dense(41));
    let dropped = trio.dropped(1);
    assert!((1..41).contains(&dropped), "{dropped}");
    assert_eq!(trio.dropped(2), 0);

    drop(resume);
    wait_until("the gap is reported", || !reported(&trio.copies[0]).is_empty());
    trio.write(1);
    wait_until("it goes on", || numbers(&trio.copies[0].lines(), 0).last() == Some(&41));
    let lines = trio.copies[0].lines();
    let mut expected = dense(41 - dropped);
    expected.push(41);
    assert_eq!(numbers(&lines, 0), expected, "each line once, the newest dropped");
    let reported = reported(&trio.copies[0]);
    assert_eq!((&reported[0]["event_name"], &reported[0]["dropped"]), (&"sink.dropped".into(), &dropped.into()));
    assert_eq!(lines[lines.len() - 2], reported[0], "where the gap is");
    assert!(super::reported(&trio.primary).is_empty() && super::reported(&trio.copies[1]).is_empty());
}

#[test]
fn a_copy_that_fails_is_tried_again_and_has_each_line_once() {
    let mut trio = Trio::new(1 << 20);
    trio.copies[0].taken().faults.extend([0, 1, 0, 2]);
    trio.write(5);
    wait_until("all of it", || numbers(&trio.copies[0].lines(), 0).len() == 5);
    assert_eq!(numbers(&trio.copies[0].lines(), 0), dense(5));
    let row = &Control::open(trio.directory.path()).unwrap().page().sinks[1];
    wait_until("it is well", || row.state() == SinkState::Ok);
    assert_eq!(row.errors().map(|(_, count)| count).sum::<u64>(), 4);
    assert_eq!(row.records_written.load(Ordering::Relaxed), 5);
}

#[test]
fn a_stop_writes_what_the_copies_still_have_and_counts_what_it_cannot() {
    let directory = tempfile::tempdir().unwrap();
    let (producer, event) = open_producer(directory.path());
    let (primary, well, hung) = (Memory::default(), Memory::default(), Memory::default());
    let (resume, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    hung.taken().before_write = Some(Box::new(move |_| {
        let _ = wait.lock().unwrap().recv();
    }));
    let additional = vec![named("well", well.clone()), named("hung", hung.clone())];
    let mut sinks = Some(Sinks { additional, ..primary.sinks() });
    let open = Box::new(move || sinks.take().ok_or_else(String::new));
    let queue = Arc::clone(&producer.queue().unwrap().file);
    let own = (queue, Control::open(directory.path()).unwrap());
    let listener = Listener::start(listener_settings(directory.path()), open, own, Box::new(|| ())).unwrap();
    emit_each(&producer, event, 0, 0..9);
    producer.close();
    assert!(listener.stop(PATIENCE), "a copy that hangs does not hold up the end");
    assert_eq!(numbers(&primary.lines(), 0), dense(9));
    assert_eq!(numbers(&well.lines(), 0), dense(9));
    let page = Control::open(directory.path()).unwrap().page();
    assert_eq!(page.sinks[1].records_dropped.load(Ordering::Relaxed), 0);
    drop(resume);
}
