//! The settings of a lane's service: its queue, its listener and its sinks.

use super::{Host, Settings, rules};
use crate::housekeeper::{Compression, HousekeepingSettings};
use crate::leader::ListenerSettings;
use crate::service::Service;
use crate::settings;
use crate::sink::file::{ChainSettings, DurableSettings, FileSinkConfig};
use crate::sink::{DeliverySettings, SinkSettings};
use lines::catalogue::Semconv;
use parameters::keys;
use queue::producer::QueueSettings;
use request::budget::Budget;
use ring::RECORD_HEAD_WORDS;
use segments::chain::Algorithm;
use segments::retention::Limits;
use segments::rotation::Rotations;
use segments::segment;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// In the header of segments with the unreleased names: `schema_url` has the last published version.
const NEXT: &str = ",\"semconv\":\"next\"";
/// Directory of the audit lane below the queue directory, and below `directory` where `audit_directory` is empty.
const AUDIT: &str = "audit";
/// Who watches a console sees a record within this time.
const CONSOLE_INTERVAL: Duration = Duration::from_millis(100);
/// Size of the queue for a listener's own reports in a process that only listens: the smallest allowed.
const OWN_QUEUE_BYTES: u64 = 64 << 10;

/// Which of the two queues of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Requests, events and application records.
    Fast,
    /// Records that are on the device before the caller continues.
    Audit,
}

impl Lane {
    /// The lane with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "fast" => Some(Self::Fast),
            "audit" => Some(Self::Audit),
            _ => None,
        }
    }
}

/// The role of a process in its queue directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It produces records, and listens if the parameter `listener` is `thread`.
    Serves,
    /// It listens for other processes, whatever `listener` is, and produces only the listener's own reports.
    OnlyListens,
}

/// All settings of a lane's service.
pub struct LaneSettings {
    pub queue: QueueSettings,
    pub listener: ListenerSettings,
    pub sinks: DeliverySettings,
    pub runs_listener: bool,
    /// Records per second that the process may write; 0: without limit.
    pub budget_records_s: u32,
}

impl LaneSettings {
    /// Opens the service.
    ///
    /// # Errors
    /// As [`Service::open`].
    pub fn open(self) -> Result<Arc<Service>, String> {
        let service = Service::open(self.queue, self.listener, self.sinks, self.runs_listener)?;
        if self.budget_records_s > 0 {
            // Nothing is registered yet, so the budget counts for all records.
            let _ = service.budget.set(Arc::new(Budget::new(self.budget_records_s)));
        }
        Ok(service)
    }
}

impl Settings {
    /// Returns the settings of a lane. With `claims`, its queue directory may belong to no other configuration. `store` is
    /// the audit lane's sink where `audit_sink` is a database, which the host program writes.
    ///
    /// # Errors
    /// A sentence that names the parameter: a key file cannot be used, or the queue directory or the store is missing.
    pub fn lane(
        &self,
        lane: Lane,
        role: Role,
        claims: bool,
        store: Option<SinkSettings>,
    ) -> Result<LaneSettings, String> {
        let directory = self.queue_directory(lane)?;
        let configuration = claims.then(|| self.configuration());
        let resource = self.resource(role, &directory, &Host::read(), |name| std::env::var(name).ok()).member();
        let semconv = if self.values.semconv == "next" { NEXT } else { "" };
        let origin = segment::origin(&directory, configuration.as_deref()) + semconv + &resource;
        let segments = FileSinkConfig { origin, ..self.segments(lane)? };
        let sinks = self.sinks(lane, &segments, store)?;
        let has_console = sinks.additional.iter().any(|sink| matches!(sink, SinkSettings::Console { .. }));
        let listener = self.listener(lane)?;
        let slowest = if has_console { CONSOLE_INTERVAL } else { listener.flush_interval };
        let listener = ListenerSettings {
            queue_directory: directory.clone(),
            flush_interval: listener.flush_interval.min(slowest),
            housekeeping: self.housekeeping(lane, &sinks, segments),
            line_end: if self.values.resource_on_lines { resource } else { String::new() },
            ..listener
        };
        let is_limited = lane == Lane::Fast && role == Role::Serves;
        Ok(LaneSettings {
            queue: QueueSettings { configuration, ..self.queue(lane, role, directory) },
            listener,
            sinks,
            runs_listener: role == Role::OnlyListens || self.listens(),
            budget_records_s: if is_limited { self.values.budget_records_s } else { 0 },
        })
    }

    /// Returns the most records that can wait in a queue of either lane: the smallest has a head and nothing else.
    #[must_use]
    pub fn most_waiting(&self) -> u64 {
        self.queue_bytes.max(self.values.audit_queue_bytes) / (u64::from(RECORD_HEAD_WORDS) * 8)
    }

    /// The key of the audit chain; None: there is none.
    ///
    /// # Errors
    /// A sentence that names the parameter: its file cannot be used.
    pub fn audit_chain_key(&self) -> Result<Option<[u8; 32]>, String> {
        let file = self.values.audit_chain_key_file.as_deref().filter(|_| self.values.audit_chain != "off");
        keys::chain_key(file)
    }

    fn queue_directory(&self, lane: Lane) -> Result<PathBuf, String> {
        let directory = self.parameters.queue_directory.clone().ok_or("queue_directory: must be named")?;
        Ok(match lane {
            Lane::Fast => directory,
            Lane::Audit => directory.join(AUDIT),
        })
    }

    fn queue(&self, lane: Lane, role: Role, directory: PathBuf) -> QueueSettings {
        let mut queue = self.parameters.queue(directory);
        queue.events = request::fields::schemas();
        if lane == Lane::Audit {
            queue.queue_bytes = self.values.audit_queue_bytes;
            queue.in_flight_slots = 0;
            // Records of every level may fill it.
            queue.overflow_info_ratio = 1.0;
        }
        if role == Role::OnlyListens {
            queue.queue_bytes = OWN_QUEUE_BYTES;
            queue.in_flight_slots = 0;
        }
        queue.max_record_bytes = self.max_record_bytes.min(queue.queue_bytes / 4) as u32;
        queue
    }

    /// Everything except the directory and the housekeeping.
    fn listener(&self, lane: Lane) -> Result<ListenerSettings, String> {
        let values = &self.values;
        let (flush_interval, flush_records, hash_key) = match lane {
            Lane::Fast => {
                let hash_key = keys::hash_key(self.capture_hash_key_file.as_deref())?;
                (values.flush_interval_s, values.flush_records, hash_key)
            }
            Lane::Audit => (values.audit_commit_interval_s, values.audit_commit_records, None),
        };
        Ok(ListenerSettings {
            queue_directory: PathBuf::new(),
            flush_interval,
            flush_records,
            flush_bytes: self.flush_bytes as usize,
            housekeeping: None,
            redaction: self.redaction.clone(),
            hash_key,
            semconv: Semconv::named(&values.semconv),
            provider: values.provider_name.clone(),
            tenants: values.metrics_tenants.clone(),
            line_end: String::new(),
        })
    }

    /// Everything except the origin of the records.
    fn segments(&self, lane: Lane) -> Result<FileSinkConfig, String> {
        let (values, name) = (&self.values, self.service_name());
        let (dir, prefix, durable) = match lane {
            Lane::Fast => (self.parameters.directory.clone(), name.to_owned(), None),
            Lane::Audit => (self.audit_directory(), format!("{name}-{AUDIT}"), Some(self.durable()?)),
        };
        Ok(FileSinkConfig {
            dir,
            prefix,
            boot_id: String::new(),
            rotate_bytes: values.rotate_bytes,
            rotate_interval: values.rotate_interval_s,
            writeback_bytes: values.writeback_bytes,
            durable,
            origin: String::new(),
            rotations: (self.limits(lane).quota_bytes > 0).then(Rotations::default),
        })
    }

    fn durable(&self) -> Result<DurableSettings, String> {
        // `off` names no algorithm.
        let algorithm = Algorithm::named(&self.values.audit_chain);
        let key = self.audit_chain_key()?;
        Ok(DurableSettings { chain: algorithm.map(|algorithm| ChainSettings { algorithm, key }) })
    }

    fn sinks(
        &self,
        lane: Lane,
        segments: &FileSinkConfig,
        store: Option<SinkSettings>,
    ) -> Result<DeliverySettings, String> {
        let values = &self.values;
        let sink = |parameter: &str, text: &str| {
            SinkSettings::parse(text, segments).ok_or_else(|| format!("{parameter}={text:?}: names no sink"))
        };
        let (primary, fallback, additional) = match lane {
            Lane::Fast => {
                let additional = values.additional_sinks.iter().map(|text| sink("additional_sinks", text));
                let additional = additional.chain(self.console().map(Ok));
                let fallback = rules::fallback(values).map(|text| sink("fallback", &text)).transpose()?;
                (sink("sink", &values.sink)?, fallback, additional.collect::<Result<_, _>>()?)
            }
            Lane::Audit => match store {
                Some(store) => (store, None, Vec::new()),
                None => (sink("audit_sink", &values.audit_sink)?, None, Vec::new()),
            },
        };
        let fallback_delay = values.fallback_delay_s;
        let buffer_bytes = values.sink_buffer_bytes;
        Ok(DeliverySettings { primary, fallback, fallback_delay, additional, buffer_bytes })
    }

    fn console(&self) -> Option<SinkSettings> {
        settings::console(&self.values.console, std::io::stderr().is_terminal(), |name| std::env::var(name).ok())
    }

    fn housekeeping(
        &self,
        lane: Lane,
        sinks: &DeliverySettings,
        segments: FileSinkConfig,
    ) -> Option<HousekeepingSettings> {
        let waits_for = (self.waits_for(lane), segments.dir);
        let (limits, compression) = (self.limits(lane), self.compression());
        let settings =
            HousekeepingSettings::new(sinks.directories(), &segments.prefix, limits, compression, waits_for)?;
        Some(HousekeepingSettings { rotations: segments.rotations.unwrap_or_default(), ..settings })
    }

    /// Audit segments are never removed.
    pub(super) fn limits(&self, lane: Lane) -> Limits {
        match lane {
            Lane::Fast => Limits { retention: self.values.retention_s, quota_bytes: self.values.quota_bytes },
            Lane::Audit => Limits { retention: Duration::ZERO, quota_bytes: 0 },
        }
    }

    fn compression(&self) -> Option<Compression> {
        let (level, keep_segments) = (self.values.compress_level, self.values.compress_keep_segments);
        (self.values.compress == "zstd").then_some(Compression { level, keep_segments })
    }

    /// The shippers that retention waits for: those configured, or the one that ships to `ship_to`.
    fn waits_for(&self, lane: Lane) -> Vec<String> {
        let named = self.values.retention_waits_for.clone();
        match (lane, self.values.ship_to.as_deref()) {
            (Lane::Audit, _) => Vec::new(),
            (Lane::Fast, Some(destination)) if named.is_empty() => {
                // The default name is the kind of the destination: `otlp` of `otlp+http://…`.
                let kind = destination.split([':', '+']).next().unwrap_or_default();
                vec![self.values.ship_name.as_deref().unwrap_or(kind).to_owned()]
            }
            (Lane::Fast, _) => named,
        }
    }
}
