//! The rules that several parameters must fulfil together.

use super::values::Values;
use request::callers::Callers;
use std::collections::HashMap;

/// Bytes of a request record besides captures and timeline: ids, method, route, counters, tags, the engine's facts.
const REQUEST_RECORD_OVERHEAD_BYTES: i64 = 5120;
const GAP_BYTES: i64 = 4;
/// Paths at which the middleware answers itself, or adds to the answer.
pub const ROUTES: [&str; 4] = ["health_path", "liveness_path", "wrap_health_path", "metrics_path"];
const CAPTURES: [&str; 2] = ["capture_input", "capture_output"];

/// Returns a sentence for each broken rule; it begins with the parameter to change.
pub fn violations(values: &Values) -> Vec<String> {
    let found = [record_in_queue(values), facts_in_text(values), record_of_request(values), quota(values)];
    let found = found.into_iter().flatten();
    found
        .chain(hashes_without_key(values))
        .chain(routes_in_one_place(values))
        .chain(sinks_in_one_place(values))
        .collect()
}

/// Returns the callers that have the form of a network but are not one: bits of a host are set, or the prefix is too
/// long.
pub fn invalid_callers(values: &Values) -> impl Iterator<Item = String> {
    values.texts("trusted_callers").into_iter().filter(|caller| Callers::parse(&[caller]).is_err())
}

/// Most bytes of a request's body and of an answer's that are copied. The modes `full` and `hash` share what
/// `max_record_bytes` leaves, which is negative where that is too small.
pub fn captured_bytes(values: &Values) -> [i64; 2] {
    let fixed = CAPTURES.map(|name| match values.text(name) {
        "off" => Some(facts_bytes(values)),
        "truncated" => Some(facts_bytes(values).max(bytes(values, "capture_text_bytes"))),
        _ => None,
    });
    let taken: i64 = fixed.iter().flatten().sum();
    let sharing = fixed.iter().filter(|size| size.is_none()).count() as i64;
    let room = bytes(values, "max_record_bytes") - least_record_bytes(values) - taken;
    fixed.map(|size| size.unwrap_or_else(|| room.div_euclid(sharing)))
}

fn bytes(values: &Values, name: &str) -> i64 {
    values.whole(name).cast_signed()
}

fn facts_bytes(values: &Values) -> i64 {
    bytes(values, "capture_head_bytes") + bytes(values, "capture_tail_bytes")
}

/// Of a request record without its captures.
fn least_record_bytes(values: &Values) -> i64 {
    REQUEST_RECORD_OVERHEAD_BYTES + GAP_BYTES * bytes(values, "chunk_timeline_limit")
}

fn record_in_queue(values: &Values) -> Option<String> {
    let (record, queue) = (values.whole("max_record_bytes"), values.whole("queue_bytes"));
    let largest = queue / 4;
    let sentence = || format!("max_record_bytes={record}: must be at most {largest}, a quarter of queue_bytes={queue}");
    (record > largest).then(sentence)
}

fn facts_in_text(values: &Values) -> Option<String> {
    let [text, head, tail] =
        ["capture_text_bytes", "capture_head_bytes", "capture_tail_bytes"].map(|name| values.whole(name));
    let least = 2 * head.max(tail);
    (is_cut(values) && text < least).then(|| {
        format!(
            "capture_text_bytes={text}: must be at least {least}, twice the larger of capture_head_bytes={head} and \
             capture_tail_bytes={tail}, which are copied in any case; raise it or lower those"
        )
    })
}

fn is_cut(values: &Values) -> bool {
    CAPTURES.iter().any(|name| values.is(name, "truncated"))
}

fn hashes_without_key(values: &Values) -> impl Iterator<Item = String> {
    let is_missing = values.maybe_text("capture_hash_key_file").is_none();
    let hashed = CAPTURES.into_iter().filter(move |name| is_missing && values.is(name, "hash"));
    hashed.map(|name| format!("{name}='hash': needs capture_hash_key_file"))
}

fn record_of_request(values: &Values) -> Option<String> {
    let record = bytes(values, "max_record_bytes");
    let facts = facts_bytes(values);
    let captures: i64 = captured_bytes(values).map(|size| size.max(facts)).iter().sum();
    let least = least_record_bytes(values) + captures;
    let said = |name: &str| format!("{name}={}", values.whole(name));
    let text = if is_cut(values) { format!(" and {}", said("capture_text_bytes")) } else { String::new() };
    (record < least).then(|| {
        format!(
            "max_record_bytes={record}: must be at least {least} to hold a request record with {}, {} and {}{text}; raise \
             it or lower those",
            said("chunk_timeline_limit"),
            said("capture_head_bytes"),
            said("capture_tail_bytes"),
        )
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
