//! The counts of the file sink under any sequence of faults: every line is in the segments once and in order, if the
//! caller keeps the contract.

use listen::sink::Sink;
use proptest::prelude::*;

use crate::sink::bench::{Fail, Fault, Short, at, bench, contents};

fn fault() -> impl Strategy<Value = Option<Fault>> {
    let errno = prop::sample::select(vec![libc::ENOSPC, libc::EIO, libc::EINTR, libc::EROFS, libc::EFBIG]);
    prop_oneof![3 => Just(None), 3 => (1..40usize).prop_map(|n| Some(Short(n))), 2 => errno.prop_map(|e| Some(Fail(e)))]
}

proptest! {
    #[test]
    fn each_line_is_written_once_and_in_order(
        batches in prop::collection::vec(1..5u32, 1..12),
        faults in prop::collection::vec(fault(), 0..60),
        creates in prop::collection::vec(prop::sample::select(vec![libc::ENOSPC, libc::EROFS, libc::EMFILE]), 0..3),
        truncate_fails in any::<bool>(),
        limits in (0..500u64, 0..9u64, 0..200u64),
    ) {
        let mut bench = bench(|config| {
            config.rotate_bytes = limits.0;
            config.rotate_interval = std::time::Duration::from_secs(limits.1);
            config.writeback_bytes = limits.2;
        });
        bench.os.set(|plan| {
            plan.writes.extend(faults);
            plan.fail_creates.extend(creates);
            plan.truncate_fails = truncate_fails;
        });
        let mut clock = 0..;
        let mut tick = || at(clock.next().unwrap());
        let mut expected = Vec::new();
        for (index, records) in batches.iter().enumerate() {
            let lines: String = (0..*records).map(|n| format!("{{\"batch\":{index},\"n\":{n}}}\n")).collect();
            expected.extend_from_slice(lines.as_bytes());
            let (mut rest, mut left) = (lines.as_bytes(), u64::from(*records));
            // Faults run out, so every batch gets through.
            while let Err(error) = bench.sink.write(rest, left, tick()) {
                rest = &rest[error.written..];
                left -= error.records;
            }
            let _ = bench.sink.maintain(tick());
        }
        while bench.sink.close(tick(), b"").is_err() {}
        let segments = contents(&bench.dir);
        prop_assert_eq!(String::from_utf8(segments.iter().flat_map(|s| s.0.clone()).collect()), String::from_utf8(expected.clone()));
        prop_assert!(segments.iter().all(|s| !s.0.is_empty()));
        let stats = bench.sink.stats();
        prop_assert_eq!(stats.bytes, expected.len() as u64);
        prop_assert_eq!(stats.segments, segments.len() as u64);
        prop_assert_eq!(stats.segments_abandoned, segments.iter().filter(|s| !s.1).count() as u64);
    }
}
