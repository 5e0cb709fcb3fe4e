//! Counts, queues and histograms of a queue directory as Python objects, as `Service` returns them.

use lines::series::histogram::{BOUNDS, Histogram};
use lines::series::{Exemplar, OUTCOMES, RouteCounts, SeriesSnapshot, Snapshot};
use listen::status::metrics::requests;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use queue::inspect::{self, QueueSnapshot};
use queue::layout::{LEVELS, REASONS, SAMPLED_OUT};
use queue::published::totals::Totals;
use queue::queue_file::QueueCounts;

/// The counts, zeros included.
pub fn totals_dict<'py>(py: Python<'py>, totals: &Totals) -> PyResult<Bound<'py, PyDict>> {
    let dropped = PyDict::new(py);
    for reason in REASONS {
        let levels = PyDict::new(py);
        for (level, count) in LEVELS.iter().zip(&totals.dropped[reason as usize]) {
            levels.set_item(level, count)?;
        }
        dropped.set_item(reason.name(), levels)?;
    }
    let sampled_out = PyDict::new(py);
    for reason in SAMPLED_OUT {
        sampled_out.set_item(reason.name(), totals.sampled_out[reason as usize])?;
    }
    let dict = PyDict::new(py);
    dict.set_item("queues", totals.queues)?;
    dict.set_item("accepted", totals.accepted)?;
    dict.set_item("written", totals.written)?;
    dict.set_item("dropped", dropped)?;
    dict.set_item("sampled_out", sampled_out)?;
    dict.set_item("in_flight_missed", totals.in_flight_missed)?;
    dict.set_item("producer_deaths", totals.producer_deaths)?;
    dict.set_item("hot_path_s", totals.hot_path_nano as f64 / 1e9)?;
    Ok(dict)
}

/// The requests by outcome, unused outcomes included; tokens and histograms only where something was counted.
pub fn requests_dict<'py>(py: Python<'py>, counted: &Snapshot) -> PyResult<Bound<'py, PyDict>> {
    let outcomes = PyDict::new(py);
    for (name, count) in OUTCOMES.iter().zip(counted.outcomes) {
        outcomes.set_item(name, count)?;
    }
    let dict = PyDict::new(py);
    dict.set_item("outcomes", outcomes)?;
    dict.set_item("tokens", token_dicts(py, &counted.series)?)?;
    dict.set_item("histograms", histogram_dicts(py, &counted.series)?)?;
    let routes: PyResult<Vec<_>> = counted.routes.iter().map(|series| route_dict(py, series)).collect();
    dict.set_item("routes", routes?)?;
    Ok(dict)
}

fn route_dict<'py>(py: Python<'py>, series: &RouteCounts) -> PyResult<Bound<'py, PyDict>> {
    let (buckets, sum) = requests::route_buckets(series);
    let dict = PyDict::new(py);
    dict.set_item("route", &series.route)?;
    dict.set_item("method", series.method)?;
    dict.set_item("status", series.status)?;
    dict.set_item("buckets", buckets.into_iter().map(|(bound, total, _)| (bound, total)).collect::<Vec<_>>())?;
    dict.set_item("sum", sum)?;
    Ok(dict)
}

fn token_dicts<'py>(py: Python<'py>, all: &[SeriesSnapshot]) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let token_dict = |((operation, model, kind), tokens)| {
        let dict = PyDict::new(py);
        dict.set_item("operation", operation)?;
        dict.set_item("model", model)?;
        dict.set_item("token_type", kind)?;
        dict.set_item("tokens", tokens)?;
        Ok(dict)
    };
    requests::token_sums(all).into_iter().map(token_dict).collect()
}

fn histogram_dicts<'py>(py: Python<'py>, all: &[SeriesSnapshot]) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let mut dicts = Vec::new();
    for series in all {
        for histogram in &BOUNDS {
            dicts.extend(histogram_dict(py, series, histogram)?);
        }
    }
    Ok(dicts)
}

fn histogram_dict<'py>(
    py: Python<'py>,
    series: &SeriesSnapshot,
    histogram: &Histogram,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(buckets) = requests::buckets(series, histogram) else { return Ok(None) };
    let buckets: Vec<_> = buckets
        .into_iter()
        .map(|(bound, total, exemplar)| (bound, total, exemplar.as_ref().map(exemplar_tuple)))
        .collect();
    let dict = PyDict::new(py);
    dict.set_item("name", histogram.name)?;
    dict.set_item("operation", &series.operation)?;
    dict.set_item("model", &series.model)?;
    dict.set_item("error_type", &series.error_type)?;
    dict.set_item("buckets", buckets)?;
    dict.set_item("sum", series.words[histogram.sum_word()])?;
    Ok(Some(dict))
}

/// Trace id, span id, value and Unix time in seconds.
pub fn exemplar_tuple(exemplar: &Exemplar) -> (String, String, f64, f64) {
    let (trace_id, span_id) = (format!("{:032x}", exemplar.trace_id), format!("{:016x}", exemplar.span_id));
    (trace_id, span_id, exemplar.value, exemplar.unix_s())
}

/// Every queue of a directory.
pub fn queue_dicts<'py>(py: Python<'py>, directory: &std::path::Path) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let all = py.detach(|| inspect::queues(directory));
    all.iter().map(|queue| queue_dict(py, queue)).collect()
}

fn queue_dict<'py>(py: Python<'py>, queue: &QueueSnapshot) -> PyResult<Bound<'py, PyDict>> {
    let dict = counts_dict(py, &queue.counts)?;
    dict.set_item("used_bytes", queue.counts.bytes_in_queue)?;
    dict.set_item("capacity_bytes", queue.capacity_bytes)?;
    dict.set_item("schemas_fill_ratio", queue.schemas_fill_ratio)?;
    dict.set_item("oldest_unix_nano", queue.oldest_unix_nano)?;
    dict.set_item("in_flight", queue.in_flight)?;
    dict.set_item("producer", queue.producer.name())?;
    dict.set_item("only_listens", queue.only_listens)?;
    dict.set_item("producer_name", &queue.producer_name)?;
    Ok(dict)
}

/// The counts of one queue.
pub fn counts_dict<'py>(py: Python<'py>, books: &QueueCounts) -> PyResult<Bound<'py, PyDict>> {
    let dropped = PyDict::new(py);
    for reason in REASONS {
        let levels = PyDict::new(py);
        for (level, count) in LEVELS.iter().zip(&books.dropped[reason as usize]) {
            if *count > 0 {
                levels.set_item(level, count)?;
            }
        }
        if !levels.is_empty() {
            dropped.set_item(reason.name(), levels)?;
        }
    }
    let dict = PyDict::new(py);
    dict.set_item("boot_id", format!("{:016x}", books.boot_id))?;
    dict.set_item("pid", books.pid)?;
    dict.set_item("accepted", books.accepted)?;
    dict.set_item("written", books.written)?;
    dict.set_item("in_queue", books.in_queue)?;
    let sampled_out = PyDict::new(py);
    for reason in SAMPLED_OUT {
        let count = books.sampled_out[reason as usize];
        if count > 0 {
            sampled_out.set_item(reason.name(), count)?;
        }
    }
    dict.set_item("sampled_out", sampled_out)?;
    dict.set_item("dropped", dropped)?;
    Ok(dict)
}
