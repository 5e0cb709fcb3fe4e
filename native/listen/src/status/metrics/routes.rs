//! The listener's counts of requests over HTTP, by route.

use super::family::{Bucket, Family};
use lines::series::{ROUTE_BOUNDS_S as BOUNDS_S, RouteCounts};

/// The family, if any request was counted.
pub fn family(counted: &[RouteCounts]) -> Option<Family> {
    let mut family = Family::histogram(
        "http_server_request_duration_seconds",
        "Time from the beginning of a request over HTTP to its end, by the template of its route (empty: no route \
         matched; other: too many routes), its method and its status (empty: no answer); sampled requests are weighted",
    )
    .unit("seconds");
    counted.iter().for_each(|series| add(&mut family, series));
    (!family.samples.is_empty()).then_some(family)
}

fn add(family: &mut Family, series: &RouteCounts) {
    let status = if series.status == 0 { String::new() } else { series.status.to_string() };
    let labels = vec![
        ("http_route", series.route.clone()),
        ("http_request_method", series.method.to_owned()),
        ("http_response_status_code", status),
    ];
    let (buckets, sum) = buckets(series);
    family.add_buckets(&labels, buckets, sum);
}

/// The buckets of a series, each with all that are below it, and the sum of the times.
#[must_use]
pub fn buckets(series: &RouteCounts) -> (Vec<Bucket>, f64) {
    let (counts, sum) = series.words.split_at(BOUNDS_S.len() + 1);
    let bounds = BOUNDS_S.into_iter().chain([f64::INFINITY]);
    let mut total = 0.0;
    let buckets = bounds.zip(counts).map(|(bound, count)| -> Bucket {
        total += count;
        (bound, total, None)
    });
    (buckets.collect(), sum[0])
}

#[cfg(test)]
mod tests {
    use super::{BOUNDS_S, RouteCounts, family};
    use crate::status::metrics::text;
    use crate::status::metrics::text::choose;

    #[test]
    fn a_series_has_cumulated_buckets_and_three_labels_of_which_two_can_be_empty() {
        assert_eq!(family(&[]), None);
        let mut words = [0.0; BOUNDS_S.len() + 2];
        (words[0], words[1], words[BOUNDS_S.len()], words[BOUNDS_S.len() + 1]) = (2.0, 1.0, 0.5, 60.25);
        let counted = RouteCounts { route: String::new(), method: "GET", status: 0, words };
        let shown = String::from_utf8(text::render(&[family(&[counted]).unwrap()], choose("").format)).unwrap();
        let labels = r#"http_request_method="GET",http_response_status_code="",http_route="""#;
        for line in [
            format!("http_server_request_duration_seconds_bucket{{{labels},le=\"0.005\"}} 2.0"),
            format!("http_server_request_duration_seconds_bucket{{{labels},le=\"0.01\"}} 3.0"),
            format!("http_server_request_duration_seconds_bucket{{{labels},le=\"80.0\"}} 3.0"),
            format!("http_server_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 3.5"),
            format!("http_server_request_duration_seconds_count{{{labels}}} 3.5"),
            format!("http_server_request_duration_seconds_sum{{{labels}}} 60.25"),
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
        }
    }
}
