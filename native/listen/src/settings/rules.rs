//! The rules that several parameters of a listener or a server must fulfil together.

use super::resource;
use parameters::values::Values;
use queue::published::sinks::SINKS;
use std::collections::HashMap;

/// Paths at which the middleware answers itself, or adds to the answer.
pub const ROUTES: [&str; 4] = ["health_path", "liveness_path", "wrap_health_path", "metrics_path"];

/// Returns a sentence for each broken rule; it begins with the parameter to change.
pub fn violations(values: &Values) -> Vec<String> {
    let quota = quota(values).into_iter();
    let resource = resource::violation(values).into_iter();
    quota
        .chain(resource)
        .chain(routes_in_one_place(values))
        .chain(sinks_in_one_place(values))
        .chain(console(values))
        .collect()
}

/// Standard error belongs to a console, and the table of sinks has a row for each.
fn console(values: &Values) -> Option<String> {
    let console = values.text("console");
    let has_fallback = fallback(values).is_some();
    let most = SINKS - 2 - usize::from(has_fallback);
    let is_on = console == "on";
    if is_on && values.is("fallback", "stderr") {
        return Some("console='on': writes to the same place as fallback, stderr".to_owned());
    }
    let additional = values.texts("additional_sinks").len();
    (console != "off" && additional > most).then(|| {
        format!("additional_sinks: has {additional} sinks; with fallback and console='{console}' at most {most}")
    })
}

fn routes_in_one_place(values: &Values) -> impl Iterator<Item = String> {
    let pairs = ROUTES.into_iter().enumerate();
    let pairs = pairs.flat_map(|(position, name)| ROUTES[position + 1..].iter().map(move |other| (name, *other)));
    pairs.filter_map(|(name, other)| {
        let path = values.maybe_text(name).filter(|path| values.maybe_text(other) == Some(path))?;
        Some(format!("{name}='{path}': must be another path than {other}"))
    })
}

/// Two sinks with one directory or stream would write into each other's output.
fn sinks_in_one_place(values: &Values) -> Vec<String> {
    let one = |name: &str, sink: Option<String>| sink.map(|sink| (name.to_owned(), sink));
    let more = values.texts("additional_sinks");
    let more = more.into_iter().map(|sink| (format!("additional_sinks='{sink}'"), sink));
    let sinks = [one("sink", Some(values.text("sink").to_owned())), one("fallback", fallback(values))];
    let (mut taken, mut found) = (HashMap::new(), Vec::new());
    for (name, sink) in sinks.into_iter().flatten().chain(more) {
        let place = place(values, &sink);
        match taken.get(&place) {
            Some(other) => found.push(format!("{name}: writes to the same place as {other}, {place}")),
            None => drop(taken.insert(place, name)),
        }
    }
    found
}

fn place(values: &Values, sink: &str) -> String {
    if sink != "file" {
        return sink.trim_end_matches('/').to_owned();
    }
    let directory = values.text("directory");
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.into());
    format!("file://{}", absolute.display().to_string().trim_end_matches('/'))
}

/// The fallback as a sink: `stderr` or `file:///directory`.
pub fn fallback(values: &Values) -> Option<String> {
    match values.text("fallback") {
        "none" => None,
        "stderr" => Some("stderr".to_owned()),
        directory => Some(format!("file://{directory}")),
    }
}

fn quota(values: &Values) -> Option<String> {
    let (quota, rotation) = (values.whole("quota_bytes"), values.whole("rotate_bytes"));
    let least = 2 * rotation;
    (0 < quota && quota < least).then(|| {
        format!(
            "quota_bytes={quota}: must be 0 or at least {least}, for a live and a sealed segment of \
             rotate_bytes={rotation}; raise it or lower that"
        )
    })
}
