//! Families as text: OpenMetrics 1.0.0, or Prometheus's text format 0.0.4; byte for byte as prometheus_client writes
//! them.

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

/// How the metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    /// OpenMetrics 1.0.0, with exemplars; else Prometheus's text format.
    pub is_openmetrics: bool,
    /// With each underscore of a name twice, as the escaping `dots` requires. The other kinds of escaping leave these
    /// names as they are, since nothing in them needs it.
    pub doubles_underscores: bool,
}

/// A format and its content type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub format: Format,
    pub content_type: String,
}

const OPENMETRICS: &str = "application/openmetrics-text";
/// The oldest version that has a content type of its own.
const FIRST_VERSION: &[u64] = &[1, 0, 0];

/// Chooses by the header's value; empty: there was none.
#[must_use]
pub fn choose(accept: &str) -> Chosen {
    let plain = || chosen(false, "", "text/plain; version=0.0.4; charset=utf-8".to_owned());
    accept.split(',').find_map(choose_one).unwrap_or_else(plain)
}

fn choose_one(accepted: &str) -> Option<Chosen> {
    let mut parts = accepted.split(';');
    let kind = parts.next()?.trim();
    let (version, escaping) = (parameter(parts.clone(), "version"), escaping(parts));
    let is_known =
        version.is_some_and(|version| parsed(version).is_some_and(|parsed| parsed.as_slice() >= FIRST_VERSION));
    match (kind, version.filter(|version| !version.is_empty())) {
        (OPENMETRICS, None) => Some(chosen(true, "", format!("{OPENMETRICS}; version=1.0.0; charset=utf-8"))),
        (OPENMETRICS, Some(version)) if is_known => {
            let kind = format!("{OPENMETRICS}; version={version}; charset=utf-8; escaping={escaping}");
            Some(chosen(true, escaping, kind))
        }
        ("text/plain", Some(_)) if is_known => {
            Some(chosen(false, escaping, format!("text/plain; version=1.0.0; charset=utf-8; escaping={escaping}")))
        }
        _ => None,
    }
}

fn chosen(is_openmetrics: bool, escaping: &str, content_type: String) -> Chosen {
    Chosen { format: Format { is_openmetrics, doubles_underscores: escaping == "dots" }, content_type }
}

fn escaping<'a>(parts: impl Iterator<Item = &'a str>) -> &'a str {
    let known = ["allow-utf-8", "underscores", "dots", "values"];
    parameter(parts, "escaping").filter(|name| known.contains(name)).unwrap_or("underscores")
}

fn parameter<'a>(mut parts: impl Iterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    parts.find_map(|part| part.trim().split_once('=').filter(|(key, _)| *key == name)).map(|(_, value)| value)
}

fn parsed(version: &str) -> Option<Vec<u64>> {
    let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    version.split('.').map(|part| Some(part).filter(is_number)?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[test]
    fn the_first_format_that_is_known_here_is_taken() {
        let openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        let plain = "text/plain; version=0.0.4; charset=utf-8";
        for (accept, content_type, doubles) in [
            ("", plain.to_owned(), false),
            ("*/*", plain.to_owned(), false),
            ("text/plain", plain.to_owned(), false),
            ("text/plain;version=0.0.4", plain.to_owned(), false),
            ("application/openmetrics-text", openmetrics.to_owned(), false),
            (" application/openmetrics-text ; q=1", openmetrics.to_owned(), false),
            ("application/openmetrics-text; version=", openmetrics.to_owned(), false),
            ("application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5", plain.to_owned(), false),
            ("application/openmetrics-text;version=1", plain.to_owned(), false),
            ("application/openmetrics-text;version=new", plain.to_owned(), false),
            ("application/openmetrics-text;version=1.0.0", format!("{openmetrics}; escaping=underscores"), false),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;q=0.5",
                format!("{openmetrics}; escaping=allow-utf-8"),
                false,
            ),
            ("application/openmetrics-text;escaping=dots;version=1.0.0", format!("{openmetrics}; escaping=dots"), true),
            (
                "text/plain;version=1.0.0;escaping=unheard-of",
                "text/plain; version=1.0.0; charset=utf-8; escaping=underscores".to_owned(),
                false,
            ),
        ] {
            let chosen = choose(accept);
            assert_eq!((chosen.content_type, chosen.format.doubles_underscores), (content_type, doubles), "{accept}");
            assert_eq!(chosen.format.is_openmetrics, choose(accept).content_type.starts_with("application"));
        }
    }
}
