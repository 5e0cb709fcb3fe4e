//! The built-in patterns. Each errs on the side of replacing too much, and is linear: no match depends on text beyond
//! what it replaces, by more than a few bytes.
//!
//! A text that was cut has an ellipsis ([`CUT`]). The text beside one may be a part of a secret, which would not be
//! found as such: there a beginning or an end is enough.

use regex::bytes::Regex;
use std::ops::Range;

/// Receives a range and the name of its pattern.
pub type Hits<'h> = dyn FnMut(Range<usize>, &str) + 'h;

/// Marks the place where a text was cut.
pub const CUT: &[u8] = "…".as_bytes();

fn expression(text: &str) -> Regex {
    Regex::new(text).expect("the built-in expressions are tested")
}

// --- e-mail ----------------------------------------------------------------------------------------------------------

/// Addresses around each at sign, the full-width one included. Letters of any script; typographic marks are not part of
/// one.
pub fn emails(text: &[u8], hit: &mut Hits<'_>) {
    cut_names(text, hit);
    let mut from = 0;
    while let Some(found) = memchr::memchr2(b'@', 0xEF, &text[from..]) {
        let at = from + found;
        let sign = if text[at] == b'@' { 1 } else { usize::from(text[at..].starts_with("＠".as_bytes())) * 3 };
        from = at + sign.max(1);
        if sign == 0 {
            continue;
        }
        let start = local_start(text, at);
        let end = domain_end(text, at + sign);
        if start < at && end > at + sign {
            hit(start..end, "email");
        }
    }
}

/// Names before a cut that look like the beginning of an address, whose at sign may have been cut off.
fn cut_names(text: &[u8], hit: &mut Hits<'_>) {
    for cut in memchr::memmem::find_iter(text, CUT) {
        let start = name_start(text, cut);
        let is_mark = |byte: &u8| byte.is_ascii_digit() || b"._+".contains(byte);
        if text[start..cut].iter().any(is_mark) && text[start..cut].iter().any(u8::is_ascii_alphabetic) {
            hit(start..cut, "email");
        }
    }
}

/// The part before the at sign, on both sides of a cut within it.
fn local_start(text: &[u8], at: usize) -> usize {
    let start = local_part_start(text, at);
    let Some(before) = text[..start].strip_suffix(CUT) else { return start };
    name_start(text, before.len())
}

fn local_part_start(text: &[u8], at: usize) -> usize {
    if text[..at].last() == Some(&b'"') {
        // "john smith"@example.com
        let inside = &text[at.saturating_sub(66)..at - 1];
        return inside.iter().rposition(|byte| *byte == b'"').map_or(at, |quote| at - 1 - inside.len() + quote);
    }
    name_start(text, at)
}

/// Where the characters begin that end before `at` and can stand in the name of an address.
fn name_start(text: &[u8], at: usize) -> usize {
    let mut start = at;
    while let Some(before) = previous(text, start) {
        if !is_of_name(&text[before..start], b"._%+'-") {
            break;
        }
        start = before;
    }
    start
}

/// The end of a domain that begins at `from`, or `from` if none does.
fn domain_end(text: &[u8], from: usize) -> usize {
    if text.get(from) == Some(&b'[') {
        let address =
            text[from + 1..].iter().take_while(|byte| byte.is_ascii_hexdigit() || b".:".contains(byte)).count();
        let end = from + 1 + address;
        return if text.get(end) == Some(&b']') { end + 1 } else { from };
    }
    let mut end = from;
    while end < text.len() {
        let after = end + width(text[end]).min(text.len() - end);
        if !is_of_name(&text[end..after], b".-") {
            break;
        }
        end = after;
    }
    if text[end..].starts_with(CUT) {
        return end + CUT.len();
    }
    let domain = &text[from..end];
    let kept = domain.iter().rposition(|byte| !b".-".contains(byte)).map_or(0, |last| last + 1);
    let Some(dot) = domain[..kept].iter().rposition(|byte| *byte == b'.') else { return from };
    let top = &domain[dot + 1..kept];
    // Not the version of a package: react@18.2.0.
    if dot > 0 && top.len() >= 2 && !top[0].is_ascii_digit() { from + kept } else { from }
}

/// Whether a character can be in a name: a letter or digit of any script, or one of `marks`.
fn is_of_name(character: &[u8], marks: &[u8]) -> bool {
    match character[0] {
        byte if byte < 0x80 => byte.is_ascii_alphanumeric() || marks.contains(&byte),
        // Punctuation: U+0080 to U+00BF, U+2000 to U+2FFF, U+3000 to U+303F; but not the replacement of a broken byte.
        0xC2 | 0xE2 => false,
        0xE3 => character.get(1) != Some(&0x80),
        0xEF => character.get(1) != Some(&0xBC),
        _ => true,
    }
}

fn width(first: u8) -> usize {
    match first {
        0xC0..0xE0 => 2,
        0xE0..0xF0 => 3,
        0xF0.. => 4,
        _ => 1,
    }
}

/// Where the character before `at` begins.
fn previous(text: &[u8], at: usize) -> Option<usize> {
    let before = &text[at.saturating_sub(4)..at];
    let start = before.iter().rposition(|byte| byte & 0xC0 != 0x80)?;
    Some(at - before.len() + start)
}

// --- key -------------------------------------------------------------------------------------------------------------

/// Keys of known forms, and values that are called keys or passwords.
pub fn key() -> [Regex; 2] {
    let known = concat!(
        // Not the end of a word, as of risk-.
        r"(?-u)(?:\b|_)(?:sk-[A-Za-z0-9_\-]{16,}|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{16,}",
        r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}",
        r"|glpat-[A-Za-z0-9_\-]{16,}|xox[abeoprs]-[A-Za-z0-9\-]{10,}|xapp-[A-Za-z0-9\-]{10,}",
        r"|AIza[A-Za-z0-9_\-]{30,}|ya29\.[A-Za-z0-9_\-]{16,}|hf_[A-Za-z0-9]{20,}|nvapi-[A-Za-z0-9_\-]{20,}",
        r"|gsk_[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|pplx-[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}",
        r"|pypi-[A-Za-z0-9_\-]{20,}|SG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}|dop_v1_[a-f0-9]{20,}",
        r"|eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)*)",
        r"|(?s:-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\z))",
        // Beside a cut: the beginning of one of these, or the end of anything that looks like one.
        r"|(?:\b|_)(?:sk-|sk_|rk_|pk_|AKIA|ASIA|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|AIza|hf_|nvapi-|gsk_|eyJ)",
        r"[A-Za-z0-9_.\-]*\xE2\x80\xA6",
        r"|\xE2\x80\xA6[A-Za-z0-9+/=\s]{0,4096}-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
        r"|\xE2\x80\xA6[A-Za-z0-9_+/=.~\-]{6,}",
    );
    let called = concat!(
        r#"(?i-u)(?:(?:api|access|secret|private|auth|client|account)[_\- ]?(?:key|token|secret)|passw(?:or)?d|passphrase|pwd"#,
        r#"|[?&](?:token|key|sig|signature|secret|code))[\\"'\x60]{0,4}\s{0,4}(?:=|:|%3d)>?\s{0,4}[\\"'\x60]{0,4}([^\s"'\\,;&<>\x60]{4,})"#,
        r#"|://[^\s/:@"'\\]{0,256}:([^\s/@"'\\]{1,256})@"#,
    );
    [expression(known), expression(called)]
}

/// Words that each of these needs, without regard to case; except passwords in URLs, which need an at sign.
pub fn key_words() -> Vec<String> {
    const KNOWN: &str = "sk- sk_live sk_test rk_live rk_test pk_live pk_test whsec_ akia asia abia acca ghp_ gho_ ghu_ ghs_ \
        ghr_ github_pat_ glpat- xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp- aiza ya29. hf_ nvapi- gsk_ r8_ xai- \
        pplx- npm_ pypi- sg. dop_v1_ eyj passw passphrase pwd";
    let mut words: Vec<String> = KNOWN.split_whitespace().map(str::to_owned).collect();
    words.push("private key".to_owned());
    for owner in ["api", "access", "secret", "private", "auth", "client", "account"] {
        for between in ["", "_", "-", " "] {
            words.extend(["key", "token", "secret"].map(|kind| format!("{owner}{between}{kind}")));
        }
    }
    for before in ["?", "&"] {
        words.extend(["token", "key", "sig", "secret", "code"].map(|name| format!("{before}{name}")));
    }
    words
}

pub fn keys([known, called]: &[Regex; 2], text: &[u8], hit: &mut Hits<'_>) {
    known.find_iter(text).filter(|found| !is_word(found.as_bytes())).for_each(|found| hit(found.range(), "key"));
    first_groups(called, text, "key", hit);
}

/// Whether the text after a cut is rather the end of a word than that of a key.
fn is_word(found: &[u8]) -> bool {
    let Some(rest) = found.strip_prefix(CUT) else { return false };
    let is_mixed = rest.iter().any(u8::is_ascii_digit) && rest.iter().any(u8::is_ascii_alphabetic);
    rest.len() < 16 && !is_mixed
}

// --- bearer ----------------------------------------------------------------------------------------------------------

/// Credentials of HTTP: bearer tokens, basic ones, and headers that carry them.
pub fn bearer() -> Regex {
    expression(concat!(
        r#"(?i-u)\bbearer[\s:=]{1,4}(?:token[\s:=]{1,4})?([^\s"'\\,;&<>]{4,})"#,
        r"|\bbasic\s{1,4}([a-z0-9+/=_\-]{8,})",
        r#"|(?:\bauthorization|\bx-api-key|\bcookie)["'\\\x60]{0,4}(?:\s{0,4}[:=,]>?\s{0,4})[\\b"'\x60]{0,4}([^"'\r\n\\]{4,4096})"#,
    ))
}

/// Words that each of these needs, without regard to case.
pub const BEARER_WORDS: [&str; 5] = ["bearer", "basic", "authorization", "x-api-key", "cookie"];

pub fn bearers(expression: &Regex, text: &[u8], hit: &mut Hits<'_>) {
    for found in expression.captures_iter(text) {
        if let Some(credentials) = found.get(2) {
            if is_basic(credentials.as_bytes()) {
                hit(credentials.range(), "bearer");
            }
        } else if let Some(token) = found.get(1).or_else(|| found.get(3)) {
            hit(token.range(), "bearer");
        }
    }
}

/// Whether base64 holds `user:password`; other words follow "basic" in plain English.
fn is_basic(encoded: &[u8]) -> bool {
    let (mut bits, mut count) = (0_u32, 0);
    encoded.iter().take_while(|byte| **byte != b'=').any(|byte| {
        let sextet = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            _ => 63,
        };
        bits = bits << 6 | u32::from(sextet);
        count += 6;
        if count < 8 {
            return false;
        }
        count -= 8;
        (bits >> count) as u8 == b':'
    })
}

fn first_groups(expression: &Regex, text: &[u8], name: &str, hit: &mut Hits<'_>) {
    for found in expression.captures_iter(text) {
        if let Some(value) = found.iter().skip(1).flatten().next() {
            hit(value.range(), name);
        }
    }
}

// Numbers of cards and telephones.

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
