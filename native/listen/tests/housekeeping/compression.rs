//! Which segments are compressed, and which properties of the plain form a compressed one keeps.

use super::bench::{Bench, content, moment, name};
use listen::housekeeper::Compression;
use segments::compress::read_lines;
use segments::segment::{Form, SegmentName};
use segments::segment_store::RealStore;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::Ordering;

pub const KEEP_TWO: Option<Compression> = Some(Compression { level: 3, keep_segments: 2 });

fn compressed(number: u64) -> String {
    format!("{}.zst", name(number))
}

#[test]
fn sealed_segments_are_compressed_one_a_round_the_oldest_first_and_the_newest_stay_plain() {
    let mut bench = Bench::new();
    bench.segments(5);
    bench.compression = KEEP_TWO;
    let _live = bench.live(&name(5));
    assert!(bench.round(10));
    assert_eq!(bench.files(), [compressed(1), name(2), name(3), name(4), name(5)]);
    assert!(bench.round(10));
    assert!(!bench.round(10));
    assert_eq!(bench.files(), [compressed(1), compressed(2), name(3), name(4), name(5)]);
    assert_eq!(bench.words.segments_compressed.load(Ordering::Relaxed), 2);
    assert_eq!(bench.words.compressed_from_bytes.load(Ordering::Relaxed), 20);
}

#[test]
fn a_live_segment_is_not_compressed_however_old_it_is() {
    let mut bench = Bench::new();
    bench.segments(4);
    bench.compression = KEEP_TWO;
    let live = bench.live(&name(1));
    assert!(bench.round(10));
    assert!(!bench.round(10));
    assert_eq!(bench.files(), [name(1), compressed(2), name(3), name(4)]);
    drop(live);
    assert!(bench.round(10));
    assert_eq!(bench.files()[0], compressed(1));
}

#[test]
fn content_time_and_permissions_are_kept_and_a_checksum_is_there() {
    let mut bench = Bench::new();
    let path = bench.write(&name(1), &content(1), 1);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    bench.segments(3);
    let path = bench.write(&name(1), &content(1), 1);
    let before = fs::metadata(path).unwrap();
    bench.compression = KEEP_TWO;
    assert!(bench.round(10));
    let after = fs::metadata(bench.path(&compressed(1))).unwrap();
    assert_eq!(bench.decompressed(1), content(1));
    assert_eq!((after.mtime(), after.mtime_nsec()), (before.mtime(), before.mtime_nsec()));
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    assert!(after.len() < before.len() / 10);
    let mut bytes = fs::read(bench.path(&compressed(1))).unwrap();
    assert_ne!(bytes[4] & 4, 0, "the frame's checksum flag");
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(bench.path(&compressed(1)), bytes).unwrap();
    assert!(read_lines(&bench.path(&compressed(1)), 0, u64::MAX).is_err());
}

#[test]
fn a_dead_writers_unfinished_line_stays_behind() {
    let mut bench = Bench::new();
    bench.segments(3);
    let torn = [&content(1)[..], b"{\"unfinished\":"].concat();
    bench.write(&name(1), &torn, 1);
    bench.compression = KEEP_TWO;
    assert!(bench.round(10));
    assert_eq!(bench.decompressed(1), content(1));
    assert!(!bench.path(&name(1)).exists());
}

#[test]
fn a_segment_without_a_whole_line_is_left_to_retention() {
    let mut bench = Bench::new();
    bench.segments(3);
    bench.write(&name(1), b"{\"unfinished\":", 1);
    bench.compression = KEEP_TWO;
    let mut rounds = bench.rounds(RealStore);
    assert!(bench.round_of(&mut rounds, 10));
    assert!(!bench.round_of(&mut rounds, 10));
    assert_eq!((bench.files().len(), bench.errors()), (3, 0));
}

#[test]
fn the_lines_from_an_offset_on_can_be_read() {
    let mut bench = Bench::new();
    bench.segments(3);
    bench.write(&name(1), &content(1), 1);
    bench.compression = KEEP_TWO;
    assert!(bench.round(10));
    let lines = read_lines(&bench.path(&compressed(1)), 1000, 500).unwrap();
    assert_eq!(lines, content(1)[1000..1500]);
}

#[test]
fn work_that_is_ended_leaves_the_segment_as_it_was() {
    let mut bench = Bench::new();
    bench.segments(3);
    bench.write(&name(1), &content(1), 1);
    bench.compression = KEEP_TWO;
    let steps = |bench: &Bench, most: usize| {
        let mut steps = 0;
        let mut pace = |_| {
            steps += 1;
            steps <= most
        };
        bench.rounds(RealStore).round(moment(10), &mut pace, &mut |_, _| true);
        steps
    };
    assert_eq!(steps(&bench, 1), 2, "it went on after the first step, and ended after the second");
    assert_eq!((bench.files(), bench.errors()), (vec![name(1), name(2), name(3)], 0));
}

#[test]
fn names_in_every_form_are_read_as_they_are_written() {
    let segment = SegmentName::parse(&name(7)).unwrap();
    for form in [Form::Plain, Form::Compressed, Form::Temporary] {
        assert_eq!(SegmentName::parse_file(&segment.file_name(form)), Some((segment.clone(), form)));
    }
    for file in [format!(".{}", name(7)), format!("{}.zst.tmp", name(7)), format!("{}.zst.zst", name(7))] {
        assert_eq!(SegmentName::parse_file(&file), None, "{file}");
    }
}
