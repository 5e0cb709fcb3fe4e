//! W3C `tracestate`: the members that earlier tracing systems want passed on, and OpenTelemetry's member.
//!
//! Rules of Trace Context Level 2: the lines of a request are one list, at most 32 members, each `key=value`. A list
//! that breaks a rule is dropped whole; it never affects the `traceparent` beside it. Of members with the same key the
//! first one is kept, since the latest writer puts its own in front. A list beyond [`MAX_BYTES`] is shortened as the
//! recommendation says: whole members, the long ones first, then from the end.

/// Longest list that is passed on; the recommendation asks for at least 512.
pub const MAX_BYTES: usize = 2048;
const MAX_MEMBERS: usize = 32;
const MAX_KEY_BYTES: usize = 256;
const MAX_VALUE_BYTES: usize = 256;
/// Members longer than this are removed first if a list is too long.
const LONG_MEMBER_BYTES: usize = 128;
/// Hex digits of the 56-bit values of consistent probability sampling.
const HEX_DIGITS: usize = 14;

/// A valid list, joined by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceState(Box<str>);

impl TraceState {
    /// Joins the header's lines in their order; None if they are empty or break a rule.
    pub fn from_lines<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut members: Vec<&str> = Vec::new();
        let mut count = 0;
        for member in lines.flat_map(|line| line.split(|byte| *byte == b',')).map(trim_blanks) {
            if member.is_empty() {
                continue;
            }
            count += 1;
            let member = (count <= MAX_MEMBERS).then(|| checked(member)).flatten()?;
            if !members.iter().any(|known| key(known) == key(member)) {
                members.push(member);
            }
        }
        shorten(&mut members);
        (!members.is_empty()).then(|| Self(members.join(",").into()))
    }

    /// The list as one header value.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The list with this value of OpenTelemetry's member `ot` in front, instead of the caller's.
    #[must_use]
    pub(crate) fn with_probability(&self, value: &str) -> String {
        let own = format!("ot={value}");
        let others = self.0.split(',').filter(|member| key(member) != "ot");
        let mut members: Vec<&str> = std::iter::once(own.as_str()).chain(others).take(MAX_MEMBERS).collect();
        shorten(&mut members);
        members.join(",")
    }

    /// The values of OpenTelemetry's member `ot`: the rejection threshold `th` and the random value `rv`, each if
    /// valid.
    #[must_use]
    pub fn probability(&self) -> (Option<u64>, Option<u64>) {
        let entry = self.0.split(',').find_map(|member| member.strip_prefix("ot="));
        let value_of = |name| {
            let fields = entry?.split(';');
            fields.filter_map(|field| field.split_once(':')).find(|(known, _)| *known == name).map(|(_, value)| value)
        };
        let threshold = value_of("th").and_then(padded_hex);
        let random = value_of("rv").filter(|value| value.len() == HEX_DIGITS).and_then(padded_hex);
        (threshold, random)
    }
}

/// The value of `rv` for a random value below 2^56.
#[must_use]
pub(crate) fn encode_random(random: u64) -> String {
    format!("{random:0HEX_DIGITS$x}")
}

/// The value of `th` for a rejection threshold below 2^56: hex digits without the zeros at the end.
#[must_use]
pub fn encode_threshold(threshold: u64) -> String {
    let digits = format!("{threshold:0HEX_DIGITS$x}");
    let significant = digits.trim_end_matches('0').len().max(1);
    digits[..significant].to_owned()
}

/// Removes the characters that HTTP calls optional white space.
pub(crate) fn trim_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

fn checked(member: &[u8]) -> Option<&str> {
    let member = std::str::from_utf8(member).ok()?;
    let (key, value) = member.split_once('=')?;
    (is_key(key.as_bytes()) && is_value(value.as_bytes())).then_some(member)
}

fn is_key(key: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let rest_is_valid = |rest: &[u8]| rest.iter().all(|byte| is_plain(byte) || b"_-*/@".contains(byte));
    key.len() <= MAX_KEY_BYTES && key.split_first().is_some_and(|(first, rest)| is_plain(first) && rest_is_valid(rest))
}

fn is_value(value: &[u8]) -> bool {
    (1..=MAX_VALUE_BYTES).contains(&value.len())
        && value.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'=')
}

fn key(member: &str) -> &str {
    member.split('=').next().unwrap_or(member)
}

fn shorten(members: &mut Vec<&str>) {
    while members.iter().map(|member| member.len() + 1).sum::<usize>() > MAX_BYTES + 1 {
        let long = members.iter().rposition(|member| member.len() > LONG_MEMBER_BYTES);
        members.remove(long.unwrap_or(members.len() - 1));
    }
}

/// Up to 14 lowercase hex digits; the ones left out at the end are zeros.
fn padded_hex(digits: &str) -> Option<u64> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let valid = (1..=HEX_DIGITS).contains(&digits.len()) && digits.bytes().all(is_digit);
    let value = valid.then(|| u64::from_str_radix(digits, 16).ok()).flatten()?;
    Some(value << (4 * (HEX_DIGITS - digits.len())))
}
