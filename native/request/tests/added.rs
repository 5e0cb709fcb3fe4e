//! What is added to a request's record: members and their limits, the entries of `record_headers`, slots.

use queue::queue_file::{QueueFile, QueueSizes};
use queue::record::Trace;
use queue::record::{Scratch, Value, Values};
use request::added::{
    AddedFields, FewMembers, Kind, MAX_HASHED_BYTES, MAX_MEMBERS_BYTES, Member, Members, Recorded, length_bit, members,
};
use request::ids::RequestIds;
use request::in_flight::facts::{Answer, Begun, MEMBERS_BYTES, SHORT_TAIL_BYTES, SlotFacts};

fn texts(entries: &[&str]) -> Vec<String> {
    entries.iter().map(|entry| (*entry).to_owned()).collect()
}

fn found(members_of: &Members) -> Vec<(Kind, String, Vec<u8>)> {
    let owned =
        |member: Member<'_>| (member.kind, String::from_utf8(member.name.to_vec()).unwrap(), member.value.to_vec());
    members(members_of.as_bytes()).map(owned).collect()
}

#[test]
fn the_first_member_of_a_name_counts_and_what_has_no_room_is_left_out() {
    let mut all = Members::default();
    all.add(Kind::Text, b"a", b"1");
    all.add(Kind::Text, b"a", b"2");
    all.add(Kind::Hash, b"b", &[b'k'; MAX_HASHED_BYTES]);
    all.add(Kind::Hash, b"c", &[b'k'; MAX_HASHED_BYTES + 1]);
    all.add(Kind::Hash, b"d", &[b'k'; MAX_MEMBERS_BYTES - MAX_HASHED_BYTES]);
    all.add(Kind::Hash, b"e", b"");
    let names: Vec<_> = found(&all).into_iter().map(|(_, name, _)| name).collect();
    assert_eq!(names, ["a", "b", "e"]);
    assert_eq!(found(&all)[0].2, b"1");
    assert_eq!(found(&all.within(20)).len(), 2, "the long one is left out, not cut");
    let mut cut = Members::default();
    cut.add(Kind::Text, b"a", "é".repeat(200).as_bytes());
    let value = String::from_utf8(found(&cut)[0].2.clone()).unwrap();
    assert!(value.len() <= 256 && value.ends_with("é…"), "{value}");
}

#[test]
fn broken_bytes_end_the_members_and_nothing_else() {
    let mut all = Members::default();
    all.add(Kind::Text, b"name", b"value");
    all.add(Kind::Hash, b"other", b"value");
    for len in 0..all.as_bytes().len() {
        assert!(members(&all.as_bytes()[..len]).count() < 2);
    }
    assert_eq!(members(&[9, 0, 0, 0]).count(), 0, "an unknown kind");
}

#[test]
fn a_header_is_taken_by_name_in_any_case_and_a_credential_without_its_scheme() {
    let entries = ["X-Team=tenant.id", "authorization:hash", "x-authorization:hash=api_key.hash", "x-other:hash"];
    let recorded = Recorded::parse(&texts(&entries), &[], true).unwrap();
    let mut all = Members::default();
    for (name, value) in [
        ("x-TEAM", " a "),
        ("Authorization", "Bearer  key"),
        ("x-authorization", "bearer key"),
        ("x-other", "Bearer key"),
        ("x-none", "no"),
    ] {
        recorded.take(name.as_bytes(), value.as_bytes(), &mut all);
    }
    let expected = [
        (Kind::Text, "tenant.id", "a"),
        (Kind::Hash, "http.request.header.authorization", "key"),
        (Kind::Hash, "api_key.hash", "key"),
        (Kind::Hash, "http.request.header.x-other", "Bearer key"),
    ];
    let expected = expected.map(|(kind, name, value)| (kind, name.to_owned(), value.as_bytes().to_vec()));
    assert_eq!(found(&all), expected);
    assert!(recorded.has_headers() && !Recorded::default().has_headers());
}

/// The members of one header, by the table for few of them and by that for any number.
fn taken(recorded: &Recorded, name: &str, value: &str) -> Vec<(Kind, String, Vec<u8>)> {
    let (mut few, mut all) = (FewMembers::default(), Members::default());
    recorded.take_few(name.as_bytes(), value.as_bytes(), &mut few);
    recorded.take(name.as_bytes(), value.as_bytes(), &mut all);
    let few = Members::from(few.as_bytes().unwrap());
    assert_eq!(found(&few), found(&all), "{name}");
    found(&all)
}

#[test]
fn a_header_of_any_length_is_found_by_all_of_its_name_and_by_nothing_else() {
    for length in 1..=64 {
        let name: String = (0..length).map(|at| char::from(b'a' + at as u8 % 26)).collect();
        let recorded = Recorded::parse(&texts(&[&name, "x-other"]), &[], false).unwrap();
        assert_ne!(recorded.lengths() & length_bit(length), 0);
        let expected = vec![(Kind::Text, format!("http.request.header.{name}"), b"v".to_vec())];
        for same in [name.clone(), name.to_uppercase()] {
            assert_eq!(taken(&recorded, &same, "v"), expected);
        }
        for at in 0..length {
            for byte in [b'-', b'A' ^ 0x20 ^ name.as_bytes()[at], name.as_bytes()[at] ^ 0x80 >> 1] {
                let mut other = name.clone().into_bytes();
                other[at] = byte;
                let other = String::from_utf8(other).unwrap();
                let is_same = other.eq_ignore_ascii_case(&name);
                assert_eq!(!taken(&recorded, &other, "v").is_empty(), is_same, "{other}");
            }
        }
        for other in [&name[1..], &format!("{name}x")] {
            assert!(taken(&recorded, other, "v").is_empty(), "{other}");
        }
    }
}

#[test]
fn few_members_are_those_that_have_room_whole_and_the_first_of_a_field_counts() {
    let recorded = Recorded::parse(&texts(&["a=tenant.id", "bb=tenant.id", "ccc", "ddd:hash"]), &[], true).unwrap();
    let mut few = FewMembers::default();
    for (name, value) in [("bb", " first "), ("a", "second"), ("ddd", " "), ("ccc", ""), ("none", "no")] {
        recorded.take_few(name.as_bytes(), value.as_bytes(), &mut few);
    }
    let kept = found(&Members::from(few.as_bytes().unwrap()));
    let kept: Vec<_> = kept.iter().map(|(_, name, value)| (name.as_str(), value.as_slice())).collect();
    assert_eq!(kept, [("tenant.id", &b"first"[..]), ("http.request.header.ccc", b"")]);
    for (bytes, has_room) in [(248 - 4 - 23, true), (248 - 4 - 22, false)] {
        let mut few = FewMembers::default();
        let value = vec![b'v'; bytes];
        recorded.take_few(b"ccc", &value, &mut few);
        assert_eq!(few.as_bytes().is_some(), has_room, "{bytes}");
    }
}

#[test]
fn more_headers_than_a_table_has_places_for_are_refused() {
    let names: Vec<String> = (0..17).map(|number| format!("x-{number}")).collect();
    assert!(Recorded::parse(&names[..16], &[], false).is_ok());
    assert_eq!(Recorded::parse(&names, &[], false).unwrap_err().len(), 1);
}

/// The attributes of `fields` by name.
fn attributes(fields: &AddedFields) -> Vec<(String, i64)> {
    let Some(Ok(Value::Map(map))) = Values::new(fields.attributes()).next() else { return Vec::new() };
    let number = |value| if let Value::Int(number) = value { number } else { panic!("{value:?}") };
    map.iter().map(|(name, value)| (String::from_utf8(name.to_vec()).unwrap(), number(value))).collect()
}

fn encoded(fields: &[(&str, i64)]) -> Vec<u8> {
    let mut scratch = Scratch::new();
    for (name, number) in fields {
        scratch.push_map_key(name);
        scratch.push_int(*number);
    }
    scratch.as_slice().to_vec()
}

#[test]
fn a_later_field_takes_the_place_of_an_earlier_one_and_others_follow() {
    let mut fields = AddedFields::of(Members::default());
    fields.put(2, &encoded(&[("a", 1), ("b", 2)]));
    assert_eq!(fields.count_with(2, &encoded(&[("c", 3), ("a", 4)])), 3);
    fields.put(2, &encoded(&[("c", 3), ("a", 4)]));
    fields.members.set(b"tenant.id", b"one");
    fields.members.set(b"enduser.id", b"u");
    fields.members.set(b"tenant.id", b"other");
    let own =
        |all: &[(&str, i64)]| -> Vec<_> { all.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect() };
    assert_eq!(attributes(&fields), own(&[("a", 4), ("b", 2), ("c", 3)]));
    let mut later = AddedFields::of(Members::default());
    later.put(2, &encoded(&[("b", 5), ("d", 6)]));
    later.members.set(b"tenant.id", b"last");
    later.put_behind(&fields);
    assert_eq!(attributes(&later), own(&[("a", 4), ("b", 5), ("c", 3), ("d", 6)]));
    let members = found(&later.members).into_iter().map(|(_, name, value)| (name, value));
    let expected = [("tenant.id", "last"), ("enduser.id", "u")].map(|(name, value)| (name.into(), value.into()));
    assert_eq!(members.collect::<Vec<(String, Vec<u8>)>>(), expected);
}

#[test]
fn every_wrong_entry_is_named_with_its_reason() {
    let wrong = ["Authorization", "my-secret-header=tenant.id", "x-team:hash", "x-team=other", "x-team=api_key.hash"];
    let sentences = Recorded::parse(&texts(&wrong), &texts(&["user:hash"]), false).unwrap_err();
    assert_eq!(sentences.len(), 6);
    for (sentence, entry) in sentences.iter().zip(wrong) {
        assert!(sentence.starts_with(&format!("record_headers='{entry}': ")), "{sentence}");
    }
    assert!(sentences[5].starts_with("record_body_fields='user:hash': "));
}

#[test]
fn a_slot_keeps_members_beside_the_ends_of_a_body_and_forgets_them_with_the_request() {
    let directory = tempfile::tempdir().unwrap();
    let sizes = QueueSizes { data_bytes: 65_536, slot_count: 1 };
    let (file, _lock) = QueueFile::create(directory.path(), sizes, 1, 2).unwrap();
    let slot = file.slots().get(0).unwrap();
    let ids = RequestIds::new(Trace::default(), None, None);
    let begun = Begun {
        started: 5,
        started_unix_nano: 6,
        ids: &ids,
        method: b"POST",
        path: b"/",
        protocol_version: b"1.1",
        client_address: b"",
        is_probe: false,
        model: b"",
    };
    slot.write_facts(&begun);
    assert_eq!(slot.read_facts().members, b"", "of the request before");
    let mut all = Members::default();
    all.add(Kind::Text, b"tenant.id", b"acme");
    all.add(Kind::Hash, b"long", &[b'k'; MEMBERS_BYTES]);
    all.add(Kind::Hash, b"api_key.hash", b"sk-canary");
    slot.write_members(&all);
    slot.write_bytes_in(2000);
    slot.write_body(&[b'x'; 2000], 464, SHORT_TAIL_BYTES);
    slot.write_answer(Answer { status: 200, streamed: true, unknown_size: false });
    let facts = slot.read_facts();
    let kept: Vec<_> = members(&facts.members).map(|member| member.value.to_vec()).collect();
    assert_eq!(kept, [b"acme".to_vec(), b"sk-canary".to_vec()], "a part of a key would have another hash");
    assert_eq!((facts.body_head.len(), facts.body_tail.len()), (464, 224));
    slot.wipe();
    let bytes = std::fs::read(&file.path).unwrap();
    assert!(!bytes.windows(9).any(|part| part == b"sk-canary"));
    slot.write_facts(&begun);
    slot.write_members(&all);
    slot.wipe();
    let bytes = std::fs::read(&file.path).unwrap();
    assert!(!bytes.windows(9).any(|part| part == b"sk-canary"), "also without a body");
}
