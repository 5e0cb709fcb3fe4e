//! The thresholds of health, and how long a process drains: further settings for a process that only listens.

use super::{Lane, Settings};
use crate::status::health::Limits;

impl Settings {
    /// The thresholds of a lane's health.
    #[must_use]
    pub fn health_limits(&self, lane: Lane) -> Limits {
        let values = &self.values;
        let interval = match lane {
            Lane::Fast => values.flush_interval_s,
            Lane::Audit => values.audit_commit_interval_s,
        };
        Limits {
            backlog_records: values.health_backlog_records,
            backlog_ratio: values.health_backlog_ratio,
            pressured_ratio: values.health_pressured_ratio,
            clear_ratio: values.health_clear_ratio,
            oldest_age_s: interval.as_secs_f64() + values.health_oldest_age_s,
            stuck_after_s: values.stuck_after_s,
        }
    }

    /// Whether processes with this configuration listen themselves.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.values.listener == "thread"
    }

    /// The lanes that are on.
    #[must_use]
    pub fn lanes(&self) -> &'static [Lane] {
        if self.audit.is_some() { &[Lane::Fast, Lane::Audit] } else { &[Lane::Fast] }
    }

    /// Whether a program outside of the core writes the audit lane.
    #[must_use]
    pub fn has_foreign_store(&self) -> bool {
        self.audit.as_ref().is_some_and(|audit| audit.sink != "file")
    }
}
