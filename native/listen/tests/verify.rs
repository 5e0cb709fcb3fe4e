//! Verification reports every damage to segments, and nothing else: on directories that the real leader wrote.

mod damage;
mod place;

use crate::support::{INFO, child, child_directory, die, emit, open_producer, payload};
use place::Place;
use proptest::prelude::*;
use queue::layout::Reason;
use segments::line::{self, LONGEST_LINE, Piece};
use segments::segment::SegmentName;
use segments::verify::{Request, verify};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn kinds(report: &Value) -> BTreeSet<String> {
    let problems = report["problems"].as_array().unwrap().iter();
    problems.map(|problem| problem["kind"].as_str().unwrap().to_owned()).collect()
}

fn reasons(report: &Value) -> Vec<(u64, u64, String)> {
    let gaps = report["processes"].as_array().unwrap().iter().flat_map(|process| process["gaps"].as_array().unwrap());
    gaps.map(|gap| {
        (gap["first"].as_u64().unwrap(), gap["last"].as_u64().unwrap(), gap["reason"].as_str().unwrap().to_owned())
    })
    .collect()
}

#[test]
fn what_the_listener_wrote_balances_plain_compressed_and_with_records_refused() {
    let place = Place::write(3, 40);
    let report = place.verify();
    assert_eq!((&report["balanced"], &report["problems"]), (&json!(true), &json!([])));
    assert_eq!((&report["totals"]["accepted"], &report["totals"]["written"]), (&json!(120), &json!(120)));
    assert_eq!(report["totals"]["dropped"]["oversize"], json!(3));
    assert!(report["segments"]["files"].as_u64().unwrap() > 5, "rotation has gone on");
    place.compress(|number| number % 2 == 0);
    let report = place.verify();
    assert_eq!(report["balanced"], true);
    assert!(report["segments"]["compressed"].as_u64().unwrap() > 1);
}

#[test]
fn records_in_the_queues_of_processes_alive_and_dead_are_not_missing() {
    let place = Place::new(1 << 12);
    let producers = [place.producer(), place.producer()];
    place.emit(&producers[0], 0, 10);
    place.emit(&producers[1], 1, 10);
    place.lead(1);
    place.emit(&producers[0], 0, 5);
    place.emit(&producers[1], 1, 7);
    producers[1].close();
    let report = place.verify();
    assert_eq!(report["problems"], json!([]));
    assert_eq!((&report["totals"]["written"], &report["totals"]["in_queue"]), (&json!(20), &json!(12)));
    let mut states: Vec<&str> =
        report["processes"].as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap()).collect();
    states.sort_unstable();
    assert_eq!(states, ["alive", "waiting_for_a_listener"]);
}

#[test]
fn without_its_queue_a_process_that_has_not_ended_is_not_proven() {
    let place = Place::new(1 << 12);
    let producer = place.producer();
    place.emit(&producer, 0, 10);
    place.lead(1);
    place.emit(&producer, 0, 5);
    let report = place.verify_without_queues();
    assert_eq!((kinds(&report), &report["balanced"]), (["end_unknown".to_owned()].into(), &json!(false)));
    let text = report["problems"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("after sequence 9 is not known, at most 77 records"), "{text}");
}

#[test]
fn records_left_at_a_shutdown_whose_queue_is_gone_are_named_with_that_reason() {
    let place = Place::new(1 << 12);
    let producer = place.producer();
    place.emit(&producer, 0, 10);
    let left = || {
        place.emit(&producer, 0, 5);
        producer.close();
        producer.queue().unwrap().file.header().dropped.add(Reason::ShutdownDeadline, INFO, 5);
    };
    place.lead_and(1, left, false);
    let report = place.verify_without_queues();
    assert_eq!(reasons(&report), [(10, 14, "shutdown_deadline".to_owned())]);
    assert_eq!(report["totals"]["missing"], 5);
}

#[test]
fn torn_records_are_explained_by_name_and_balance() {
    if let Some(directory) = child_directory() {
        let (producer, event) = open_producer(&directory);
        for torn in [false, true, true, false, true] {
            let bytes = payload(0, 0);
            let ring = producer.queue().unwrap().file.ring();
            match torn {
                true => ring.reserve(bytes.as_slice().len() as u32, u32::MAX).unwrap().fill(1, bytes.as_slice()),
                false => assert!(emit(&producer, event, INFO, 0, 0)),
            }
        }
        die();
    }
    let place = Place::new(1 << 12);
    assert!(
        !child("verify::torn_records_are_explained_by_name_and_balance", place.queues()).status().unwrap().success()
    );
    place.lead(1);
    let report = place.verify();
    assert_eq!(report["problems"], json!([]));
    assert_eq!(reasons(&report), [(1, 2, "torn".to_owned()), (4, 4, "torn".to_owned())]);
    assert_eq!((&report["processes"][0]["state"], &report["totals"]["lost"]), (&json!("died"), &json!(3)));
}

#[test]
fn removed_segments_balance_once_a_record_reports_them_and_not_before() {
    let place = Place::new(600);
    let producer = place.producer();
    place.emit(&producer, 0, 40);
    let remove = || {
        place.retain(3).iter().for_each(|removed| place.report_removed(&producer, removed));
        producer.close();
    };
    place.lead_and(1, remove, true);
    let report = place.verify();
    assert_eq!(report["problems"], json!([]));
    let gone = report["totals"]["removed"].as_u64().unwrap();
    assert!(gone > 10 && reasons(&report).iter().all(|(_, _, reason)| reason == "retention"), "{report}");
    place.retain(2);
    assert!(kinds(&place.verify()).contains("missing"), "of this one nobody reported");
}

#[test]
fn what_stands_in_the_fallback_too_is_no_fault_if_it_is_reported_and_doubled_if_not() {
    let place = Place::write(1, 30);
    let fallback = Place::new(1 << 12);
    let name = place.files()[2].file_name().unwrap().to_owned();
    let copy = fallback.segments.path().join(name);
    std::fs::copy(&place.files()[2], &copy).unwrap();
    let directories = [&place, &fallback].map(|one| one.segments.path().to_owned()).to_vec();
    let request = Request { directories, ..Request::default() };
    let report = verify(&request).unwrap();
    assert_eq!(kinds(&report), ["doubled".to_owned()].into());

    let boot_id = report["processes"][0]["boot_id"].as_str().unwrap();
    let span = format!("{{\"boot_id\":\"{boot_id}\",\"pid\":1,\"first\":0,\"last\":29,\"records\":30}}");
    let reported = format!(
        "{{\"timestamp\":\"2026-11-21T05:00:00.000000000Z\",\"event_name\":\"sink.fallback\",\
         \"boot_id\":\"{boot_id}\",\"pid\":1,\"in_both\":[{span}]}}\n"
    );
    let text = std::fs::read_to_string(&copy).unwrap();
    let unsealed: String = text.split_inclusive('\n').filter(|line| !line.contains("segment.footer")).collect();
    let ended = place.files().into_iter().map(|path| std::fs::read_to_string(path).unwrap());
    let ended: String = ended
        .flat_map(|text| text.lines().map(|line| format!("{line}\n")).collect::<Vec<_>>())
        .filter(|line| line.contains("process.ended") || line.contains("log.dropped"))
        .collect();
    std::fs::write(&copy, unsealed + &reported + &ended).unwrap();
    let report = verify(&request).unwrap();
    assert_eq!(report["problems"], json!([]));
    assert!(report["processes"][0]["in_fallback_too"].as_u64().unwrap() > 0);
}

#[test]
fn a_hash_chain_shows_the_altered_line_the_missing_segment_and_the_cut_end() {
    let place = Place::chained();
    assert_eq!(place.verify()["problems"], json!([]));
    assert_eq!(place.verify()["chain"]["checked"], true);
    let files = place.files();

    let restore = place.alter(&files[2], |text| text.replace("\"n\":", "\"m\":"));
    let report = place.verify();
    let broken = damage::problems_of(&report, "chain_broken");
    assert_eq!(broken[0]["segment"], json!(files[2].display().to_string()));
    assert_eq!(broken[0]["line"], 2, "the first record behind the header");
    restore();

    let restore = place.alter(&files[3], |text| text.lines().take(2).map(|line| format!("{line}\n")).collect());
    assert_eq!(damage::problems_of(&place.verify(), "chain_broken").len(), 1, "the next one follows nothing");
    restore();

    std::fs::remove_file(&files[4]).unwrap();
    assert_eq!(damage::problems_of(&place.verify(), "chain_broken").len(), 1);
}

#[test]
fn a_sealed_segment_that_has_lost_its_footer_is_a_problem_and_one_that_was_given_up_is_none() {
    let place = Place::write(1, 40);
    let files = place.files();
    // The part between the footers is whole: nothing else shows that the end was cut off.
    let restore = place
        .alter(&files[1], |text| text.split_inclusive('\n').filter(|line| !line.contains("segment.footer")).collect());
    let problems = place.verify()["problems"].take();
    assert_eq!((&problems[0]["kind"], problems.as_array().unwrap().len()), (&json!("footer_missing"), 1));
    assert_eq!(problems[0]["segment"], json!(files[1].display().to_string()));
    let number = SegmentName::parse(files[1].file_name().unwrap().to_str().unwrap()).unwrap().number;
    let restore_next = place.alter(&files[2], |text| text.replacen("}\n", &format!(",\"abandoned\":{number}}}\n"), 1));
    assert_eq!(place.verify()["problems"], json!([]));
    restore();
    restore_next();
    assert_eq!(place.verify()["problems"], json!([]));
}

#[test]
fn pieces_of_whatever_reader_are_all_its_whole_lines_and_a_line_above_the_limit_in_parts() {
    let long = vec![b'x'; LONGEST_LINE + 5];
    let content = [b"a\nbc\n".as_slice(), &long, b"\nd\n\nunfinished"].concat();
    for most in [1 << 16, (1 << 20) + 3, usize::MAX] {
        let (mut lines, mut parts, mut ends) = (Vec::new(), 0, 0);
        let from = Slow { content: &content, most };
        let unfinished = line::read_pieces(from, |piece| match piece {
            Piece::Lines(whole) => lines.extend_from_slice(whole),
            Piece::OfLong { bytes, is_end } => (parts, ends) = (parts + bytes.len(), ends + u64::from(is_end)),
        });
        assert_eq!((unfinished.unwrap(), lines.as_slice()), (10, b"a\nbc\nd\n\n".as_slice()));
        assert_eq!((parts, ends), (long.len() + 1, 1));
    }
}

/// A reader that gives little at a time.
struct Slow<'a> {
    content: &'a [u8],
    most: usize,
}

impl std::io::Read for Slow<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let most = self.most.min(into.len());
        self.content.read(&mut into[..most])
    }
}

#[test]
fn a_chain_with_a_key_is_not_proven_without_it() {
    let place = Place::chained();
    assert_eq!(kinds(&place.verify_with_key(None)), ["chain_unchecked".to_owned()].into());
    assert!(kinds(&place.verify_with_key(Some([9; 32]))).contains("chain_broken"));
}

#[test]
fn a_segment_that_is_compressed_or_removed_while_all_is_read_is_found_or_reported() {
    let place = Place::write(2, 60);
    std::thread::scope(|scope| {
        let compressing = scope.spawn(|| place.compress(|_| true));
        while !compressing.is_finished() {
            assert_eq!(place.verify()["problems"], json!([]));
        }
    });
    assert_eq!(place.verify()["segments"]["compressed"], place.verify()["segments"]["files"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// One or more damages to the output of several processes, some of it compressed: exactly the removed records are
    /// missing, exactly the doubled ones are doubled, and each damage is a problem of its kind.
    #[test]
    fn exactly_what_was_done_is_named(
        processes in 1_u64..4, records in 10_u64..50,
        damages in prop::collection::vec(damage::any(), 0..4),
        compressed in prop::collection::vec(any::<bool>(), 1..8),
    ) {
        let place = Place::write(processes, records);
        let before = damage::Content::of(&place);
        for one in &damages {
            one.apply(&place);
        }
        let after = damage::Content::of(&place);
        place.compress(|number| compressed[number as usize % compressed.len()]);
        let report = place.verify();
        prop_assert_eq!(damage::missing(&report), before.missing_in(&after), "{:?} {}", damages, report);
        prop_assert_eq!(damage::doubled(&report), after.doubled(), "{:?} {}", damages, report);
        prop_assert_eq!(kinds(&report), after.kinds(&before), "{:?} {}", damages, report);
        prop_assert_eq!(&report["balanced"], &json!(kinds(&report).is_empty()));
    }
}
