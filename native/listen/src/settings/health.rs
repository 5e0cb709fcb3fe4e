//! The thresholds of health, and how long a process drains: further settings for a process that only listens.

use super::{Lane, Settings};
use crate::status::health::Limits;
use std::time::Duration;

impl Settings {
    /// The thresholds of a lane's health.
    #[must_use]
    pub fn health_limits(&self, lane: Lane) -> Limits {
        let number = |name: &str| self.values.number(name);
        let interval_s = number(match lane {
            Lane::Fast => "flush_interval_s",
            Lane::Audit => "audit_commit_interval_s",
        });
        Limits {
            backlog_records: number("health_backlog_records"),
            backlog_ratio: number("health_backlog_ratio"),
            pressured_ratio: number("health_pressured_ratio"),
            clear_ratio: number("health_clear_ratio"),
            oldest_age_s: interval_s + number("health_oldest_age_s"),
            stuck_after_s: number("stuck_after_s"),
        }
    }

    /// Whether processes with this configuration listen themselves.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.values.is("listener", "thread")
    }

    /// How long the end of a process may take.
    #[must_use]
    pub fn drain_deadline(&self) -> Duration {
        self.values.seconds("drain_deadline_s")
    }

    /// The longest time for which something can be changed at run time.
    #[must_use]
    pub fn control_limit_s(&self) -> f64 {
        self.values.number("control_limit_s")
    }

    /// The lanes that are on.
    #[must_use]
    pub fn lanes(&self) -> &'static [Lane] {
        if self.values.is("audit", "on") { &[Lane::Fast, Lane::Audit] } else { &[Lane::Fast] }
    }

    /// Whether a program outside of the core writes the audit lane.
    #[must_use]
    pub fn has_foreign_store(&self) -> bool {
        self.lanes().contains(&Lane::Audit) && !self.values.is("audit_sink", "file")
    }
}
