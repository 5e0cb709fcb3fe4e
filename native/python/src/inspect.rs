//! The queues of a directory as Python objects.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use queue::inspect::{self, QueueSnapshot};
use queue::layout::{LEVELS, REASONS, SAMPLED_OUT};
use queue::queue_file::QueueCounts;

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
