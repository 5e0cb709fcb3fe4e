//! Numbers of cards and telephones.

use super::{CUT, Hits, expression};
use regex::bytes::Regex;

/// Card numbers have at most this many digits.
const MOST_DIGITS: usize = 19;
/// A run of hexadecimal digits from this length on is an id or a hash.
const SHORTEST_ID: usize = 20;

// --- card ------------------------------------------------------------------------------------------------------------

/// Card numbers: groups of digits with at most one separator between them, of a known network's length, with Luhn's
/// check digit.
pub fn cards(text: &[u8], hit: &mut Hits<'_>) {
    let mut from = 0;
    while let Some(start) = text[from..].iter().position(u8::is_ascii_digit).map(|found| from + found) {
        let group = group_end(text, start);
        if let Some(end) = card_end(text, start) {
            hit(start..end, "card");
            from = end;
        } else if let Some(end) = cut_card_end(text, start) {
            hit(start..end, "card");
            from = end;
        } else {
            from = group;
        }
    }
}

/// Whether there may be a number of a card, or of a `phone`: searched in steps that miss none.
pub fn has_digits(text: &[u8], phone: bool) -> bool {
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || *byte >= 0x80 || b" -.+_\t()/".contains(byte);
    let step = if phone { 7 } else { 12 };
    let (mut at, mut from) = (step - 1, 0);
    while let Some(byte) = text.get(at) {
        if is_of_number(byte) {
            let before = text[from..at].iter().rev().take_while(|byte| is_of_number(byte)).count();
            let end = at + text[at..].iter().take_while(|byte| is_of_number(byte)).count();
            if is_of_card_or_phone(&text[at - before..end], phone) {
                return true;
            }
            (from, at) = (end, end);
        }
        at += step;
    }
    false
}

/// The shortest form of a card's number and of each phone number.
fn is_of_card_or_phone(run: &[u8], phone: bool) -> bool {
    let digits = run.iter().filter(|byte| byte.is_ascii_digit()).count();
    let has = |mark: u8| run.contains(&mark);
    digits >= 12
        || phone
            && ((digits >= 7 && has(b'+'))
                || (digits >= 8 && (has(b' ') || has(b'-') || has(b'/')))
                || (digits >= 10 && (has(b'.') || has(b'(') || run.windows(2).any(|two| two == b"00"))))
}

fn group_end(text: &[u8], from: usize) -> usize {
    from + text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Length of the separator that `text` begins with; 0 if it is none.
fn separator(text: &[u8]) -> usize {
    match text {
        [b' ' | b'-' | b'.' | b'+' | b'_' | b'\t', ..] => 1,
        [0xC2, 0xA0, ..] => 2,
        // Thin and narrow blanks, hyphens and dashes.
        [0xE2, 0x80, 0x80..=0x95 | 0xAF, ..] => 3,
        _ => 0,
    }
}

fn card_end(text: &[u8], start: usize) -> Option<usize> {
    if is_in_id(text, start) {
        return None;
    }
    let (mut digits, mut len, mut at) = ([0; MOST_DIGITS], 0, start);
    let mut end = None;
    loop {
        let group = group_end(text, at);
        for byte in &text[at..group] {
            *digits.get_mut(len)? = byte - b'0';
            len += 1;
        }
        if is_card(&digits[..len]) {
            end = Some(group);
        }
        let next = group + separator(&text[group..]);
        if next == group || !text.get(next).is_some_and(u8::is_ascii_digit) || len >= MOST_DIGITS {
            return end;
        }
        if len + (group_end(text, next) - next) > MOST_DIGITS {
            return end;
        }
        at = next;
    }
}

/// Five digits or more beside a cut: of a number that may continue, or has begun, in the missing part.
fn cut_card_end(text: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut digits) = (start, 0);
    loop {
        let group = group_end(text, at);
        digits += group - at;
        let next = group + separator(&text[group..]);
        let before = &text[..start];
        if digits >= 5 && (text[group..].starts_with(CUT) || text[next..].starts_with(CUT)) {
            return Some(group);
        }
        if !text.get(next).is_some_and(u8::is_ascii_digit) || digits > MOST_DIGITS {
            let is_rest = before.ends_with(CUT) || before.strip_suffix(b" ").is_some_and(|text| text.ends_with(CUT));
            return (digits >= 5 && is_rest).then_some(group);
        }
        at = next;
    }
}

/// Whether the digits at `start` are a part of a long run of hexadecimal ones.
fn is_in_id(text: &[u8], start: usize) -> bool {
    let before = text[..start].iter().rev().take(SHORTEST_ID).take_while(|byte| byte.is_ascii_hexdigit()).count();
    let after = text[start..].iter().take(SHORTEST_ID).take_while(|byte| byte.is_ascii_hexdigit()).count();
    let run = &text[start - before..start + after];
    run.len() >= SHORTEST_ID && !run.iter().all(u8::is_ascii_digit)
}

/// Whether a JSON number is a card's, also one that is written as a float.
pub fn is_card_number(word: &[u8]) -> bool {
    if word.len() > 32 || word.len() < 13 {
        return false;
    }
    if word.iter().all(u8::is_ascii_digit) {
        let mut digits = [0; 32];
        digits.iter_mut().zip(word).for_each(|(digit, byte)| *digit = byte - b'0');
        return is_card(&digits[..word.len()]);
    }
    let float = std::str::from_utf8(word).ok().and_then(|word| word.parse::<f64>().ok());
    float.is_some_and(|float| {
        let whole = float.fract() == 0.0 && (1e12..1e19).contains(&float);
        whole && is_card_number(itoa::Buffer::new().format(float as u64).as_bytes())
    })
}

fn is_card(digits: &[u8]) -> bool {
    let first = |count: usize| digits[..count].iter().fold(0, |number, digit| number * 10 + u32::from(*digit));
    let len = digits.len();
    if !(12..=MOST_DIGITS).contains(&len) || digits.iter().all(|digit| *digit == digits[0]) {
        return false;
    }
    let of_network = match (first(1), first(2), first(4)) {
        (4, ..) => matches!(len, 13 | 16 | 19),
        (_, 51..=55, _) | (_, _, 2221..=2720) => len == 16,
        (_, 34 | 37, _) => len == 15,
        (_, 30 | 36 | 38 | 39, _) => (14..=19).contains(&len),
        (_, 35, _) => len >= 16,
        (_, _, 2200..=2204) => len >= 16,
        (5 | 6, ..) => true,
        (8 | 9, ..) => len == 16,
        _ => false,
    };
    of_network && luhn(digits)
}

fn luhn(digits: &[u8]) -> bool {
    let doubled = |digit: u8| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let from_end = digits.iter().rev().enumerate();
    let sum: u32 = from_end.map(|(at, digit)| u32::from(if at % 2 == 1 { doubled(*digit) } else { *digit })).sum();
    sum.is_multiple_of(10)
}

// --- phone -----------------------------------------------------------------------------------------------------------

/// Numbers with a country's prefix, those of North America, and those with an area's prefix that begins with 0.
pub fn phone() -> Regex {
    expression(concat!(
        r"(?-u)\+[0-9](?:[ .()/\-]{0,2}[0-9]){6,14}",
        r"|00[1-9](?:[ .()/\-]{0,2}[0-9]){7,13}",
        r"|\([2-9][0-9]{2}\)[ .\-]?[2-9][0-9]{2}[ .\-][0-9]{4}",
        r"|[2-9][0-9]{2}[ .\-][2-9][0-9]{2}[ .\-][0-9]{4}",
        r"|\(?0[1-9][0-9]{1,4}\)?[ /\-][0-9](?:[ \-]?[0-9]){4,8}",
        r"|\+[0-9](?:[ .()/\-]{0,2}[0-9]){2,14}[ .()/\-]?\xE2\x80\xA6",
    ))
}

pub fn phones(expression: &Regex, text: &[u8], hit: &mut Hits<'_>) {
    let mut from = 0;
    while let Some(found) = expression.find_at(text, from) {
        let is_alone = |byte: Option<&u8>| !byte.is_some_and(u8::is_ascii_alphanumeric);
        let before = text[..found.start()].last();
        // Not a part of a longer number, a float or a version.
        if is_alone(before) && !matches!(before, Some(b'.' | b'+')) && is_alone(text.get(found.end())) {
            hit(found.range(), "phone");
            from = found.end();
        } else {
            from = found.start() + 1;
        }
    }
}
