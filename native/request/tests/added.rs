//! What is added to a request's record: members and their limits, the entries of `record_headers`, slots.

use queue::queue_file::{QueueFile, QueueSizes};
use queue::record::Trace;
use request::added::{Kind, MAX_HASHED_BYTES, MAX_MEMBERS_BYTES, Member, Members, Recorded, members};
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
    all.add(Kind::Text, "a", b"1");
    all.add(Kind::Text, "a", b"2");
    all.add(Kind::Hash, "b", &[b'k'; MAX_HASHED_BYTES]);
    all.add(Kind::Hash, "c", &[b'k'; MAX_HASHED_BYTES + 1]);
    all.add(Kind::Hash, "d", &[b'k'; MAX_MEMBERS_BYTES - MAX_HASHED_BYTES]);
    all.add(Kind::Hash, "e", b"");
    let names: Vec<_> = found(&all).into_iter().map(|(_, name, _)| name).collect();
    assert_eq!(names, ["a", "b", "e"]);
    assert_eq!(found(&all)[0].2, b"1");
    assert_eq!(found(&all.within(20)).len(), 2, "the long one is left out, not cut");
    let mut cut = Members::default();
    cut.add(Kind::Text, "a", "é".repeat(200).as_bytes());
    let value = String::from_utf8(found(&cut)[0].2.clone()).unwrap();
    assert!(value.len() <= 256 && value.ends_with("é…"), "{value}");
}

#[test]
fn broken_bytes_end_the_members_and_nothing_else() {
    let mut all = Members::default();
    all.add(Kind::Text, "name", b"value");
    all.add(Kind::Hash, "other", b"value");
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
    all.add(Kind::Text, "tenant.id", b"acme");
    all.add(Kind::Hash, "long", &[b'k'; MEMBERS_BYTES]);
    all.add(Kind::Hash, "api_key.hash", b"sk-canary");
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
