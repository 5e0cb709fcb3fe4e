//! The shape of a stream's usual event: what stands before its text and behind it.
//!
//! Nearly all events of a stream differ in one text and in some numbers. An event that agrees with the last one in all
//! the rest has the same structure, so it is the same kind of event, and its JSON need not be walked.

use super::seen::Kinds;
use crate::capture::packed::common_prefix;

/// Most bytes before the text, and behind it.
const BEFORE: usize = 512;
const BEHIND: usize = 256;

/// The shape of an event that adds one text to the answer; empty at first.
#[derive(Debug, Default)]
pub struct Template {
    /// What stands before the text, and behind it.
    bytes: Vec<u8>,
    before: usize,
    pub kinds: Kinds,
}

impl Template {
    /// Takes the shape of `event`, whose text stands at `text`.
    pub fn learn(&mut self, event: &[u8], text: std::ops::Range<usize>, kinds: Kinds) {
        let (Some(before), Some(behind)) = (event.get(..text.start), event.get(text.end..)) else { return };
        self.forget();
        if before.len() <= BEFORE && behind.len() <= BEHIND {
            self.bytes.reserve_exact(before.len() + behind.len());
            self.bytes.extend_from_slice(before);
            self.bytes.extend_from_slice(behind);
            (self.before, self.kinds) = (before.len(), kinds);
        }
    }

    pub fn forget(&mut self) {
        self.bytes.clear();
    }

    /// The length of the event that `bytes` begin with, if it is whole, has this shape and a text.
    #[inline]
    pub fn event(&self, bytes: &[u8]) -> Option<usize> {
        if self.bytes.is_empty() {
            return None;
        }
        let (before, behind) = self.bytes.split_at(self.before);
        let start = same(before, bytes)?;
        let end = start + text(&bytes[start..])?;
        Some(end + same(behind, &bytes[end..])?)
    }
}

/// How many of `bytes` agree with the template, in all but the numbers.
#[inline]
fn same(template: &[u8], bytes: &[u8]) -> Option<usize> {
    if bytes.starts_with(template) {
        return Some(template.len());
    }
    same_but_numbers(template, bytes)
}

fn same_but_numbers(template: &[u8], bytes: &[u8]) -> Option<usize> {
    let (mut at, mut to) = (0, 0);
    loop {
        let common = common_prefix(&template[at..], &bytes[to..]);
        (at, to) = (at + common, to + common);
        if at == template.len() {
            return Some(to);
        }
        // A number has at least one digit on either side: before the difference, or there.
        let is_within = at > 0 && template[at - 1].is_ascii_digit();
        let digits = |bytes: &[u8]| bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (here, there) = (digits(&template[at..]), digits(bytes.get(to..)?));
        if (here == 0 && there == 0) || (!is_within && (here == 0 || there == 0)) {
            return None;
        }
        (at, to) = (at + here, to + there);
    }
}

/// The length of the text up to its closing quote; None if it is empty, or not whole.
#[inline]
fn text(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        while let Some(eight) = bytes.get(at..)?.first_chunk() {
            let ordinary = ordinary_bytes(u64::from_le_bytes(*eight));
            at += ordinary;
            if ordinary < 8 {
                break;
            }
        }
        match *bytes.get(at)? {
            b'"' => return (at > 0).then_some(at),
            b'\\' => at += 2,
            0..b' ' => return None,
            _ => at += 1,
        }
    }
}

/// How many of eight bytes, from the lowest on, are neither a quote nor a backslash nor a control character.
#[inline]
const fn ordinary_bytes(eight: u64) -> usize {
    const ONES: u64 = u64::MAX / 0xFF;
    // The lowest byte whose high bit is set is below `least`; a borrow can only spoil the bytes above it.
    const fn below(eight: u64, least: u8) -> u64 {
        eight.wrapping_sub(ONES * least as u64) & !eight
    }
    let is_quote = below(eight ^ (ONES * b'"' as u64), 1);
    let is_backslash = below(eight ^ (ONES * b'\\' as u64), 1);
    let found = (is_quote | is_backslash | below(eight, b' ')) & (ONES << 7);
    found.trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As [`text`], a byte at a time.
    fn text_by_bytes(bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            match *bytes.get(at)? {
                b'"' => return (at > 0).then_some(at),
                b'\\' => at += 2,
                0..b' ' => return None,
                _ => at += 1,
            }
        }
    }

    #[test]
    fn eight_bytes_at_once_find_the_end_that_each_byte_alone_finds() {
        for special in 0..=u8::MAX {
            for other in [b'"', b'\\', b' ', b'!', 0x1F, 0x7F, 0x80, 0xFF, special] {
                for place in 0..19 {
                    for next in 0..19 {
                        let mut bytes = [b'x'; 20];
                        (bytes[place], bytes[next], bytes[19]) = (special, other, b'"');
                        assert_eq!(text(&bytes), text_by_bytes(&bytes), "{bytes:?}");
                        assert_eq!(text(&bytes[..19]), text_by_bytes(&bytes[..19]), "{bytes:?}");
                    }
                }
            }
        }
    }
}
