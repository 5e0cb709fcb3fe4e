//! Values that are pushed in a row, and keys that are encoded once, stand in a record as the scratch itself pushes them.

use queue::record::{INLINE_BYTES, LONGEST_KEY, MapKeys, Room, Scratch};

const KEYS: [&str; 5] = ["", "k", "h\u{e9}", "abcdefghijklmnopqrstuvwxyz01", "last"];

/// Pushes a value; false: there was no room.
type InRoom = fn(&mut Room<'_>) -> bool;
type InScratch = fn(&mut Scratch);

const TEXTS: [&str; 7] =
    ["", "a", "abc", "abcdefg", "0123456789", "0123456789abcdef0123", "more than thirty-two bytes of text"];

fn kinds() -> [(InRoom, InScratch); 5] {
    [
        (|r| r.push_int(-2), |s| s.push_int(-2)),
        (|r| r.push_float(1.5), |s| s.push_float(1.5)),
        (|r| r.push_null(), Scratch::push_null),
        (|r| r.push_bool(true), |s| s.push_bool(true)),
        (|r| TEXTS.iter().all(|text| r.push_str(text)), |s| TEXTS.iter().for_each(|text| s.push_str(text))),
    ]
}

fn expected(push: impl FnOnce(&mut Scratch)) -> Vec<u8> {
    let mut scratch = Scratch::new();
    push(&mut scratch);
    scratch.as_slice().to_vec()
}

#[test]
fn a_room_pushes_what_the_scratch_pushes() {
    for (in_room, in_scratch) in kinds() {
        let mut scratch = Scratch::new();
        scratch.push_absent();
        assert!(in_room(&mut scratch.room()));
        scratch.push_absent();
        let same = expected(|scratch| {
            scratch.push_absent();
            in_scratch(scratch);
            scratch.push_absent();
        });
        assert_eq!(scratch.as_slice(), same);
    }
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_nothing() {
    for used in INLINE_BYTES - 100..=INLINE_BYTES {
        for (in_room, in_scratch) in &kinds()[..4] {
            let mut scratch = Scratch::new();
            scratch.push_absents(used);
            let same = expected(|scratch| {
                scratch.push_absents(used);
                in_scratch(scratch);
            });
            let fits = in_room(&mut scratch.room());
            assert_eq!(fits, same.len() <= INLINE_BYTES);
            if !fits {
                assert_eq!(scratch.as_slice(), vec![0; used]);
                in_scratch(&mut scratch);
                assert!(!in_room(&mut scratch.room()), "a record that was spilled has no room");
            }
            assert_eq!(scratch.as_slice(), same);
        }
    }
}

#[test]
fn a_text_that_fits_exactly_fills_the_room() {
    for spare in 0..2 {
        let text = "x".repeat(INLINE_BYTES - 5 - 100 + 1 - spare);
        let mut scratch = Scratch::new();
        scratch.push_absents(100);
        assert_eq!(scratch.room().push_str(&text), spare == 1);
        assert_eq!(scratch.as_slice().len(), if spare == 1 { INLINE_BYTES } else { 100 });
    }
}

#[test]
fn keys_that_are_encoded_once_are_those_of_a_map() {
    let keys = MapKeys::new(&KEYS).unwrap();
    let same = expected(|scratch| {
        for (at, key) in KEYS.iter().enumerate() {
            scratch.push_map_key(key);
            scratch.push_int(at as i64);
        }
    });
    // From each key on, the scratch pushes in place of the room.
    for by_room in 0..=KEYS.len() {
        let (mut scratch, mut left) = (Scratch::new(), keys.all());
        for at in 0..KEYS.len() {
            if at < by_room {
                assert!(scratch.room().push_key(&mut left));
            } else {
                left.push_next(&mut scratch);
            }
            assert!(scratch.room().push_int(at as i64));
        }
        assert_eq!(scratch.as_slice(), same);
        assert!(!scratch.room().push_key(&mut left), "there is no key behind the last one");
        left.push_next(&mut scratch);
        assert_eq!(scratch.as_slice(), same);
    }
}

#[test]
fn a_key_without_room_is_still_the_next_one() {
    let keys = MapKeys::new(&KEYS[1..]).unwrap();
    for used in INLINE_BYTES - 40..=INLINE_BYTES {
        let (mut scratch, mut left) = (Scratch::new(), keys.all());
        scratch.push_absents(used);
        if !scratch.room().push_key(&mut left) {
            assert_eq!(scratch.as_slice().len(), used);
            left.push_next(&mut scratch);
        }
        left.push_next(&mut scratch);
        let same = expected(|scratch| {
            scratch.push_absents(used);
            KEYS[1..3].iter().for_each(|key| scratch.push_map_key(key));
        });
        assert_eq!(scratch.as_slice(), same);
    }
}

#[test]
fn a_key_that_is_too_long_is_not_encoded_once() {
    assert!(MapKeys::new(&["a", &"k".repeat(LONGEST_KEY)]).is_some());
    assert!(MapKeys::new(&["a", &"k".repeat(LONGEST_KEY + 1)]).is_none());
    assert!(MapKeys::new(&[]).is_some_and(|keys| !Scratch::new().room().push_key(&mut keys.all())));
}
