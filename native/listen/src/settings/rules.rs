//! The rules that several parameters of a listener or a server must fulfil together.

use super::resource;
use parameters::Parameters;
use parameters::values::Values;
use queue::published::sinks::SINKS;
use std::collections::HashMap;

/// Paths at which the middleware answers itself, or adds to the answer.
pub fn routes(values: &Values) -> [(&'static str, Option<&str>); 4] {
    [
        ("health_path", values.health_path.as_deref()),
        ("liveness_path", values.liveness_path.as_deref()),
        ("wrap_health_path", values.wrap_health_path.as_deref()),
        ("metrics_path", values.metrics_path.as_deref()),
    ]
}

/// Returns a sentence for each broken rule; it begins with the parameter to change.
pub fn violations(parameters: &Parameters) -> Vec<String> {
    let values = &parameters.values;
    let quota = quota(values).into_iter();
    let resource = resource::violation(values).into_iter();
    quota
        .chain(resource)
        .chain(routes_in_one_place(values))
        .chain(sinks_in_one_place(parameters))
        .chain(console(values))
        .collect()
}

/// Standard error belongs to a console, and the table of sinks has a row for each.
fn console(values: &Values) -> Option<String> {
    let console = &values.console;
    let has_fallback = fallback(values).is_some();
    let most = SINKS - 2 - usize::from(has_fallback);
    let is_on = console == "on";
    if is_on && values.fallback == "stderr" {
        return Some("console='on': writes to the same place as fallback, stderr".to_owned());
    }
    let additional = values.additional_sinks.len();
    (console != "off" && additional > most).then(|| {
        format!("additional_sinks: has {additional} sinks; with fallback and console='{console}' at most {most}")
    })
}

fn routes_in_one_place(values: &Values) -> impl Iterator<Item = String> + use<'_> {
    let routes = routes(values);
    let pairs =
        (0..routes.len()).flat_map(move |at| routes.into_iter().skip(at + 1).map(move |other| (routes[at], other)));
    pairs.filter_map(|((name, path), (other, of_other))| {
        let path = path.filter(|path| of_other == Some(path))?;
        Some(format!("{name}='{path}': must be another path than {other}"))
    })
}

/// Two sinks with one directory or stream would write into each other's output.
fn sinks_in_one_place(parameters: &Parameters) -> Vec<String> {
    let values = &parameters.values;
    let one = |name: &str, sink: Option<String>| sink.map(|sink| (name.to_owned(), sink));
    let more = values.additional_sinks.iter().cloned();
    let more = more.map(|sink| (format!("additional_sinks='{sink}'"), sink));
    let sinks = [one("sink", Some(values.sink.clone())), one("fallback", fallback(values))];
    let (mut taken, mut found) = (HashMap::new(), Vec::new());
    for (name, sink) in sinks.into_iter().flatten().chain(more) {
        let place = place(parameters, &sink);
        match taken.get(&place) {
            Some(other) => found.push(format!("{name}: writes to the same place as {other}, {place}")),
            None => drop(taken.insert(place, name)),
        }
    }
    found
}

fn place(parameters: &Parameters, sink: &str) -> String {
    if sink != "file" {
        return sink.trim_end_matches('/').to_owned();
    }
    let directory = &parameters.directory;
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.clone());
    format!("file://{}", absolute.display().to_string().trim_end_matches('/'))
}

/// The fallback as a sink: `stderr` or `file:///directory`.
pub fn fallback(values: &Values) -> Option<String> {
    match values.fallback.as_str() {
        "none" => None,
        "stderr" => Some("stderr".to_owned()),
        directory => Some(format!("file://{directory}")),
    }
}

fn quota(values: &Values) -> Option<String> {
    let (quota, rotation) = (values.quota_bytes, values.rotate_bytes);
    let least = 2 * rotation;
    (0 < quota && quota < least).then(|| {
        format!(
            "quota_bytes={quota}: must be 0 or at least {least}, for a live and a sealed segment of \
             rotate_bytes={rotation}; raise it or lower that"
        )
    })
}
