//! Golden bytes of a queue file, version 3, so that the layouts described in `layout` and `ring` cannot drift: a reader
//! in another process may be of another build.

use proptest::prelude::*;
use queue::event::EventSchema;
use queue::layout::{
    HEADER_BYTES, LEVELS, MAX_SLOTS, QueueHeader, REASONS, Reason, SAMPLED_OUT, SCHEMAS_OFFSET, SLOTS_OFFSET, VERSION,
    data_offset,
};
use queue::memory::page_bytes;
use queue::queue_file::{QueueFile, QueueSizes};
use queue::record::Trace;
use request::fields;
use request::ids::RequestIds;
use request::in_flight::facts::{Answer, Begun, SlotFacts};
use request::in_flight::terminal;
use request::outcome::Outcome;
use ring::Mark;
use ring::slots::{Progress, SLOT_WORDS, Slots};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering};

const SIZES: QueueSizes = QueueSizes { data_bytes: 65_536, slot_count: 3 };
/// Behind three slots, at a page of 4 KiB.
const DATA: usize = 65_536 + 8192;
const BOOT_ID: u64 = 0x0123_4567_89ab_cdef;
const CREATED: u64 = 1_795_237_200_123_456_789;
const TIME: u64 = 0x1122_3344_5566_7788;

/// Where the data begin in a file of this machine.
fn data() -> usize {
    data_offset(SIZES.slot_count, page_bytes().unwrap())
}

/// The bytes of a queue file: one record released, one committed, one half-written; then closed.
fn written() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let (file, _lock) = QueueFile::create(directory.path(), SIZES, BOOT_ID, CREATED).unwrap();
    assert_eq!(file.path, directory.path().join("0123456789abcdef.queue"));
    assert_eq!(std::fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o600);
    file.append_schema(&EventSchema::new(16, "token", &["text", "n"]).unwrap().to_bytes()).unwrap();
    let ring = file.ring();
    let emit = |event, payload: &[u8]| {
        ring.reserve(payload.len() as u32, u32::MAX).unwrap().commit(event, 13, TIME, payload);
    };
    emit(16, &[0xee; 8]);
    ring.release(Mark { sequence: 1, position: 4 });
    emit(16, b"nine byte");
    ring.reserve(2, u32::MAX).unwrap().fill(TIME, b"ab");
    ring.close();
    let header = file.header();
    header.releasing.store(Mark { sequence: 1, position: 4 }.to_word(), Ordering::Relaxed);
    header.sequence_base.store(1, Ordering::Relaxed);
    header.only_listens.store(1, Ordering::Relaxed);
    header.dropped_reported.store(5, Ordering::Relaxed);
    header.counted_generation.store(9, Ordering::Relaxed);
    header.counted_sequence.store(10, Ordering::Relaxed);
    header.added_to_totals.store(11, Ordering::Relaxed);
    header.copied_sequence.store(13, Ordering::Relaxed);
    header.end_reported.store(14, Ordering::Relaxed);
    header.unreadable.iter().zip(15..).for_each(|(sum, count)| sum.store(count, Ordering::Relaxed));
    header.reader.store(17, Ordering::Relaxed);
    for (reason, count) in SAMPLED_OUT.iter().zip(21..) {
        header.sampled_out[*reason as usize].store(count, Ordering::Relaxed);
    }
    header.hot_path_nano.store(12, Ordering::Relaxed);
    header.in_flight_missed.store(14, Ordering::Relaxed);
    header.set_producer_name("name");
    header.in_flight.store(25, Ordering::Relaxed);
    header.dropped.add(Reason::QueueFull, 9, 7);
    header.dropped.add(Reason::SerializeError, 24, 8);
    std::fs::read(&file.path).unwrap()
}

/// Checks the given bytes, and that every other byte of the file is zero.
fn check(bytes: &[u8], expected: &[(usize, &[u8])]) {
    let mut rest = bytes.to_vec();
    for (offset, golden) in expected {
        let at = *offset..*offset + golden.len();
        assert_eq!(&bytes[at.clone()], *golden, "at {offset}");
        rest[at].fill(0);
    }
    assert_eq!(rest.iter().position(|byte| *byte != 0), None, "a byte that is not documented");
}

#[test]
fn a_queue_file_has_these_bytes() {
    let bytes = written();
    assert_eq!(bytes.len(), data() + 65_536);
    check(
        &bytes,
        &[
            // The header's constant part.
            (0, b"INFLOGQ\0"),
            (8, &[3, 0, 0, 0]),
            (12, &std::process::id().to_le_bytes()),
            (16, &[0, 0, 1, 0, 0, 0, 0, 0]),
            (24, &[0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01]),
            (32, &CREATED.to_le_bytes()),
            (40, &[3, 0, 0, 0]),
            (44, &page_bytes().unwrap().to_le_bytes()),
            (48, &[1, 0, 0, 0, 0, 0, 0, 0]),
            // Head: sequence 3, closed, position 4 + 5 + 4.
            (128, &[13, 0, 0, 0x80, 3, 0, 0, 0]),
            // Tail, release in progress: sequence 1, position 4. Then sequence_base and dropped_reported.
            (256, &[4, 0, 0, 0, 1, 0, 0, 0]),
            (264, &[4, 0, 0, 0, 1, 0, 0, 0]),
            (272, &[1, 0, 0, 0, 0, 0, 0, 0]),
            (280, &[5, 0, 0, 0, 0, 0, 0, 0]),
            // counted_generation, counted_sequence, added_to_totals, copied_sequence, end_reported.
            (288, &[9, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0]),
            (312, &[13, 0, 0, 0, 0, 0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0]),
            // unreadable: torn, corrupt; then reader.
            (328, &[15, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0]),
            (344, &[17, 0, 0, 0, 0, 0, 0, 0]),
            // schemas_len, then sampled_out: head, parent, budget, skipped; then hot_path_nano, in_flight_missed.
            (384, &[17, 0, 0, 0, 0, 0, 0, 0]),
            (392, &[21, 0, 0, 0, 0, 0, 0, 0]),
            (400, &[22, 0, 0, 0, 0, 0, 0, 0]),
            (408, &[23, 0, 0, 0, 0, 0, 0, 0]),
            (416, &[24, 0, 0, 0, 0, 0, 0, 0]),
            (424, &[12, 0, 0, 0, 0, 0, 0, 0]),
            (432, &[14, 0, 0, 0, 0, 0, 0, 0]),
            // producer_name, in_flight.
            (440, b"name\0\0\0\0"),
            (504, &[25, 0, 0, 0, 0, 0, 0, 0]),
            // dropped[queue_full][INFO], dropped[serialize_error][FATAL].
            (512 + 2 * 8, &[7, 0, 0, 0, 0, 0, 0, 0]),
            (512 + (7 * 6 + 5) * 8, &[8, 0, 0, 0, 0, 0, 0, 0]),
            // The schema area: id, name, number of fields, fields.
            (4096, b"\x10\x00\x05token\x02\x00\x04text\x01n"),
            // The committed record in words 4 to 8: length, event, severity, state; time; sequence; payload.
            (data() + 32, &[9, 0, 0, 0, 16, 0, 13, 2]),
            (data() + 40, &[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]),
            (data() + 48, &[1, 0, 0, 0, 0, 0, 0, 0]),
            (data() + 56, b"nine byte\0\0\0\0\0\0\0"),
            // The half-written record in words 9 to 12: its length is known, its event and severity are not.
            (data() + 72, &[2, 0, 0, 0, 0, 0, 0, 1]),
            (data() + 80, &[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]),
            (data() + 88, &[2, 0, 0, 0, 0, 0, 0, 0]),
            (data() + 96, b"ab\0\0\0\0\0\0"),
        ],
    );
}

#[test]
fn the_end_of_a_lap_is_filled_with_a_pad_of_these_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _lock) = QueueFile::create(directory.path(), SIZES, BOOT_ID, CREATED).unwrap();
    let start = Mark { sequence: 9, position: 8190 };
    file.header().head.store(start.to_word(), Ordering::Relaxed);
    file.header().tail.store(start.to_word(), Ordering::Relaxed);
    file.ring().reserve(0, u32::MAX).unwrap().commit(1, 1, TIME, b"");
    let bytes = std::fs::read(&file.path).unwrap();
    // Two words to the end of the lap; the second of them stays zero.
    assert_eq!(bytes[data() + 65_520..], [2, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[data()..data() + 8], [0, 0, 0, 0, 1, 0, 1, 2]);
    assert_eq!(bytes[128..136], [3, 0x20, 0, 0, 10, 0, 0, 0]);
}

#[test]
fn a_slot_of_a_request_in_flight_has_these_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _lock) = QueueFile::create(directory.path(), SIZES, BOOT_ID, CREATED).unwrap();
    let trace = Trace { trace_id: *b"0123456789abcdef", span_id: *b"spanspan", parent_span_id: *b"parentid", flags: 3 };
    let ids = RequestIds::new(trace, Some(b"client"), None);
    let begun = Begun {
        started: 0x0102,
        started_unix_nano: TIME,
        ids: &ids,
        method: b"POST",
        path: b"/v1/completions",
        protocol_version: b"1.1",
        client_address: b"10.0.0.1",
        is_probe: true,
        model: b"",
    };
    let slot = file.slots().get(1).unwrap();
    slot.write_facts(&begun);
    slot.open();
    slot.write_bytes_in(0x0304);
    slot.write_body(b"head of a body, and its tail", 16, 4);
    slot.write_route("/v1", "/{kind}");
    slot.write_first_chunk(0x0506);
    slot.write_answer(Answer { status: 200, streamed: true, unknown_size: true });
    slot.progress(Progress { chunks: 1, bytes: 0x11, last_chunk: 0x12 });
    slot.progress(Progress { chunks: 2, bytes: 0x21, last_chunk: 0x22 });
    let bytes = std::fs::read(&file.path).unwrap();
    let slot_bytes = |at: usize| &bytes[65_536 + at * 2048..][..2048];
    let golden: [(usize, &[u8]); 25] = [
        (0, b"\0\0\0\0OPEN"),
        (8, &[2]),
        (16, &[0x21]),
        (24, &[0x22]),
        (32, &[0x11]),
        (40, &[0x12]),
        (48, &[6, 5]),
        // Status; streamed, size not known, probe.
        (56, &[200, 0, 7, 0]),
        (64, &[2, 1]),
        (72, &TIME.to_le_bytes()),
        (80, &[4, 3]),
        (88, b"0123456789abcdef"),
        (104, b"spanspan"),
        (112, b"parentid"),
        (120, b"spanspan"),
        // Lengths: method, client's id, path, route, both of the version and the client's address; then the trace flags.
        (128, &[4, 6, 15, 0, 10, 0, 8 << 2 | 3, 3]),
        (136, &[16, 0, 4, 0]),
        (144, b"1.1"),
        (152, b"10.0.0.1"),
        (192, b"POST"),
        (208, b"client"),
        (336, b"/v1/completions"),
        (848, b"/v1/{kind}"),
        (1104, b"head of a body, "),
        (1568, b"tail"),
    ];
    check(slot_bytes(1), &golden);
    assert!([0, 2].iter().all(|at| slot_bytes(*at).iter().all(|byte| *byte == 0)));
    slot.end_with(0x0a0b_0c0d);
    let state = || std::fs::read(&file.path).unwrap()[65_536 + 2048..][..8].to_vec();
    assert_eq!(state(), b"\x0d\x0c\x0b\x0aENDS");
    slot.unclaim();
    assert!(slot.claim());
    assert_eq!(state(), b"\0\0\0\0CLAI");
    slot.free();
    assert_eq!(state(), [0; 8]);
    slot.wipe();
    let bytes = std::fs::read(&file.path).unwrap();
    // The rest are times and numbers.
    check(&bytes[65_536 + 2048..][..2048], &golden[1..10]);
}

#[test]
fn names_and_sizes_that_other_builds_rely_on() {
    assert_eq!((VERSION, HEADER_BYTES, SCHEMAS_OFFSET, SLOTS_OFFSET), (3, 4096, 4096, 65_536));
    let small = [0, 1, 2, 3, MAX_SLOTS].map(|slots| data_offset(slots, 4096));
    assert_eq!(small, [65_536, 69_632, 69_632, DATA, 65_536 + (128 << 20)]);
    let large = [0, 1, 32, 33, MAX_SLOTS].map(|slots| data_offset(slots, 65_536));
    assert_eq!(large, [65_536, 131_072, 131_072, 196_608, 65_536 + (128 << 20)]);
    assert_eq!(size_of::<QueueHeader>(), 512 + 8 * 6 * 8);
    assert_eq!(LEVELS, ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"]);
    let names = REASONS.map(|reason| (reason as usize, reason.name()));
    let expected = [
        (0, "queue_full"),
        (1, "oversize"),
        (2, "already_shutdown"),
        (3, "shutdown_deadline"),
        (4, "torn"),
        (5, "corrupt"),
        (6, "no_queue"),
        (7, "serialize_error"),
    ];
    assert_eq!(names, expected);
    let left_out = SAMPLED_OUT.map(|reason| (reason as usize, reason.name()));
    assert_eq!(left_out, [(0, "head"), (1, "parent"), (2, "budget"), (3, "skipped")]);
}

#[test]
fn a_file_of_another_version_or_size_is_not_opened() {
    let bytes = written();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0123456789abcdef.queue");
    let opens = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        QueueFile::open(&path).map(|file| file.counts().accepted)
    };
    assert_eq!(opens(&bytes).unwrap(), 3);
    let refused = |bytes: &[u8], why: &str| {
        let error = opens(bytes).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
        assert!(error.to_string().contains(why), "{error}");
    };
    let with = |offset: usize, byte: u8| {
        let mut changed = bytes.clone();
        changed[offset] = byte;
        changed
    };
    refused(&with(0, b'i'), "not a queue");
    refused(&with(8, 1), "a queue of version 1, not 3");
    refused(&with(16, 1), "its sizes do not fit");
    refused(&with(18, 2), "its sizes do not fit");
    refused(&with(41, 2), "its sizes do not fit");
    refused(&with(43, 0xff), "its sizes do not fit");
    refused(&with(44, 1), "pages of ");
    refused(&with(46, 2), "pages of ");
    refused(&bytes[..bytes.len() - 1], "its sizes do not fit");
    refused(&[&bytes[..], &[0]].concat(), "its sizes do not fit");
    refused(&bytes[..SLOTS_OFFSET - 1], "shorter than a queue header");
    refused(b"", "shorter than a queue header");
}

#[test]
fn a_file_of_a_machine_with_other_pages_is_read_as_it_is() {
    let bytes = written();
    let (before, after) = bytes.split_at(data());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0123456789abcdef.queue");
    for (noted, size) in [(0, 4096), (4096, 4096), (16_384, 16_384), (65_536, 65_536)] {
        let mut moved = before.to_vec();
        moved[44..48].copy_from_slice(&u32::to_le_bytes(noted));
        moved.resize(data_offset(SIZES.slot_count, size), 0);
        moved.extend(after);
        std::fs::write(&path, &moved).unwrap();
        let file = QueueFile::open(&path).unwrap();
        assert_eq!((file.header().page_bytes(), file.counts().accepted), (size, 3));
        // The committed record, behind the one that was released.
        assert_eq!(file.ring().tail(), Mark { sequence: 1, position: 4 });
        assert_eq!(file.ring().copy_waiting(16, &file.header().releasing), [b"nine byte"]);
    }
}

// Reading a slot into which something else has written.

proptest! {
    #[test]
    fn noise_in_a_slot_neither_panics_nor_stays_open(words in proptest::collection::vec(any::<u64>(), SLOT_WORDS), tag in 0usize..4) {
        let words: Vec<AtomicU64> = words.into_iter().map(AtomicU64::new).collect();
        let tag = [*b"OPEN", *b"CLAI", *b"ENDS", *b"junk"][tag];
        let low = words[0].load(Ordering::Relaxed) & 0xffff_ffff;
        words[0].store(u64::from(u32::from_le_bytes(tag)) << 32 | low, Ordering::Relaxed);
        let slot = Slots::new(&words).get(0).unwrap();
        slot.settle_end(|_| false);
        let record = terminal::record(slot, Outcome::ProcessDied, 5, &fields::schemas());
        assert!(record.payload.len() < 4096);
    }
}
