//! The rules that several parameters of a producer must fulfil together.

use crate::values::Values;

/// Bytes of a request record besides captures and timeline: ids, method, route, counters, tags, the engine's facts.
const REQUEST_RECORD_OVERHEAD_BYTES: i64 = 5120;
const GAP_BYTES: i64 = 4;
const CAPTURES: [&str; 2] = ["capture_input", "capture_output"];

/// Returns a sentence for each broken rule; it begins with the parameter to change.
pub fn violations(values: &Values) -> Vec<String> {
    let found = [record_in_queue(values), facts_in_text(values), record_of_request(values)];
    found.into_iter().flatten().chain(hashes_without_key(values)).collect()
}

/// Most bytes of a request's body and of an answer's that are copied. The modes `full` and `hash` share what
/// `max_record_bytes` leaves, which is negative where that is too small.
pub fn captured_bytes(values: &Values) -> [i64; 2] {
    let fixed = CAPTURES.map(|name| match values.text(name) {
        "off" => Some(facts_bytes(values)),
        "truncated" => Some(facts_bytes(values).max(bytes(values, "capture_text_bytes"))),
        _ => None,
    });
    let taken: i64 = fixed.iter().flatten().sum::<i64>() + body_bytes(values);
    let sharing = fixed.iter().filter(|size| size.is_none()).count() as i64;
    let room = bytes(values, "max_record_bytes") - least_record_bytes(values) - taken;
    fixed.map(|size| size.unwrap_or_else(|| room.div_euclid(sharing)))
}

/// Most bytes of a request's body that are kept to be written as they are.
pub fn body_bytes(values: &Values) -> i64 {
    if values.is("capture_body", "raw") { bytes(values, "capture_text_bytes") } else { 0 }
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
    CAPTURES.iter().any(|name| values.is(name, "truncated")) || body_bytes(values) > 0
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
    let least = least_record_bytes(values) + captures + body_bytes(values);
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
