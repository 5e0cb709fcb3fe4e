//! The listener's counts of requests: outcomes, tokens, and the histograms over inference requests and over routes.

use super::family::{Bucket, Family};
use lines::series::histogram::{BOUNDS, Histogram, TOKEN_TYPES, TOKENS_WORD};
use lines::series::{OUTCOMES, ROUTE_BOUNDS_S as BOUNDS_S, RouteCounts, SeriesSnapshot, Snapshot};
use std::collections::BTreeMap;

const OPERATION: &str = "gen_ai_operation_name";
const MODEL: &str = "gen_ai_request_model";

/// The last of the outcomes: any that has no name of its own.
const OTHER: usize = OUTCOMES.len() - 1;

macro_rules! weighted {
    ($meaning:literal) => {
        concat!($meaning, "; sampled requests are weighted; the model is the one that answered, if it is named")
    };
}

/// The meanings of the histograms, in the order of [`BOUNDS`].
const MEANINGS: [&str; BOUNDS.len()] = [
    weighted!("Time from the beginning of an inference request to its end"),
    weighted!(
        "Time from the beginning of a successful streamed request to its first chunk (an event with content, \
         reasoning or a tool call, which can hold several tokens)"
    ),
    weighted!(
        "Mean time between the chunks of a successful streamed request, after the first (one observation for each \
         request; a chunk is not a token)"
    ),
    weighted!(
        "Time per output token after the first of a successful streamed request whose tokens are known (one \
         observation for each request)"
    ),
    weighted!("Time that a successful request waited in the engine's queue, as the engine reports it"),
    weighted!("Time of prefill of a successful request, as the engine reports it"),
    weighted!("Time of decoding of a successful request, as the engine reports it"),
];

/// Every family over requests.
pub fn families(counted: &Snapshot) -> Vec<Family> {
    let mut families = vec![outcomes(counted), tokens(&counted.series)];
    if !counted.tenants.is_empty() {
        families.extend([tenant_requests(counted), tenant_tokens(counted)]);
    }
    families.extend(BOUNDS.iter().zip(MEANINGS).filter_map(|(histogram, meaning)| {
        let mut family = Family::histogram(histogram.name, meaning).unit("seconds");
        counted.series.iter().for_each(|series| add_histogram(&mut family, series, histogram));
        (!family.samples.is_empty()).then_some(family)
    }));
    families.extend(by_route(&counted.routes));
    families
}

/// How many requests there were, of every kind; outcomes without a name of their own only if there were such.
fn outcomes(counted: &Snapshot) -> Family {
    let mut family = Family::counter(
        "inference_logging_requests",
        "Requests that have ended, including those that are not for inference; sampled ones are weighted",
    );
    for (index, (name, count)) in OUTCOMES.iter().zip(counted.outcomes).enumerate() {
        if count > 0.0 || index != OTHER {
            family.add(vec![("outcome", (*name).to_owned())], count);
        }
    }
    family
}

/// The tokens of requests, if an answer or an engine reported them.
fn tokens(all: &[SeriesSnapshot]) -> Family {
    let mut family = Family::counter(
        "inference_logging_tokens",
        "Tokens of requests, as reported by their answers or the engine; sampled requests are weighted; the model is the \
         one that answered, if it is named",
    );
    for ((operation, model, kind), tokens) in token_sums(all) {
        let labels = [("gen_ai_token_type", kind), (OPERATION, operation), (MODEL, model)];
        family.add(labels.map(|(name, value)| (name, value.to_owned())).to_vec(), tokens);
    }
    family
}

/// The requests by tenant and outcome, of those that name a tenant.
fn tenant_requests(counted: &Snapshot) -> Family {
    let mut family = Family::counter(
        "inference_logging_tenant_requests",
        "Requests that have ended and have a tenant.id: by name for those in metrics_tenants, the rest as other; sampled \
         ones are weighted",
    );
    for tenant in &counted.tenants {
        for (outcome, count) in OUTCOMES.iter().zip(tenant.outcomes).filter(|(_, count)| *count > 0.0) {
            family.add(vec![("tenant", tenant.name.clone()), ("outcome", (*outcome).to_owned())], count);
        }
    }
    family
}

/// The tokens by tenant and type.
fn tenant_tokens(counted: &Snapshot) -> Family {
    let mut family = Family::counter(
        "inference_logging_tenant_tokens",
        "Tokens of requests that have a tenant.id, as reported by their answers or the engine; tenants as in \
         inference_logging_tenant_requests",
    );
    for tenant in &counted.tenants {
        for (kind, tokens) in TOKEN_TYPES.iter().zip(tenant.tokens).filter(|(_, tokens)| *tokens > 0.0) {
            family.add(vec![("tenant", tenant.name.clone()), ("gen_ai_token_type", (*kind).to_owned())], tokens);
        }
    }
    family
}

/// Tokens by operation, model and type. Tokens of failed requests count too: there is one sum over all errors.
#[must_use]
pub fn token_sums(all: &[SeriesSnapshot]) -> BTreeMap<(&str, &str, &'static str), f64> {
    let mut sums = BTreeMap::new();
    for series in all {
        for (kind, tokens) in
            TOKEN_TYPES.into_iter().zip(&series.words[TOKENS_WORD..]).filter(|(_, tokens)| **tokens > 0.0)
        {
            *sums.entry((series.operation.as_str(), series.model.as_str(), kind)).or_default() += tokens;
        }
    }
    sums
}

/// The buckets of a route's series, each with all that are below it; None: nothing was counted.
#[must_use]
pub fn buckets(series: &SeriesSnapshot, histogram: &Histogram) -> Option<Vec<Bucket>> {
    let counts = &series.words[histogram.first_word..histogram.sum_word()];
    let bounds = histogram.bounds_s.iter().copied().chain([f64::INFINITY]);
    let exemplars = series.exemplars.iter().skip(histogram.first_bucket).chain(std::iter::repeat(&None));
    let mut total = 0.0;
    let buckets = bounds.zip(counts).zip(exemplars).map(|((bound, count), exemplar)| {
        total += count;
        (bound, total, *exemplar)
    });
    let buckets = buckets.collect();
    (total != 0.0).then_some(buckets)
}

fn add_histogram(family: &mut Family, series: &SeriesSnapshot, histogram: &Histogram) {
    let Some(buckets) = buckets(series, histogram) else { return };
    let mut labels = vec![(OPERATION, series.operation.clone()), (MODEL, series.model.clone())];
    if histogram.first_word == 0 {
        // The others are over successful requests only.
        labels.push(("error_type", series.error_type.clone()));
    }
    family.add_buckets(&labels, buckets, series.words[histogram.sum_word()]);
}

/// The family over HTTP by route, if any request was counted.
fn by_route(counted: &[RouteCounts]) -> Option<Family> {
    let mut family = Family::histogram(
        "http_server_request_duration_seconds",
        "Time from the beginning of a request over HTTP to its end, by the template of its route (empty: no route \
         matched; other: too many routes), its method and its status (empty: no answer); sampled requests are weighted",
    )
    .unit("seconds");
    counted.iter().for_each(|series| add_route(&mut family, series));
    (!family.samples.is_empty()).then_some(family)
}

fn add_route(family: &mut Family, series: &RouteCounts) {
    let status = if series.status == 0 { String::new() } else { series.status.to_string() };
    let labels = vec![
        ("http_route", series.route.clone()),
        ("http_request_method", series.method.to_owned()),
        ("http_response_status_code", status),
    ];
    let (buckets, sum) = route_buckets(series);
    family.add_buckets(&labels, buckets, sum);
}

/// The buckets of a route's series, each with all that are below it, and the sum of the times.
#[must_use]
pub fn route_buckets(series: &RouteCounts) -> (Vec<Bucket>, f64) {
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
    use super::{BOUNDS_S, RouteCounts, by_route};
    use crate::status::metrics::text;
    use crate::status::metrics::text::choose;

    #[test]
    fn a_series_has_cumulated_buckets_and_three_labels_of_which_two_can_be_empty() {
        assert_eq!(by_route(&[]), None);
        let mut words = [0.0; BOUNDS_S.len() + 2];
        (words[0], words[1], words[BOUNDS_S.len()], words[BOUNDS_S.len() + 1]) = (2.0, 1.0, 0.5, 60.25);
        let counted = RouteCounts { route: String::new(), method: "GET", status: 0, words };
        let shown = String::from_utf8(text::render(&[by_route(&[counted]).unwrap()], choose("").format)).unwrap();
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
