//! `RuntimeControl`: run-time control as the command line uses it, from a process that serves nothing.

use listen::overrides::{self, Change, EVENT, Writer, checked_route};
use pyo3::exceptions::{PyOSError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use queue::producer::{Producer, QueueSettings};
use queue::queue_file::check_directory;
use queue::severity::INFO;
use request::runtime::Runtime;
use request::runtime::settings::{CHUNKS_MODES, CaptureRule, CaptureTarget, Settings, Timed, Until};
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of the queue that carries the records of the changes: the least there is.
const QUEUE_BYTES: u64 = 65_536;
/// How long another writer is waited for: one holds the lock for microseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is overridden in a queue directory, and the way to change it.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct RuntimeControl {
    directory: PathBuf,
    runtime: Runtime,
}

#[pymethods]
impl RuntimeControl {
    /// Open the control of an existing queue directory.
    ///
    /// Raises OSError if it is missing, not this user's own, or damaged.
    #[new]
    fn new(queue_directory: PathBuf) -> PyResult<Self> {
        check_directory(&queue_directory)?;
        let runtime = Runtime::open(&queue_directory)?;
        Ok(Self { directory: queue_directory, runtime })
    }

    /// Return what is overridden: `what`, `value` and `remaining_s` of each; what is over is left out.
    fn overrides<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let (settings, now) = (self.runtime.settings(), overrides::now());
        listed(&settings)
            .into_iter()
            .filter(|(_, until)| !until.is_over(now))
            .map(|(what, until)| {
                let dict = PyDict::new(py);
                what.put(&dict)?;
                dict.set_item("until_unix_nano", until.unix_nano)?;
                dict.set_item("remaining_s", (until.monotonic_nano - now.monotonic_nano) as f64 / 1e9)?;
                Ok(dict)
            })
            .collect()
    }

    /// Override `what` (`enabled`, `level`, `sample_ratio`, `chunks`, `capture.trace`, `capture.route`, `capture.errors`) with `value`
    /// for `for_s` seconds; `who` stands in the record of the change, which is in a queue before the change takes effect.
    ///
    /// Raises ValueError for a wrong value, OSError if there is no record and so no change, TimeoutError if another
    /// writer keeps the lock.
    fn change(&self, py: Python<'_>, what: &str, value: &Bound<'_, PyAny>, for_s: f64, who: &str) -> PyResult<()> {
        let change = parse(what, value)?;
        let now = overrides::now();
        let nano = (for_s * 1e9) as u64;
        let until = Until { monotonic_nano: now.monotonic_nano + nano, unix_nano: now.unix_nano + nano };
        self.write(py, |writer, record| writer.change(&change, until, who, record))
    }

    /// Record again what was switched off; return 1 if something was, else 0. Raises as `change`.
    fn enable(&self, py: Python<'_>, who: &str) -> PyResult<usize> {
        self.write(py, |writer, record| writer.enable(who, record))
    }

    /// End every override and return how many there were. Raises as `change`.
    fn reset(&self, py: Python<'_>, who: &str) -> PyResult<usize> {
        self.write(py, |writer, record| writer.reset(who, record))
    }
}

impl RuntimeControl {
    /// Runs `work` with the writers' lock and a queue of its own. The queue stays behind for the listener, of now or later.
    fn write<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Writer, &mut dyn FnMut(&[u8]) -> bool) -> Result<R, String> + Send,
    ) -> PyResult<R> {
        py.detach(|| {
            let writer = self.lock()?;
            let producer = Producer::open(QueueSettings {
                directory: self.directory.clone(),
                queue_bytes: QUEUE_BYTES,
                in_flight_slots: 0,
                max_record_bytes: QUEUE_BYTES as u32 / 4,
                overflow_info_ratio: 1.0,
                wake_bytes: 0,
                configuration: None,
                events: Vec::new(),
            })?;
            let done = work(&writer, &mut |payload| producer.emit(EVENT, INFO, payload));
            producer.close();
            done.map_err(PyOSError::new_err)
        })
    }

    fn lock(&self) -> PyResult<Writer> {
        let started = std::time::Instant::now();
        loop {
            if let Some(writer) = Writer::try_lock(&self.directory)? {
                return Ok(writer);
            }
            if started.elapsed() >= PATIENCE {
                return Err(PyTimeoutError::new_err(
                    "another process is changing the same for too long; nothing is changed",
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

enum Shown<'a> {
    Disabled,
    Level(u8),
    Ratio(f64),
    Chunks(u8),
    Capture(&'a CaptureRule),
}

impl Shown<'_> {
    fn put(&self, dict: &Bound<'_, PyDict>) -> PyResult<()> {
        match self {
            Self::Disabled => {
                dict.set_item("what", "enabled")?;
                dict.set_item("value", "off")
            }
            Self::Level(severity) => {
                dict.set_item("what", "level")?;
                dict.set_item("value", queue::layout::LEVELS[queue::layout::level_index(*severity)])
            }
            Self::Ratio(ratio) => {
                dict.set_item("what", "sample_ratio")?;
                dict.set_item("value", ratio)
            }
            Self::Chunks(mode) => {
                dict.set_item("what", "chunks")?;
                dict.set_item("value", CHUNKS_MODES.get(usize::from(*mode)))
            }
            Self::Capture(rule) => match &rule.target {
                CaptureTarget::Trace(id) => {
                    dict.set_item("what", "capture.trace")?;
                    dict.set_item("value", format!("{:032x}", u128::from_be_bytes(*id)))
                }
                CaptureTarget::Route(route) => {
                    dict.set_item("what", "capture.route")?;
                    dict.set_item("value", String::from_utf8_lossy(route))
                }
                CaptureTarget::Errors(left) => {
                    dict.set_item("what", "capture.errors")?;
                    dict.set_item("value", left)
                }
            },
        }
    }
}

fn listed(settings: &Settings) -> Vec<(Shown<'_>, Until)> {
    let level = settings.level.iter().map(|level| (Shown::Level(level.value), level.until));
    let ratio = settings.ratio.iter().map(|ratio| (Shown::Ratio(ratio.value), ratio.until));
    let chunks = settings.chunks.iter().map(|chunks| (Shown::Chunks(chunks.value), chunks.until));
    let rules = settings.rules.iter().flatten().map(|Timed { value, until }| (Shown::Capture(value), *until));
    let disabled = settings.disabled.iter().map(|until| (Shown::Disabled, *until));
    disabled.chain(level).chain(ratio).chain(chunks).chain(rules).collect()
}

fn parse(what: &str, value: &Bound<'_, PyAny>) -> PyResult<Change> {
    let refuse = |allowed: &str| PyValueError::new_err(format!("{what}={value}: must be {allowed}"));
    Ok(match what {
        "enabled" => match value.extract::<&str>() {
            Ok("off") => Change::Disabled,
            _ => return Err(refuse("off")),
        },
        "level" => Change::Level(value.extract().map_err(|_| refuse("a severity number"))?),
        "sample_ratio" => {
            let ratio: f64 = value.extract().map_err(|_| refuse("a number"))?;
            Change::Ratio(request::sampler::checked_ratio(ratio).map_err(|_| refuse("0, or from 2**-56 to 1"))?)
        }
        "chunks" => {
            let name: String = value.extract()?;
            let mode = CHUNKS_MODES.iter().position(|mode| *mode == name);
            Change::Chunks(mode.ok_or_else(|| refuse("off, summary, timeline or events"))? as u8)
        }
        "capture.trace" => {
            let id: String = value.extract()?;
            let digits = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            let id = u128::from_str_radix(&id, 16).ok().filter(|id| digits && *id != 0);
            Change::Capture(CaptureTarget::Trace(id.ok_or_else(|| refuse("32 hex digits, not all 0"))?.to_be_bytes()))
        }
        "capture.route" => Change::Capture(checked_route(value.extract()?).map_err(PyValueError::new_err)?),
        "capture.errors" => {
            Change::Capture(CaptureTarget::Errors(value.extract().map_err(|_| refuse("a number of errors"))?))
        }
        other => return Err(PyValueError::new_err(format!("what={other:?}: cannot be changed at run time"))),
    })
}
