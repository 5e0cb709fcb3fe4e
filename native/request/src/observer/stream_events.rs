//! The kind of a message in a stream of events. Only its first and last bytes are read, since the answer waits
//! meanwhile.

/// Whether a chunk is the event with which OpenAI-compatible servers end a failed stream, since its status is already
/// sent.
#[inline]
pub fn is_error_event(chunk: &[u8]) -> bool {
    // The first key of nearly all messages begins with another letter.
    if let Some([first, ..]) = chunk.strip_prefix(b"data: {\"") {
        return *first == b'e' && is_error_message(chunk);
    }
    matches!(chunk, [b'd' | b'e', ..]) && is_error_message(chunk)
}

#[inline(never)]
fn is_error_message(chunk: &[u8]) -> bool {
    match chunk.first() {
        Some(b'd') => chunk.strip_prefix(b"data:").is_some_and(is_error_object),
        Some(b'e') => chunk.strip_prefix(b"event:").is_some_and(|name| {
            let name = name.split(|byte| matches!(byte, b'\n' | b'\r')).next().unwrap_or_default().trim_ascii();
            matches!(name, b"error" | b"response.failed")
        }),
        _ => false,
    }
}

/// Whether the first key of an object is `error`, with a value.
fn is_error_object(data: &[u8]) -> bool {
    let Some(rest) = data.trim_ascii_start().strip_prefix(b"{") else { return false };
    let Some(rest) = rest.trim_ascii_start().strip_prefix(b"\"error\"") else { return false };
    let Some(value) = rest.trim_ascii_start().strip_prefix(b":") else { return false };
    !value.trim_ascii_start().starts_with(b"null")
}

/// Whether a message of a stream carries no part of the answer: only the end mark, or events that contain only usage.
/// Most messages with content end with the list of their choices, so they are not read.
#[inline]
pub fn is_without_content(message: &[u8]) -> bool {
    // This one comparison is enough for most messages.
    !message.ends_with(b"]}\n\n") && message.starts_with(b"data:") && has_unusual_end(message)
}

#[inline(never)]
fn has_unusual_end(message: &[u8]) -> bool {
    let message = message.trim_ascii_end();
    match message {
        [.., b']', b'}'] => false,
        [.., b'}'] => has_no_content(message),
        _ => message.ends_with(END) && has_no_content(message),
    }
}

/// The end mark of OpenAI-compatible servers.
const END: &[u8] = b"[DONE]";

#[cold]
fn has_no_content(message: &[u8]) -> bool {
    // If the first event has a choice, that is enough.
    let has_choice = member(message, b"\"choices\"").is_some_and(|choices| !is_empty_list(choices));
    !has_choice
        && message.split(|byte| matches!(byte, b'\n' | b'\r')).all(|line| match line.strip_prefix(b"data:") {
            Some(data) => data.trim_ascii() == END || is_only_usage(data.trim_ascii()),
            // These are empty lines, comments and the other fields of an event.
            None => true,
        })
}

/// Whether an event has usage, and no choice beside it. A model's text stands in strings, where quotes are escaped.
fn is_only_usage(event: &[u8]) -> bool {
    let is_object = |value: Option<&[u8]>| value.is_some_and(|value| value.starts_with(b"{"));
    match member(event, b"\"choices\"") {
        Some(choices) => is_empty_list(choices) && is_object(member(event, b"\"usage\"")),
        None => event.strip_prefix(b"{").is_some_and(|members| {
            let members = members.trim_ascii_start();
            members.starts_with(b"\"usage\"") && is_object(member(members, b"\"usage\"")) && is_one_member(members)
        }),
    }
}

fn is_empty_list(value: &[u8]) -> bool {
    value.strip_prefix(b"[").is_some_and(|rest| rest.trim_ascii_start().starts_with(b"]"))
}

/// The value of the first member of this name, at any depth.
fn member<'a>(object: &'a [u8], quoted: &[u8]) -> Option<&'a [u8]> {
    let at = memchr::memmem::find(object, quoted)?;
    let value = object[at + quoted.len()..].trim_ascii_start().strip_prefix(b":")?;
    Some(value.trim_ascii_start())
}

/// Whether the object with these members ends after the first one, and that value is an object without strings.
fn is_one_member(members: &[u8]) -> bool {
    let mut depth = 0_usize;
    for (at, byte) in members.iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth > 1 => depth -= 1,
            b'}' => return members[at + 1..].trim_ascii() == b"}",
            _ => {}
        }
    }
    false
}
