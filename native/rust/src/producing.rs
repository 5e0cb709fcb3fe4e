//! The logging of a process without a listener of its own: `inference-logging listen` drains its queue, or `recover` does
//! afterwards. It stands in for the crate `listen` where the feature `listener` is off.

#[cfg(feature = "requests")]
use parameters::Parameters;
use parameters::ParametersError;
#[cfg(not(feature = "requests"))]
use parameters::{Common as Parameters, by_line};
use queue::producer::poll;
use queue::producer::{Producer, QueueSettings};
use queue::queue_check::QueueCheck;
use queue::queue_file::QueueCounts;
#[cfg(feature = "requests")]
use queue::system::WallClock;
use queue::system::now_monotonic_nano;
#[cfg(feature = "requests")]
use request::observer::ObserverSettings;
#[cfg(feature = "requests")]
use request::requests::Requests;
use request::requests::open_producer;
use request::runtime::Runtime;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A valid configuration. Without requests: of which a producer's parameters are valid; the listener checks the others when it
/// reads the same file.
pub struct Settings(Parameters);

impl Settings {
    /// Reads one JSON object: parameters by name, some of them perhaps under `advanced`, and perhaps the `version`; or lines
    /// of a name and a value. Without requests: lines.
    ///
    /// # Errors
    /// One sentence for each parameter that is unknown or wrong.
    pub fn from_json(json: &[u8]) -> Result<Self, ParametersError> {
        #[cfg(feature = "requests")]
        return Self::new(Parameters::from_json(json)?);
        #[cfg(not(feature = "requests"))]
        by_line::from_text(json).map(Self)
    }

    /// Reads a configuration: `keywords` by name, then `environment`, then the file that either names.
    ///
    /// # Errors
    /// As [`Self::from_json`].
    pub fn from_sources(
        keywords: &[(&str, &str)],
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ParametersError> {
        #[cfg(feature = "requests")]
        return Self::new(Parameters::from_sources(keywords, environment)?);
        #[cfg(not(feature = "requests"))]
        by_line::from_sources(keywords, environment).map(Self)
    }

    #[cfg(feature = "requests")]
    fn new(parameters: Parameters) -> Result<Self, ParametersError> {
        let mut broken = parameters.violations();
        broken.extend(parameters.recorded().err().into_iter().flatten());
        if broken.is_empty() { Ok(Self(parameters)) } else { Err(broken.into()) }
    }

    /// The same settings with this queue directory.
    #[must_use]
    pub fn with_queue_directory(&self, directory: &Path) -> Self {
        Self(self.0.with_queue_directory(directory))
    }

    /// Opens the queue.
    ///
    /// # Errors
    /// A sentence that names what cannot be created.
    pub fn open(&self) -> Result<Arc<Service>, String> {
        let mut queue = self.0.queue(self.0.resolved_queue_directory());
        queue.configuration = Some(self.0.configuration());
        #[cfg(feature = "requests")]
        queue.events.extend(request::fields::schemas());
        Service::open(queue)
    }

    /// Returns the settings of the requests of a service.
    ///
    /// # Errors
    /// A sentence that names the parameter: the file of the key cannot be used.
    #[cfg(feature = "requests")]
    pub fn observer(&self, _: &Service) -> Result<ObserverSettings, String> {
        self.0.observer(None)
    }
}

impl Deref for Settings {
    type Target = Parameters;

    fn deref(&self) -> &Parameters {
        &self.0
    }
}

/// A process's queue, and the thread that checks that listeners find it.
pub struct Service {
    pub producer: Arc<Producer>,
    /// The temporary overrides of an operator.
    pub runtime: Runtime,
    queue_check: QueueCheck,
}

impl Service {
    fn open(queue: QueueSettings) -> Result<Arc<Self>, String> {
        let (producer, runtime) = open_producer(queue)?;
        let service = Arc::new(Self { producer: Arc::new(producer), runtime, queue_check: QueueCheck::default() });
        service.queue_check.start(&service.producer).inspect_err(|_| {
            service.close(Duration::ZERO);
        })?;
        let child = Arc::downgrade(&service);
        service.producer.after_reopen(move || {
            child.upgrade().map(|service| service.queue_check.start(&service.producer));
        });
        Ok(service)
    }

    /// Begins requests whose records go to the queue.
    #[cfg(feature = "requests")]
    #[must_use]
    pub fn requests(&self, settings: ObserverSettings) -> Requests {
        Requests { producer: Arc::clone(&self.producer), runtime: self.runtime, settings, clock: WallClock::default() }
    }

    /// Waits until listeners have written everything accepted before this call, at most `deadline`. Returns whether it is.
    #[must_use]
    pub fn flush(&self, deadline: Duration) -> bool {
        self.producer.flush(deadline)
    }

    /// Refuses new records, and waits until listeners have written what is queued, at most `deadline`. Records that are
    /// left are counted as `shutdown_deadline` and stay in the queue file. Returns whether everything is written.
    pub fn close(&self, deadline: Duration) -> bool {
        let started = now_monotonic_nano();
        let Some(queue) = self.producer.last_queue(deadline) else { return true };
        self.queue_check.stop();
        let left = deadline.saturating_sub(Duration::from_nanos(now_monotonic_nano() - started));
        let drained = poll(queue.control, left, || self.producer.save_all());
        queue.finish(drained);
        drained
    }

    /// Begins again in a forked child: the parent's queue and thread are not its own.
    pub fn after_fork_in_child(&self) {
        self.queue_check.after_fork_in_child();
        self.producer.after_fork_in_child();
    }

    /// Reads this process's counts.
    #[must_use]
    pub fn counts(&self) -> Option<QueueCounts> {
        self.producer.queue().map(|queue| queue.file.counts())
    }
}
