//! Families as text: OpenMetrics 1.0.0, or Prometheus's text format 0.0.4; byte for byte as prometheus_client writes
//! them.

use super::accept::Format;
use super::family::{Family, Kind, Sample};
use crate::status::number::{go, python};
use lines::series::Exemplar;
use std::borrow::Cow;
use std::fmt::Write;

/// Writes the families.
#[must_use]
pub fn render(families: &[Family], format: Format) -> Vec<u8> {
    let mut text = Text { out: String::with_capacity(1 << 16), format };
    families.iter().for_each(|family| text.family(family));
    if format.is_openmetrics {
        text.out.push_str("# EOF\n");
    }
    text.out.into_bytes()
}

struct Text {
    out: String,
    format: Format,
}

impl Text {
    fn family(&mut self, family: &Family) {
        let (name, kind) = self.head(family);
        let name = self.name(&name).into_owned();
        // The texts come from this library: nothing in them has to be escaped.
        self.line(format_args!("# HELP {name} {}", family.help));
        self.line(format_args!("# TYPE {name} {kind}"));
        if self.format.is_openmetrics && !family.unit.is_empty() {
            self.line(format_args!("# UNIT {name} {}", family.unit));
        }
        family.samples.iter().for_each(|sample| self.sample(family.name, sample));
    }

    /// The name and the kind of a family; both differ in the older format if it does not know the kind.
    fn head(&self, family: &Family) -> (String, &'static str) {
        match family.kind {
            Kind::Counter if !self.format.is_openmetrics => (format!("{}_total", family.name), family.kind.name()),
            Kind::Info if !self.format.is_openmetrics => (format!("{}_info", family.name), Kind::Gauge.name()),
            kind => (family.name.to_owned(), kind.name()),
        }
    }

    fn sample(&mut self, family: &str, sample: &Sample) {
        let name = self.name(&format!("{family}{}", sample.suffix)).into_owned();
        let labels = self.labels(sample);
        let exemplar = sample.exemplar.filter(|_| self.format.is_openmetrics).map(exemplar_text).unwrap_or_default();
        self.line(format_args!("{name}{labels} {}{exemplar}", go(sample.value)));
    }

    /// The labels in the order of their names.
    fn labels(&self, sample: &Sample) -> String {
        let mut labels: Vec<_> = sample.labels.iter().collect();
        labels.sort_by_key(|(name, _)| *name);
        let one = |(name, value): &(&'static str, String)| format!("{}=\"{}\"", self.name(name), escaped(value));
        let labels: Vec<String> = labels.into_iter().map(one).collect();
        if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
    }

    fn name<'a>(&self, name: &'a str) -> Cow<'a, str> {
        if self.format.doubles_underscores { name.replace('_', "__").into() } else { name.into() }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "{line}");
    }
}

fn exemplar_text(exemplar: Exemplar) -> String {
    let Exemplar { trace_id, span_id, value, .. } = exemplar;
    let unix_s = python(exemplar.unix_s());
    format!(" # {{span_id=\"{span_id:016x}\",trace_id=\"{trace_id:032x}\"}} {} {unix_s}", go(value))
}

fn escaped(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '\n', '"']) {
        return value.into();
    }
    value.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"").into()
}
