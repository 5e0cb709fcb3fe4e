//! A metric family: its name, what it means, and its samples.
//!
//! Names follow Prometheus's rules (base units, `_total`); the histograms of inference follow OpenTelemetry's GenAI
//! conventions 1.41. Clients get chunks, not tokens, and the names say so.

use crate::status::number::{go, python};
use lines::series::Exemplar;
use std::collections::HashMap;

/// What kind of numbers a family has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Never goes back.
    Counter,
    Gauge,
    /// Buckets that count all values up to their bound, the number of values, and their sum.
    Histogram,
    /// 1, with the information as labels.
    Info,
}

impl Kind {
    /// The name in OpenMetrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// Names and values.
pub type Labels = Vec<(&'static str, String)>;

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What follows the family's name.
    pub suffix: &'static str,
    pub labels: Labels,
    pub value: f64,
    pub exemplar: Option<Exemplar>,
}

/// A bucket of a histogram: its upper bound, the values up to it, and one of those in it.
pub(crate) type Bucket = (f64, f64, Option<Exemplar>);

/// A family. Its unit, if it has one, is the end of its name too.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Without `_total` or `_info`.
    pub name: &'static str,
    pub kind: Kind,
    /// Empty: it has none.
    pub unit: &'static str,
    pub help: &'static str,
    pub samples: Vec<Sample>,
}

impl Family {
    fn new(kind: Kind, name: &'static str, help: &'static str) -> Self {
        Self { name, kind, unit: "", help, samples: Vec::new() }
    }

    /// A counter without samples yet.
    #[must_use]
    pub fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Counter, name, help)
    }

    /// A gauge without samples yet.
    #[must_use]
    pub fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Gauge, name, help)
    }

    /// A histogram without samples yet.
    #[must_use]
    pub fn histogram(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Histogram, name, help)
    }

    /// A family whose labels carry the information.
    #[must_use]
    pub fn info(name: &'static str, help: &'static str, labels: Labels) -> Self {
        let mut family = Self::new(Kind::Info, name, help);
        family.push("_info", labels, 1.0, None);
        family
    }

    /// Gives it a unit.
    #[must_use]
    pub fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// Adds the only sample of a family without labels.
    #[must_use]
    pub fn value(mut self, value: f64) -> Self {
        self.add(Vec::new(), value);
        self
    }

    /// Adds a sample of a counter or gauge.
    pub fn add(&mut self, labels: Labels, value: f64) {
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        self.push(suffix, labels, value, None);
    }

    /// Adds a histogram; the last bucket has no bound, and counts all.
    pub fn add_buckets(&mut self, labels: &Labels, buckets: impl IntoIterator<Item = Bucket>, sum: f64) {
        let mut all = 0.0;
        for (bound, count, exemplar) in buckets {
            let bound = if bound.is_infinite() { go(bound) } else { python(bound) };
            let with_bound = labels.iter().cloned().chain([("le", bound)]).collect();
            self.push("_bucket", with_bound, count, exemplar);
            all = count;
        }
        self.push("_count", labels.clone(), all, None);
        self.push("_sum", labels.clone(), sum, None);
    }

    fn push(&mut self, suffix: &'static str, labels: Labels, value: f64, exemplar: Option<Exemplar>) {
        self.samples.push(Sample { suffix, labels, value, exemplar });
    }
}

// The families of several queue directories as one text: each sample says of which directory it is.

/// The label with the name of the directory.
const LABEL: &str = "directory";

/// Joins the families of directories, each with its name. A family stands once, where it is first met.
#[must_use]
pub fn joined(directories: impl IntoIterator<Item = (String, Vec<Family>)>) -> Vec<Family> {
    let (mut all, mut places) = (Vec::<Family>::new(), HashMap::new());
    for (name, families) in directories {
        for mut family in families {
            family.samples.iter_mut().for_each(|sample| sample.labels.push((LABEL, name.clone())));
            match places.get(family.name) {
                Some(place) => {
                    let known: &mut Family = &mut all[*place];
                    known.samples.append(&mut family.samples);
                }
                None => {
                    places.insert(family.name, all.len());
                    all.push(family);
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{Family, joined};
    use crate::status::metrics::text::{choose, render};

    #[test]
    fn a_family_stands_once_with_the_samples_of_every_directory() {
        let of = |records| vec![Family::counter("read", "Records").value(records), Family::gauge("queues", "Queues")];
        let families = joined([("chat/a".to_owned(), of(1.0)), ("chat/\"b".to_owned(), of(2.0))]);
        let text = String::from_utf8(render(&families, choose("").format)).unwrap();
        assert_eq!(
            text,
            "# HELP read_total Records\n# TYPE read_total counter\nread_total{directory=\"chat/a\"} 1.0\n\
             read_total{directory=\"chat/\\\"b\"} 2.0\n# HELP queues Queues\n# TYPE queues gauge\n"
        );
    }
}
