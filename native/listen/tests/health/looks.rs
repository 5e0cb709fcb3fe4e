//! The lane that a watch reads, and its memory from one assessment to the next.

use super::*;

/// A lane and a clock whose values the test sets.
#[derive(Clone)]
struct Faked {
    state: Rc<RefCell<LaneState>>,
    looks: Rc<Cell<usize>>,
    now: Rc<Cell<Now>>,
}

const UNIX_NANO: u64 = 1_763_850_000_000_000_000;

impl Source for Faked {
    fn read(&self, now: Now) -> LaneState {
        assert_eq!(now, self.now.get());
        self.looks.set(self.looks.get() + 1);
        self.state.borrow().clone()
    }
}

impl Faked {
    fn new() -> Self {
        let state = LaneState {
            queues: vec![queue(1)],
            leader: Holder::ThisProcess,
            heartbeat_age_s: Some(0.0),
            sink_errors: 5,
            records_written: 100,
            fallback_active: false,
            queue_missing: false,
            queue_refused: None,
            queue_renewals: 0,
            failing: Vec::new(),
            dead_producers: Vec::new(),
        };
        let now = Now { unix_nano: UNIX_NANO, monotonic: Duration::from_secs(1000) };
        Self { state: Rc::new(RefCell::new(state)), looks: Rc::default(), now: Rc::new(Cell::new(now)) }
    }

    fn watched(&self, limits: Limits) -> Watched<Self> {
        Watched { source: self.clone(), limits, listens: true }
    }

    fn watch(&self) -> HealthWatch<Self> {
        HealthWatch::new(self.watched(LIMITS), None, self.now.get())
    }

    fn set(&self, change: impl FnOnce(&mut LaneState)) {
        change(&mut self.state.borrow_mut());
    }

    fn pass(&self, milliseconds: u64) {
        let Now { unix_nano, monotonic } = self.now.get();
        let passed = Duration::from_millis(milliseconds);
        self.now.set(Now { unix_nano: unix_nano + passed.as_nanos() as u64, monotonic: monotonic + passed });
    }
}

fn queue(boot_id: u64) -> QueueSnapshot {
    QueueSnapshot {
        counts: QueueCounts {
            boot_id,
            pid: 1,
            accepted: 0,
            written: 0,
            in_queue: 0,
            bytes_in_queue: 0,
            sampled_out: [0; SAMPLED_OUT.len()],
            dropped: [[0; LEVELS.len()]; REASONS.len()],
        },
        created_unix_nano: 0,
        capacity_bytes: 1000,
        schemas_fill_ratio: 0.0,
        in_flight: 0,
        oldest_unix_nano: None,
        producer: Holder::ThisProcess,
        only_listens: false,
        producer_name: String::new(),
    }
}

fn kinds(health: &Health) -> Vec<&str> {
    health.reasons.iter().map(|reason| reason.kind.as_ref()).collect()
}

#[test]
fn one_look_serves_all_who_ask_within_a_quarter_of_a_second() {
    let faked = Faked::new();
    let watch = faked.watch();
    faked.looks.set(0);
    faked.pass(1000);
    for _ in 0..1000 {
        assert_eq!(watch.recent(faked.now.get()).state(), State::Ok);
    }
    assert!(Arc::ptr_eq(&watch.recent(faked.now.get()), &watch.recent(faked.now.get())));
    faked.set(|state| state.queues[0].counts.in_queue = 10_000);
    faked.pass(249);
    assert_eq!((watch.recent(faked.now.get()).state(), faked.looks.get()), (State::Ok, 1));
    faked.pass(1);
    assert_eq!((watch.recent(faked.now.get()).state(), faked.looks.get()), (State::Degraded, 2));
}

#[test]
fn the_look_at_the_start_is_for_nobody_who_asks() {
    let faked = Faked::new();
    let watch = faked.watch();
    faked.set(|state| state.fallback_active = true);
    assert_eq!(watch.recent(faked.now.get()).state(), State::Pressured);
}

#[test]
fn a_look_takes_the_sum_of_the_records_and_the_fullest_queue() {
    let faked = Faked::new();
    let watch = faked.watch();
    faked.set(|state| {
        let [mut first, mut second] = [queue(1), queue(2)];
        (first.counts.in_queue, first.counts.bytes_in_queue, first.in_flight) = (3, 100, 2);
        first.oldest_unix_nano = Some(UNIX_NANO - 5_000_000_000);
        (second.counts.in_queue, second.counts.bytes_in_queue, second.in_flight) = (4, 400, 1);
        state.queues = vec![first, second];
    });
    let seen = &watch.assess(faked.now.get()).snapshot;
    assert_eq!((seen.records, seen.fill, seen.oldest_age_s), (7, 0.4, Some(5.0)));
    assert_eq!((seen.queues, seen.used_bytes, seen.capacity_bytes, seen.in_flight), (2, 500, 2000, 3));
}

#[test]
fn the_fill_is_that_of_the_fullest_queue() {
    for (used, fill) in [(vec![], 0.0), (vec![(250, 1000)], 0.25), (vec![(10, 1000), (900, 1000), (950, 10_000)], 0.9)]
    {
        let faked = Faked::new();
        let full = |(used_bytes, capacity_bytes): &(u64, u64)| {
            let mut queue = queue(1);
            (queue.counts.bytes_in_queue, queue.capacity_bytes) = (*used_bytes, *capacity_bytes);
            queue
        };
        faked.set(|state| state.queues = used.iter().map(full).collect());
        assert_eq!(faked.watch().assess(faked.now.get()).snapshot.fill, fill);
    }
}

#[test]
fn a_clock_that_was_set_back_makes_no_record_older_than_nothing() {
    let faked = Faked::new();
    let watch = faked.watch();
    faked.set(|state| state.queues[0].oldest_unix_nano = Some(UNIX_NANO + 1_000_000_000_000));
    assert_eq!(watch.assess(faked.now.get()).snapshot.oldest_age_s, Some(0.0));
}

#[test]
fn a_listener_that_never_came_is_waited_for_from_the_first_look_on() {
    let faked = Faked::new();
    faked.set(|state| {
        state.queues[0].counts.in_queue = 1;
        (state.heartbeat_age_s, state.leader) = (None, Holder::Nobody);
    });
    let watch = faked.watch();
    faked.pass(29_900);
    assert_eq!(watch.assess(faked.now.get()).state(), State::Ok);
    faked.pass(100);
    assert_eq!(watch.assess(faked.now.get()).state(), State::Stuck);
}

#[test]
fn what_an_earlier_life_left_does_not_make_a_new_process_stuck() {
    let faked = Faked::new();
    faked.set(|state| {
        state.queues[0].counts.in_queue = 1;
        state.heartbeat_age_s = Some(86_400.0);
    });
    assert_eq!(faked.watch().assess(faked.now.get()).state(), State::Ok);
}

#[test]
fn losses_are_reported_for_a_minute_and_what_was_lost_before_the_first_look_is_not() {
    let faked = Faked::new();
    faked.set(|state| state.queues[0].counts.dropped[DropReason::QueueFull as usize][2] = 7);
    let watch = faked.watch();
    assert_eq!(watch.assess(faked.now.get()).state(), State::Ok);
    faked.set(|state| {
        let dropped = &mut state.queues[0].counts.dropped;
        (dropped[DropReason::QueueFull as usize][2], dropped[DropReason::QueueFull as usize][3]) = (8, 1);
        dropped[DropReason::ShutdownDeadline as usize][2] = 50;
    });
    assert_eq!(watch.assess(faked.now.get()).snapshot.recent_drops, 2);
    // Its process is gone; another one has lost a record too.
    faked.set(|state| {
        state.queues = vec![queue(1), queue(2)];
        state.queues[1].counts.dropped[DropReason::Oversize as usize][2] = 1;
    });
    for _ in 0..59 {
        faked.pass(1000);
        assert_eq!(watch.assess(faked.now.get()).snapshot.recent_drops, 3);
    }
    faked.pass(2000);
    assert_eq!(watch.assess(faked.now.get()).state(), State::Ok);
}

#[test]
fn failed_writes_are_reported_for_a_minute_also_if_each_next_try_succeeds() {
    let faked = Faked::new();
    let watch = faked.watch();
    faked.set(|state| state.sink_errors = 6);
    assert_eq!(kinds(&watch.assess(faked.now.get())), ["errors"]);
    faked.pass(MEMORY_S as u64 * 1000);
    watch.assess(faked.now.get());
    faked.pass(1000);
    assert_eq!(watch.assess(faked.now.get()).state(), State::Ok);
}

#[test]
fn a_sink_that_fails_is_reported_once_though_its_writes_fail() {
    let faked = Faked::new();
    let watch = faked.watch();
    faked.set(|state| {
        (state.sink_errors, state.fallback_active) = (6, true);
        state.failing = vec![FailingSink { state: SinkState::Hung, ..full() }];
    });
    let health = watch.assess(faked.now.get());
    assert_eq!(kinds(&health), ["sink", "fallback"]);
    assert_eq!(health.reasons[0].text, "sink file is hung for 12.0 s (full)");
}

#[test]
fn a_named_producer_that_has_died_is_a_state_of_its_own_until_it_is_back() {
    let faked = Faked::new();
    let watch = faked.watch();
    faked.set(|state| state.dead_producers = vec!["m_0_0".to_owned(), "m_0_1".to_owned()]);
    let health = watch.assess(faked.now.get());
    assert_eq!((health.state(), health.is_ready(), health.is_alive()), (State::ProducerDied, true, true));
    assert_eq!(health.reasons.len(), 2);
    faked.set(|state| state.dead_producers.clear());
    assert_eq!(watch.assess(faked.now.get()).state(), State::Ok);
}

#[test]
fn the_drain_rate_is_known_after_half_a_second() {
    let faked = Faked::new();
    let watch = faked.watch();
    faked.set(|state| state.records_written = 200);
    faked.pass(400);
    assert_eq!(watch.assess(faked.now.get()).snapshot.records_per_s, None);
    faked.pass(600);
    let rate = watch.assess(faked.now.get()).snapshot.records_per_s.unwrap();
    assert!((rate - 100.0).abs() < 1e-9, "{rate}");
}

#[test]
fn thresholds_stay_reached_from_look_to_look() {
    let faked = Faked::new();
    let watch = faked.watch();
    let found = [10_000, 5_001, 5_000, 2_500].map(|records| {
        faked.set(|state| state.queues[0].counts.in_queue = records);
        watch.assess(faked.now.get()).state()
    });
    assert_eq!(found, [State::Degraded, State::Degraded, State::Pressured, State::Ok]);
}

#[test]
fn reasons_of_the_audit_lane_count_like_those_of_the_fast_one_and_say_whose_they_are() {
    let (faked, audit) = (Faked::new(), Faked::new());
    let limits = Limits { oldest_age_s: 1.0, ..LIMITS };
    let watch = HealthWatch::new(faked.watched(LIMITS), Some(audit.watched(limits)), faked.now.get());
    let old = |state: &mut LaneState| state.queues[0].oldest_unix_nano = Some(UNIX_NANO - 2_000_000_000);
    faked.set(old);
    assert_eq!(watch.assess(faked.now.get()).state(), State::Ok);
    audit.set(old);
    let health = watch.assess(faked.now.get());
    assert_eq!((health.state(), kinds(&health)), (State::Pressured, vec!["audit.age"]));
    assert_eq!(health.reasons[0].text, "audit lane: the oldest record has waited 2.0 s; pressured from 1 s");
    assert_eq!(health.snapshot.queues, 1, "the answer shows the fast lane");
    audit.set(|state| state.queues[0].counts.in_queue = 10_000);
    assert!(!watch.assess(faked.now.get()).is_ready());
    audit.set(|state| state.queues[0].counts.in_queue = 5_001);
    assert!(!watch.assess(faked.now.get()).is_ready(), "its thresholds stay reached too");
}
