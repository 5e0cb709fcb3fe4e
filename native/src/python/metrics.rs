//! Counts and histograms of a queue directory as Python objects, for `inference_logging.metrics`.

use crate::layout::{LEVELS, REASONS, SAMPLED_OUT};
use crate::series::histogram::{BOUNDS, Histogram};
use crate::series::{Exemplar, SeriesSnapshot};
use crate::totals::Totals;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The counts, also those that are 0.
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

/// Every histogram of every series that has counted something.
pub fn histogram_dicts<'py>(py: Python<'py>, all: &[SeriesSnapshot]) -> PyResult<Vec<Bound<'py, PyDict>>> {
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
    let counts = &series.words[histogram.first_word..histogram.sum_word()];
    let bounds = histogram.bounds_s.iter().copied().chain([f64::INFINITY]);
    let exemplars = &series.exemplars[histogram.first_bucket..];
    let mut total = 0.0;
    let mut buckets = Vec::new();
    for ((bound, count), exemplar) in bounds.zip(counts).zip(exemplars) {
        total += count;
        buckets.push((bound, total, exemplar.map(exemplar_tuple)));
    }
    if total == 0.0 {
        return Ok(None);
    }
    let dict = PyDict::new(py);
    dict.set_item("name", histogram.name)?;
    dict.set_item("operation", &series.operation)?;
    dict.set_item("model", &series.model)?;
    dict.set_item("error_type", &series.error_type)?;
    dict.set_item("buckets", buckets)?;
    dict.set_item("sum", series.words[histogram.sum_word()])?;
    Ok(Some(dict))
}

fn exemplar_tuple(exemplar: Exemplar) -> (String, String, f64, f64) {
    let (trace_id, span_id) = (format!("{:032x}", exemplar.trace_id), format!("{:016x}", exemplar.span_id));
    (trace_id, span_id, exemplar.value, exemplar.unix_nano as f64 / 1e9)
}
