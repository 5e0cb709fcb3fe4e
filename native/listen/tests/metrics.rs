//! The metrics of a queue directory: how often they are collected, whether the books balance, and the form of the
//! texts.

use crate::support::{INFO, PATIENCE, emit, listener_settings, queue_settings, register};
use lines::series::Exemplar;
use listen::service::Service;
use listen::sink::{FileSinkConfig, Now, SinkSettings};
use listen::status::health::{HealthWatch, Limits, Watched};
use listen::status::lane::Lane;
use listen::status::metrics::family::{Family, Kind};
use listen::status::metrics::text::choose;
use listen::status::metrics::{Metrics, books_difference, text};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const OPENMETRICS: &str = "application/openmetrics-text";

/// A service, and the metrics of its queue directory.
fn open(path: &Path) -> (Arc<Service>, Metrics) {
    let directory = path.join("queues");
    let sink = SinkSettings::File(FileSinkConfig::new(path.join("segments"), "test", "0000000000000000"));
    let service = Service::open(queue_settings(&directory), listener_settings(&directory), sink, true).unwrap();
    let control = service.control().unwrap();
    let limits = Limits {
        backlog_records: 10_000.0,
        backlog_ratio: 0.5,
        pressured_ratio: 0.5,
        clear_ratio: 0.5,
        oldest_age_s: 30.0,
        stuck_after_s: 30.0,
    };
    let fast = Watched { source: Lane { service: Arc::clone(&service), directory, control }, limits, listens: true };
    (service, Metrics::new(Arc::new(HealthWatch::new(fast, None, at(0))), None))
}

fn at(milliseconds: u64) -> Now {
    Now { unix_nano: 1_763_850_000_000_000_000, monotonic: Duration::from_millis(1_000_000 + milliseconds) }
}

fn shown(metrics: &Metrics, accept: &str, now: Now) -> (String, String) {
    let (text, kind) = metrics.render(accept, now).unwrap();
    (String::from_utf8(text.to_vec()).unwrap(), kind)
}

#[test]
fn metrics_are_collected_once_in_a_quarter_of_a_second_for_all_who_ask() {
    let directory = tempfile::tempdir().unwrap();
    let (service, metrics) = open(directory.path());
    let (before, kind) = shown(&metrics, "", at(0));
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    let event = register(&service.producer);
    assert!(emit(&service.producer, event, INFO, 0, 1));
    assert!(service.flush(PATIENCE));
    assert_eq!(shown(&metrics, "", at(249)).0, before);
    // The other format is written from the data that were collected for the first.
    let (openmetrics, kind) = shown(&metrics, OPENMETRICS, at(249));
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(openmetrics.contains("\ninference_logging_records_accepted_total 0.0\n"), "{openmetrics}");
    for accept in ["", OPENMETRICS] {
        let (text, _) = shown(&metrics, accept, at(250));
        assert!(text.contains("\ninference_logging_records_accepted_total 1.0\n"), "{text}");
        assert!(text.contains("\ninference_logging_records_written_total{sink=\"file\"} 1.0\n"), "{text}");
    }
    assert!(service.close(PATIENCE));
}

#[test]
fn every_family_follows_the_rules_for_names_and_has_a_text_that_needs_no_escape() {
    let directory = tempfile::tempdir().unwrap();
    let (service, metrics) = open(directory.path());
    let families = metrics.families(at(0)).unwrap();
    let names: HashSet<&str> = families.iter().map(|family| family.name).collect();
    assert_eq!(names.len(), families.len(), "each stands once");
    for family in &families {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        assert!(family.name.starts_with("inference_logging_") && family.name.bytes().all(is_plain), "{}", family.name);
        assert!(!family.name.ends_with("_total") && family.name.ends_with(family.unit), "{}", family.name);
        assert!(!family.help.is_empty() && !family.help.contains(['\\', '"', '\n']), "{}", family.help);
        let suffixes: HashSet<&str> = family.samples.iter().map(|sample| sample.suffix).collect();
        let known: &[&str] = match family.kind {
            Kind::Counter => &["_total"],
            Kind::Gauge => &[""],
            Kind::Histogram => &["_bucket", "_count", "_sum"],
            Kind::Info => &["_info"],
        };
        assert!(suffixes.iter().all(|suffix| known.contains(suffix)), "{}: {suffixes:?}", family.name);
    }
    assert!(service.close(PATIENCE));
}

#[test]
fn a_file_of_counts_of_another_version_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (service, metrics) = open(directory.path());
    assert!(service.close(PATIENCE));
    std::fs::write(directory.path().join("queues/metrics"), b"another version").unwrap();
    assert_eq!(metrics.families(at(0)).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    assert!(metrics.render("", at(0)).is_err());
}

/// One test for each state of the books: what sinks had taken before, what queues gave out, what sinks have taken
/// after.
macro_rules! books {
    ($($name:ident: $before:literal, $given_out:literal, $after:literal => $difference:literal;)+) => {
        $(
            #[test]
            fn $name() {
                assert_eq!(books_difference($before, $given_out, $after), $difference);
            }
        )+
    };
}

books! {
    balanced_books_differ_by_nothing: 58, 58, 58 => 0;
    batches_under_way_are_no_difference: 50, 58, 66 => 0;
    eight_that_no_sink_took: 50, 58, 50 => 8;
    eight_that_no_sink_took_while_others_are_under_way: 40, 58, 50 => 8;
    two_that_no_queue_gave: 60, 58, 66 => -2;
}

/// A family of each kind, with what has to be escaped.
fn families() -> Vec<Family> {
    let mut counter = Family::counter("c", "A counter");
    counter.add(vec![("b", "a \"b\" \\ c\nd".to_owned()), ("a", "é".to_owned())], 1e6);
    let exemplar = Exemplar {
        trace_id: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
        span_id: 0xd,
        value: 0.125,
        unix_nano: 1_763_850_000_500_000_000,
    };
    let mut histogram = Family::histogram("h_seconds", "A histogram").unit("seconds");
    let buckets = [(0.0001, 1.0, None), (1.0, 3.0, Some(exemplar)), (f64::INFINITY, 4.0, None)];
    histogram.add_buckets(&vec![("sink", "file".to_owned())], buckets, 2.5);
    let info = Family::info("i", "What runs", vec![("version", "1".to_owned())]);
    vec![counter, Family::gauge("g_bytes", "A gauge").unit("bytes").value(0.5), histogram, info]
}

#[test]
fn the_text_format_has_totals_in_its_heads_and_neither_units_nor_exemplars() {
    let text = text::render(&families(), choose("").format);
    let expected = [
        "# HELP c_total A counter",
        "# TYPE c_total counter",
        r#"c_total{a="é",b="a \"b\" \\ c\nd"} 1e+06"#,
        "# HELP g_bytes A gauge",
        "# TYPE g_bytes gauge",
        "g_bytes 0.5",
        "# HELP h_seconds A histogram",
        "# TYPE h_seconds histogram",
        r#"h_seconds_bucket{le="0.0001",sink="file"} 1.0"#,
        r#"h_seconds_bucket{le="1.0",sink="file"} 3.0"#,
        r#"h_seconds_bucket{le="+Inf",sink="file"} 4.0"#,
        r#"h_seconds_count{sink="file"} 4.0"#,
        r#"h_seconds_sum{sink="file"} 2.5"#,
        "# HELP i_info What runs",
        "# TYPE i_info gauge",
        r#"i_info{version="1"} 1.0"#,
        "",
    ];
    assert_eq!(String::from_utf8(text).unwrap(), expected.join("\n"));
}

#[test]
fn openmetrics_has_units_exemplars_and_an_end() {
    let text = text::render(&families(), choose(OPENMETRICS).format);
    let expected = [
        "# HELP c A counter",
        "# TYPE c counter",
        r#"c_total{a="é",b="a \"b\" \\ c\nd"} 1e+06"#,
        "# HELP g_bytes A gauge",
        "# TYPE g_bytes gauge",
        "# UNIT g_bytes bytes",
        "g_bytes 0.5",
        "# HELP h_seconds A histogram",
        "# TYPE h_seconds histogram",
        "# UNIT h_seconds seconds",
        r#"h_seconds_bucket{le="0.0001",sink="file"} 1.0"#,
        concat!(
            r#"h_seconds_bucket{le="1.0",sink="file"} 3.0 # {span_id="000000000000000d","#,
            r#"trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} 0.125 1763850000.5"#
        ),
        r#"h_seconds_bucket{le="+Inf",sink="file"} 4.0"#,
        r#"h_seconds_count{sink="file"} 4.0"#,
        r#"h_seconds_sum{sink="file"} 2.5"#,
        "# HELP i What runs",
        "# TYPE i info",
        r#"i_info{version="1"} 1.0"#,
        "# EOF",
        "",
    ];
    assert_eq!(String::from_utf8(text).unwrap(), expected.join("\n"));
}

#[test]
fn the_escaping_called_dots_doubles_the_underscores_of_names_and_of_nothing_else() {
    let mut family = Family::counter("a_b", "Of a_b");
    family.add(vec![("c_d", "e_f".to_owned())], 1.0);
    let format = choose("text/plain;version=1.0.0;escaping=dots").format;
    let text = text::render(&[family], format);
    let expected = "# HELP a__b__total Of a_b\n# TYPE a__b__total counter\na__b__total{c__d=\"e_f\"} 1.0\n";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}
