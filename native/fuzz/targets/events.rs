//! Any bytes as an answer, cut anywhere: the reader of events says the same as of the whole.
//!
//! The first byte chooses the form, the second the number of cuts, and each cut is a byte more, in 256ths of the rest.
//!
//! `cargo +nightly fuzz run events` fuzzes the reader of events.
#![cfg_attr(fuzzing, no_main)]

use request::events::{EventReader, Form};

const FORMS: [Form; 4] = [Form::Events, Form::Lines, Form::Stream, Form::Unknown];

/// Checks one input.
pub fn check(bytes: &[u8]) {
    let [form, count, rest @ ..] = bytes else { return };
    let form = FORMS[usize::from(form % 4)];
    let (cuts, body) = rest.split_at(rest.len().min(usize::from(count % 8)));
    let mut places: Vec<usize> = cuts.iter().map(|cut| body.len() * usize::from(*cut) / 256).collect();
    places.extend([0, body.len()]);
    places.sort_unstable();
    places.dedup();
    let (whole, divided) = (read(form, body, &[0, body.len()]), read(form, body, &places));
    // What is cut into messages of line ends has more of these, and a body without events has a chunk for each part.
    if matches!(form, Form::Events | Form::Lines) && !has_blank_part(body, &places) {
        assert_eq!(whole, divided, "{:?}", String::from_utf8_lossy(body));
    }
}

fn read(form: Form, body: &[u8], places: &[usize]) -> (u32, u64, u64, bool) {
    let mut reader = EventReader::new(form, 1024);
    let mut chunks = 0;
    for pair in places.windows(2) {
        chunks += reader.read(&body[pair[0]..pair[1]], pair[1] == body.len()).chunks;
    }
    assert!(reader.notes().len() <= 1024, "more notes than there is room for");
    (chunks, reader.frames(), reader.keep_alives(), reader.has_failed())
}

fn has_blank_part(body: &[u8], places: &[usize]) -> bool {
    let is_blank = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'\n' | b'\r'));
    is_blank(body) || places.windows(2).any(|pair| is_blank(&body[pair[0]..pair[1]]))
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));
