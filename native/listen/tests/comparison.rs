//! Recording compared with not recording: which requests are recorded, what is counted of them, and how it ends.

use listen::overrides::{Change, Writer, now};
use request::runtime::Runtime;
use request::runtime::comparison::{ArmCounts, RENEWED_FOR_NANO, RequestTimer};
use request::runtime::settings::Until;
use std::path::Path;

const SECOND: u64 = 1_000_000_000;

fn writer(directory: &Path) -> Writer {
    Writer::try_lock(directory).unwrap().expect("nobody else writes")
}

fn begun(directory: &Path) -> Runtime {
    let runtime = Runtime::open(directory).unwrap();
    runtime.begin_comparison();
    let until = Until { monotonic_nano: 1000 * SECOND, unix_nano: u64::MAX };
    writer(directory).change(&Change::Compared, until, "test", |_| true).unwrap();
    runtime
}

#[test]
fn a_slice_holds_for_all_until_it_is_not_renewed() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = begun(directory.path());
    assert!(runtime.is_active() && !runtime.overrides_requests());
    assert!(!runtime.is_disabled(SECOND), "before the first slice everything is recorded");
    assert!(runtime.begins(SECOND).compared.is_none(), "and nothing is counted");
    runtime.hold_slice(SECOND, true);
    let last = SECOND + RENEWED_FOR_NANO - 1;
    assert!(runtime.is_disabled(SECOND) && runtime.is_disabled(last));
    assert!(!runtime.is_disabled(last + 1), "the process that renewed it was killed");
    assert!(runtime.begins(last + 1).compared.is_none());
    runtime.hold_slice(SECOND, false);
    assert!(!runtime.is_disabled(SECOND) && runtime.begins(SECOND).compared.is_some());
    runtime.hold_slice(SECOND, true);
    runtime.end_slices();
    assert!(!runtime.is_disabled(SECOND) && runtime.begins(SECOND).compared.is_none());
}

#[test]
fn no_slice_outlasts_the_comparison_and_none_overrules_a_switch_off() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = begun(directory.path());
    runtime.hold_slice(1000 * SECOND - 10, true);
    assert!(runtime.is_disabled(1000 * SECOND - 1));
    assert!(!runtime.is_disabled(1000 * SECOND));
    let until = Until { monotonic_nano: 2000 * SECOND, unix_nano: u64::MAX };
    writer(directory.path()).change(&Change::Disabled, until, "test", |_| true).unwrap();
    runtime.hold_slice(SECOND, false);
    assert!(runtime.is_disabled(SECOND) && runtime.begins(SECOND).compared.is_none());
}

#[test]
fn a_request_is_counted_in_the_arm_in_which_it_began_with_its_times() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = begun(directory.path());
    runtime.hold_slice(SECOND, true);
    let mut off = RequestTimer::begin(runtime.begins(SECOND).compared.unwrap(), SECOND);
    runtime.hold_slice(SECOND, false);
    let mut on = RequestTimer::begin(runtime.begins(SECOND).compared.unwrap(), SECOND);
    assert!(!runtime.leaves_out(SECOND, || 3), "of a face without times");
    off.part(false, true, SECOND + 5);
    off.part(true, true, SECOND + 10);
    off.part(true, true, SECOND + 30);
    off.part(true, false, SECOND + 60);
    off.part(true, false, SECOND + 90);
    on.part(false, false, SECOND + 7);
    let expected = [
        ArmCounts { requests: 1, first_chunks: 1, first_chunks_nano: 10, later_chunks: 2, later_chunks_nano: 50 },
        ArmCounts { requests: 4, first_chunks: 1, first_chunks_nano: 7, later_chunks: 0, later_chunks_nano: 0 },
    ];
    assert_eq!(runtime.compared(), expected);
}

#[test]
fn a_request_of_an_earlier_comparison_is_counted_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = begun(directory.path());
    runtime.hold_slice(SECOND, true);
    let mut timer = RequestTimer::begin(runtime.begins(SECOND).compared.unwrap(), SECOND);
    runtime.begin_comparison();
    assert_eq!(runtime.compared(), <[ArmCounts; 2]>::default());
    timer.part(true, false, SECOND + 5);
    assert_eq!(runtime.compared(), <[ArmCounts; 2]>::default());
}

#[test]
fn the_end_of_a_comparison_is_on_record_with_what_it_has_cost() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = begun(directory.path());
    runtime.hold_slice(SECOND, true);
    assert!(runtime.leaves_out(SECOND, || 5));
    runtime.hold_slice(SECOND, false);
    assert!(!runtime.leaves_out(SECOND, || 2));
    let mut reported = Vec::new();
    let record = |payload: &[u8]| {
        reported.push(String::from_utf8_lossy(payload).into_owned());
        true
    };
    assert_eq!(writer(directory.path()).end_comparison("test", record), Ok(1));
    assert!(!runtime.is_active());
    let [report] = &reported[..] else { panic!("{reported:?}") };
    assert!(report.contains(r#"{"requests_on":2,"requests_off":5}"#), "{report}");
    assert_eq!(writer(directory.path()).end_comparison("test", |_| panic!("there is none")), Ok(0));
}

#[test]
fn none_begins_while_nothing_is_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let (now, writer) = (now(), writer(directory.path()));
    let until = |seconds: u64| Until {
        monotonic_nano: now.monotonic_nano + seconds * SECOND,
        unix_nano: now.unix_nano + seconds * SECOND,
    };
    writer.change(&Change::Disabled, until(0), "test", |_| true).unwrap();
    writer.change(&Change::Compared, until(60), "test", |_| true).unwrap();
    writer.reset("test", |_| true).unwrap();
    writer.change(&Change::Disabled, until(60), "test", |_| true).unwrap();
    let refused = writer.change(&Change::Compared, until(60), "test", |_| panic!("refused")).unwrap_err();
    assert!(refused.starts_with("nothing is recorded until 20"), "{refused}");
    assert!(Runtime::open(directory.path()).unwrap().settings().compared.is_none());
}
