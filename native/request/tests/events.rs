//! The reader of events against a slow parser that has the whole stream, and against streams as servers write them.

mod reference;
mod streams;

use proptest::prelude::*;
use reference::{Truth, truth};
use request::events::{EventReader, Form, Kinds};
use streams::{FAILURES, of_servers, random};

/// What the reader says of a stream whose messages are cut at these places.
fn read(stream: &[u8], form: Form, cuts: &[usize]) -> Truth {
    let mut reader = EventReader::new(form, 0);
    let mut seen = Truth::default();
    let mut places: Vec<usize> = cuts.iter().copied().filter(|cut| *cut < stream.len()).collect();
    places.extend([0, stream.len()]);
    places.sort_unstable();
    places.dedup();
    for pair in places.windows(2) {
        let passed = reader.read(&stream[pair[0]..pair[1]], pair[1] == stream.len());
        seen.chunks += u64::from(passed.chunks);
        seen.has_reasoning |= passed.kinds.has(Kinds::REASONING);
        seen.has_tool_call |= passed.kinds.has(Kinds::TOOL_CALL);
    }
    (seen.keep_alives, seen.frames) = (reader.keep_alives(), reader.frames());
    seen.failure = reader.take_failure().map(|failure| (failure.kind().to_owned(), failure.code().map(str::to_owned)));
    seen
}

/// Random streams to try: 2,000, or as many as the environment says.
fn cases() -> u32 {
    std::env::var("EVENT_STREAMS").ok().and_then(|count| count.parse().ok()).unwrap_or(2_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_random_stream_cut_at_random_is_read_as_a_parser_of_the_whole_reads_it(
        (form, stream) in random(),
        cuts in proptest::collection::vec(0_usize..4000, 0..12),
    ) {
        let expected = truth(&stream, form == Form::Lines);
        prop_assert_eq!(read(&stream, form, &cuts), expected, "{}", String::from_utf8_lossy(&stream));
    }
}

#[test]
fn a_stream_that_a_server_writes_is_read_the_same_wherever_it_is_cut() {
    for (name, form, stream) in of_servers() {
        let expected = truth(&stream, form == Form::Lines);
        for cut in 0..stream.len() {
            assert_eq!(read(&stream, form, &[cut]), expected, "{name} cut at {cut}");
        }
        let every: Vec<usize> = (0..stream.len()).collect();
        assert_eq!(read(&stream, form, &every), expected, "{name} in single bytes");
    }
}

#[test]
fn each_failure_within_a_stream_has_the_type_and_the_code_that_it_reports() {
    let delta = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
    for (event, kind, code) in FAILURES {
        let stream = [delta, event, delta].concat();
        for cut in 0..stream.len() {
            let seen = read(stream.as_bytes(), Form::Events, &[cut]);
            let expected = Some(((*kind).to_owned(), (!code.is_empty()).then(|| (*code).to_owned())));
            assert_eq!(seen.failure, expected, "{event} cut at {cut}");
            assert!(seen.chunks >= 2, "{event}");
        }
        let last = [delta, event.trim_end()].concat();
        assert!(read(last.as_bytes(), Form::Events, &[]).failure.is_some(), "without its empty line: {event}");
    }
}

#[test]
fn a_text_that_speaks_of_errors_is_content() {
    for event in [
        "data: {\"choices\":[{\"delta\":{\"content\":\"{\\\"error\\\": {\\\"code\\\": 1}}\"}}]}\n\n",
        "data: {\"error\":null,\"choices\":[{\"delta\":{\"content\":\"data: {\\\"error\\\":1}\"}}]}\n\n",
        "data: {\"type\":\"response.output_text.delta\",\"delta\":\"response.failed\",\"error\":null}\n\n",
        "data: {\"text\":\"\\\"type\\\":\\\"error\\\"\",\"detail\":{\"error\":{\"a\":1}}}\n\n",
        "data: {\"text\":\"a\",\"error\":{}}\n\n",
        "data: {\"text\":\"a\",\"error\":[]}\n\n",
        "data: {\"text\":\"a\",\"error\":{\"code\":null,\"message\":\"\"}}\n\n",
        "data: {\"custom_id\":\"a\",\"response\":null,\"error\":{\"code\":\"other\"}}\n\n",
        "data: {\"text\":\"a\",\"meta_info\":{\"finish_reason\":{\"type\":\"abort\",\"status_code\":null}}}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"error\":null,\"content_filter_result\":{\"error\":{\"code\":\"b\"}}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"\",\"images\":[{\"type\":\"image_url\"}]}}]}\n\n",
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"executableCode\":{\"code\":\"a\"}}]}}]}\n\n",
        "data: event: error\n\n",
        "data: \"error\"\n\n",
        "event: errors\ndata: {\"errors\": 3}\n\n",
    ] {
        let seen = read(event.as_bytes(), Form::Events, &[]);
        assert_eq!((seen.chunks, seen.failure), (1, None), "{event}");
    }
}

#[test]
fn only_messages_of_line_ends_and_comments_and_pings_keep_the_connection_alive() {
    let read_each = |messages: &[&str]| {
        let mut reader = EventReader::new(Form::Events, 0);
        let chunks: u32 = messages.iter().map(|message| reader.read(message.as_bytes(), false).chunks).sum();
        (chunks, reader.keep_alives(), reader.frames())
    };
    assert_eq!(read_each(&["\n", "\r\n", "\n\n", "data: a\n\n"]), (1, 3, 0));
    assert_eq!(read_each(&["data: a\r\n\r", "\n", "data: a\n", "\n"]), (2, 0, 0), "what ends an event is none");
    assert_eq!(read_each(&[": ping\n\n", ": ping\n", "\n", ":\n\n", "event: ping\n\n"]), (0, 4, 0));
    assert_eq!(read_each(&[": a\n", "data: a\n\n"]), (1, 0, 0), "a comment within an event");
    assert_eq!(read_each(&["data:\n\n", "id: 1\n\n", "retry: 5\n\n", "event: other\n\n"]), (0, 1, 0));
    assert_eq!(read_each(&["data: {\"type\":\"keepalive\",\"sequence_number\":3}\n\n"]), (0, 1, 0));
    let ag_ui =
        ["data: {\"type\":\"RUN_STARTED\"}\n\n", "data: {\"type\":\"TEXT_MESSAGE_CONTENT\",\"delta\":\"a\"}\n\n"];
    assert_eq!(read_each(&ag_ui), (1, 0, 1));
    let dify = ["data: {\"event\":\"ping\"}\n\n", "data: {\"event\":\"message\",\"answer\":\"a\"}\n\n"];
    assert_eq!(read_each(&dify), (1, 1, 0));
    assert_eq!(read_each(&["data: {\"event\":\"message_end\",\"metadata\":{}}\n\n"]), (0, 0, 1));
}

#[test]
fn the_form_of_a_body_whose_headers_say_nothing_shows_in_its_first_message() {
    let read_all = |messages: &[&str]| {
        let mut reader = EventReader::new(Form::Unknown, 0);
        let last = messages.len() - 1;
        let passed = messages.iter().enumerate().map(|(at, message)| reader.read(message.as_bytes(), at == last));
        let chunks: u32 = passed.map(|passed| passed.chunks).sum();
        (chunks, reader.frames(), reader.has_failed())
    };
    assert_eq!(read_all(&["data: a\n\ndata: [DONE]\n\n"]), (1, 1, false));
    assert_eq!(read_all(&["{\"response\":\"a\",\"done\":false}\n", "{\"error\":\"b\"}\n"]), (1, 1, true));
    assert_eq!(read_all(&["{\"a\":", "1}"]), (2, 0, false), "one document in two parts");
    assert_eq!(read_all(&["{\"object\":\"response\",\"status\":", "\"failed\"}"]), (2, 0, true));
    assert_eq!(read_all(&["[{\"a\":1},{\"a\":2}", ",{\"a\":3}]"]), (2, 0, false), "a list of an application's own");
    assert_eq!(read_all(&["[{\"a\"", ":1}", "]"]), (3, 0, false));
    let candidate = "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}";
    let list = [&format!("[{candidate}"), &format!("\r\n,{candidate}"), ",{\"usageMetadata\":{}}", "]"];
    assert_eq!(read_all(&list.map(|part| part as &str)), (2, 1, false));
    assert_eq!(read_all(&["da", "ta"]), (2, 0, false), "a text");
    assert_eq!(read_all(&["plain", "\n", "text"]), (3, 0, false));
}

#[test]
fn what_stands_before_the_content_is_noted_with_its_long_texts_cut() {
    let long = "x".repeat(5000);
    let created = format!(
        "data: {{\"type\":\"response.created\",\"response\":{{\"id\":\"resp_1\",\"instructions\":\"{long}\\\"\",\"model\":\"m\",\
         \"tools\":[{{\"parameters\":{{\"deep\":{{\"deeper\":1}}}}}}],\"usage\":{{\"input_tokens\":7}}}}}}\n\n"
    );
    let delta = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n";
    let mut reader = EventReader::new(Form::Events, 1000);
    for part in [": ping\n\n", &created[..100], &created[100..], delta, delta] {
        reader.read(part.as_bytes(), false);
    }
    let notes = String::from_utf8(reader.notes().to_vec()).unwrap();
    let noted = notes.lines().next().and_then(|line| line.strip_prefix("data: ")).unwrap();
    let response = &serde_json::from_str::<serde_json::Value>(noted).unwrap()["response"];
    assert_eq!((&response["id"], &response["model"]), (&"resp_1".into(), &"m".into()));
    assert_eq!((response["usage"]["input_tokens"].as_u64(), notes.len() < 500), (Some(7), true), "{notes}");
}

#[test]
fn an_event_on_several_lines_is_noted_on_one_wherever_it_is_cut() {
    let stream = "[{\n  \"responseId\": \"r\",\r\n\t\"usageMetadata\": {\n \"promptTokenCount\": 7}, \"candidates\": [{\"a\": [{\"b\": [\n1]}]}]\n}\n";
    for cut in 0..stream.len() {
        let mut reader = EventReader::new(Form::Stream, 1000);
        for part in [&stream[..cut], &stream[cut..]] {
            reader.read(part.as_bytes(), false);
        }
        // Blanks between its tokens may stay.
        let notes = String::from_utf8_lossy(reader.notes()).replace([' ', '\t'], "");
        let expected = r#"data:{"responseId":"r","usageMetadata":{"promptTokenCount":7},"candidates":[{"a":[{}]}]}"#;
        assert_eq!(notes, format!("{expected}\n"), "cut at {cut}");
    }
}

#[test]
fn the_reason_of_each_choice_that_ends_is_noted() {
    let event = |choice: usize, text: &str, reason: &str| {
        format!("data: {{\"choices\":[{{\"index\":{choice},\"text\":\"{text}\",\"finish_reason\":{reason}}}]}}\n\n")
    };
    let mut reader = EventReader::new(Form::Events, 1000);
    for choice in 0..6 {
        reader.read(event(choice, "a", "null").as_bytes(), false);
        reader.read(event(choice, "", if choice == 3 { "\"length\"" } else { "\"stop\"" }).as_bytes(), false);
    }
    let notes = String::from_utf8(reader.notes().to_vec()).unwrap();
    // The first event is noted as a whole, since nothing had come before it.
    assert_eq!((notes.lines().count(), notes.matches("\"stop\"").count()), (7, 5), "{notes}");
    assert!(notes.contains(r#"{"index":3,"finish_reason":"length"}"#), "{notes}");

    // Last events with a text differ in the choice only, and two of them may come in one message.
    let mut reader = EventReader::new(Form::Events, 1000);
    reader.read(event(0, "a", "null").as_bytes(), false);
    reader.read(event(0, "a", "\"stop\"").as_bytes(), false);
    reader.read(event(1, "a", "\"stop\"").as_bytes(), false);
    reader.read([event(2, "a", "\"stop\""), event(3, "b", "\"stop\"")].concat().as_bytes(), false);
    let notes = String::from_utf8(reader.notes().to_vec()).unwrap();
    assert_eq!(notes.matches("\"stop\"").count(), 4, "{notes}");
}

#[test]
fn the_state_of_a_reader_does_not_grow_with_its_stream() {
    assert!(size_of::<EventReader>() <= 640, "{}", size_of::<EventReader>());
}
