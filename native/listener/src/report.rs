//! What `verify` found, in words for an operator in the middle of an incident: the answer first, then what does not
//! balance and where to look, then the counts.

use lines::terminal::{push_escaped, safe};
use serde_json::Value;
use std::fmt::Write;

/// Most problems, processes and gaps in the text; the JSON lists all.
const SHOWN: usize = 20;
/// The counts, each with its meaning.
const COLUMNS: [(&str, &str); 7] = [
    ("accepted", "records that processes put into their queues"),
    ("written", "are in the segments"),
    ("removed", "were in segments that retention removed and reported"),
    ("lost", "torn or corrupt: a process was killed while it wrote them; counted"),
    ("in_queue", "wait in queues"),
    ("missing", "are missing without an explanation"),
    ("doubled", "occur more than once"),
];
const EXPLAINED: [&str; 3] = ["retention", "torn", "corrupt"];
const ACCEPTED: [&str; 3] = ["torn", "corrupt", "shutdown_deadline"];

/// The report as JSON, indented and in ASCII.
pub fn json(found: &Value) -> String {
    let text = serde_json::to_string_pretty(found).unwrap_or_default();
    let mut ascii = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        if character == '\n' || (' '..='~').contains(&character) {
            ascii.push(character);
        } else {
            push_escaped(&mut ascii, character.encode_utf16(&mut [0; 2]));
        }
    }
    ascii + "\n"
}

/// The report in words.
pub fn words(found: &Value) -> String {
    let (problems, processes) = (items(&found["problems"]), items(&found["processes"]));
    let mut lines = Vec::new();
    if found["balanced"] == true {
        let all = count(number(&found["totals"]["processes"]), "process", "processes");
        let commands = match number(&found["totals"]["commands"]) {
            0 => String::new(),
            some => format!(" and {}", count(some, "command", "commands")),
        };
        lines.push(format!("BALANCED: every record of {all}{commands} is accounted for."));
    } else {
        lines.push(format!("NOT BALANCED: {}.", count(problems.len() as u64, "problem", "problems")));
        lines.push(String::new());
        numbered(&mut lines, problems, processes);
    }
    lines.push(String::new());
    totals(&mut lines, &found["totals"]);
    lines.push(String::new());
    table(&mut lines, processes);
    gaps(&mut lines, processes);
    notes(&mut lines, found);
    lines.push(String::new());
    lines.push(what_was_read(found));
    lines.join("\n") + "\n"
}

fn numbered(lines: &mut Vec<String>, problems: &[Value], processes: &[Value]) {
    for (number, problem) in (1..).zip(problems.iter().take(SHOWN)) {
        lines.push(format!("{number:3}. {}", headline(problem, processes)));
        match gap_of(problem, processes).filter(|_| problem["kind"] == "missing") {
            Some(gap) => {
                lines.push(format!("     when:  {}", between(gap)));
                lines.push(format!("     why:   {}", reason(text(&gap["reason"]))));
                if !text(&gap["detail"]).is_empty() {
                    lines.push(format!("     where: {}", safe(text(&gap["detail"]))));
                }
            }
            None => {
                lines.push(format!("     what:  {}", safe(text(&problem["text"]))));
                if let Some(segment) = problem["segment"].as_str() {
                    let line = problem["line"].as_u64().map_or_else(String::new, |line| format!(", line {line}"));
                    lines.push(format!("     where: {}{line}", safe(segment)));
                }
            }
        }
    }
    if problems.len() > SHOWN {
        lines.push(format!("     … and {} more: --json lists all", problems.len() - SHOWN));
    }
}

/// The gap that a problem names.
fn gap_of<'a>(problem: &Value, processes: &'a [Value]) -> Option<&'a Value> {
    let process = processes.iter().find(|one| one["boot_id"] == problem["boot_id"])?;
    items(&process["gaps"]).iter().find(|gap| gap["first"] == problem["first"])
}

fn headline(problem: &Value, processes: &[Value]) -> String {
    let mut words = text(&problem["kind"]).replace('_', " ").to_uppercase();
    if let Some(boot_id) = problem["boot_id"].as_str() {
        let process = processes.iter().find(|one| one["boot_id"] == boot_id);
        let pid = process.map_or_else(|| "?".to_owned(), |one| one["pid"].to_string());
        let _ = write!(words, ": process {boot_id} (pid {pid})");
    }
    if problem.get("first").is_some() {
        let _ = write!(words, ", {}", span(problem));
    }
    words
}

fn totals(lines: &mut Vec<String>, totals: &Value) {
    let counts = COLUMNS.map(|(name, _)| grouped(number(&totals[name])));
    let width = counts.iter().map(String::len).max().unwrap_or(0);
    for ((name, meaning), count) in COLUMNS.iter().zip(&counts) {
        let sign = match *name {
            "accepted" | "doubled" => " ",
            "written" => "=",
            _ => "+",
        };
        lines.push(format!("{sign} {:<9} {count:>width$}  {meaning}", name.replace('_', " ")));
    }
    let dropped = totals["dropped"].as_object().into_iter().flatten();
    let refused = dropped.filter(|(reason, count)| !ACCEPTED.contains(&reason.as_str()) && number(count) > 0);
    let refused: Vec<String> = refused.map(|(reason, count)| format!("{reason} {}", grouped(number(count)))).collect();
    let refused = if refused.is_empty() { "none".to_owned() } else { refused.join(", ") };
    lines.push(format!("Refused, and so never accepted: {refused}."));
    let left = number(&totals["dropped"]["shutdown_deadline"]);
    if left > 0 {
        let left = grouped(left);
        lines.push(format!("Left in queues at a shutdown (shutdown_deadline), if no listener has come since: {left}."));
    }
}

fn table(lines: &mut Vec<String>, processes: &[Value]) {
    let mut worst_first: Vec<&Value> = processes.iter().collect();
    worst_first.sort_by_key(|one| number(&one["missing"]) + number(&one["doubled"]) == 0);
    let heads = ["process", "pid"].into_iter().map(str::to_owned);
    let heads = heads.chain(COLUMNS.iter().map(|(name, _)| name.replace('_', " ")));
    let mut rows: Vec<Vec<String>> = vec![heads.chain(["state".to_owned()]).collect()];
    rows.extend(worst_first.iter().take(SHOWN).map(|one| row(one)));
    let state = COLUMNS.len() + 2;
    let widths: Vec<usize> =
        (0..state).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    for row in rows {
        let mut line = format!("{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row[1..state].iter().zip(&widths[1..]) {
            let _ = write!(line, "  {cell:>width$}");
        }
        lines.push(format!("{line}  {}", row[state]));
    }
    if processes.len() > SHOWN {
        lines.push(format!("… and {} more that balance or follow: --json lists all", processes.len() - SHOWN));
    }
}

fn row(one: &Value) -> Vec<String> {
    let mut cells = vec![text(&one["boot_id"]).to_owned(), one["pid"].to_string()];
    cells.extend(COLUMNS.iter().map(|(name, _)| grouped(number(&one[*name]))));
    cells.push(state(text(&one["state"])).to_owned());
    cells
}

/// The explained gaps: they are no problem, but an operator may look for these records.
fn gaps(lines: &mut Vec<String>, processes: &[Value]) {
    let all = processes.iter().flat_map(|one| items(&one["gaps"]).iter().map(move |gap| (one, gap)));
    let gaps: Vec<(&Value, &Value)> = all.filter(|(_, gap)| EXPLAINED.contains(&text(&gap["reason"]))).collect();
    if !gaps.is_empty() {
        lines.extend([String::new(), "Explained gaps:".to_owned()]);
    }
    for (one, gap) in gaps.iter().take(SHOWN) {
        let why = reason(text(&gap["reason"]));
        lines.push(format!("  {} {}, {}: {why}", text(&one["boot_id"]), span(gap), between(gap)));
    }
    if gaps.len() > SHOWN {
        lines.push(format!("  … and {} more", gaps.len() - SHOWN));
    }
}

fn notes(lines: &mut Vec<String>, found: &Value) {
    let mut notes = Vec::new();
    let waiting = items(&found["processes"]).iter().filter(|one| one["state"] == "waiting_for_a_listener");
    let (records, requests) = waiting.fold((0, 0), |(records, requests), one| {
        (records + number(&one["in_queue"]), requests + number(&one["in_flight"]))
    });
    if records + requests > 0 {
        let (records, requests) = (count(records, "record", "records"), count(requests, "request", "requests"));
        notes.push(format!(
            "{records} and {requests} in flight of processes that have ended wait for a listener, or for \
             inference-logging recover"
        ));
    }
    let of_segments = items(&found["notes"]).iter();
    notes.extend(of_segments.map(|note| format!("{}: {}", safe(text(&note["segment"])), safe(text(&note["text"])))));
    if !notes.is_empty() {
        lines.extend([String::new(), "Worth knowing, no fault:".to_owned()]);
    }
    lines.extend(notes.iter().take(SHOWN).map(|note| format!("  {note}")));
    if notes.len() > SHOWN {
        lines.push(format!("  … and {} more", notes.len() - SHOWN));
    }
}

fn what_was_read(found: &Value) -> String {
    let (segments, chain) = (&found["segments"], &found["chain"]);
    let (seconds, megabytes) = (found["seconds"].as_f64().unwrap_or(0.0), number(&segments["bytes"]) as f64 / 1e6);
    let tenths = (megabytes * 10.0).round_ties_even() as u64;
    let mut words = format!(
        "Read {} ({} compressed, {} live), {} lines, {}.{} MB in {seconds:.2} s ({} MB/s).",
        count(number(&segments["files"]), "segment", "segments"),
        segments["compressed"],
        segments["live"],
        grouped(number(&segments["lines"])),
        grouped(tenths / 10),
        tenths % 10,
        grouped((megabytes / seconds.max(1e-9)).round_ties_even() as u64),
    );
    if !chain.is_null() {
        let key = if chain["keyed"] == true { "with" } else { "without" };
        let over = count(number(&chain["segments"]), "segment", "segments");
        let _ = write!(words, " Chain: {} {key} a key, over {over}.", text(&chain["algorithm"]));
        for one in items(&chain["last"]) {
            let _ = write!(words, "\nLast value, of {}: {}", safe(text(&one["segment"])), text(&one["value"]));
        }
    }
    words
}

fn reason(name: &str) -> &str {
    match name {
        "retention" => "removed by retention",
        "torn" => "torn: the process was killed while it wrote them",
        "corrupt" => "corrupt: could not be read in the queue",
        "line_removed" => "lines were removed from a sealed segment",
        "segment_missing" => "a whole segment is missing, and no segments.removed record names it",
        "shutdown_deadline" => {
            "left in the queue at a shutdown; if that queue still exists, run inference-logging recover"
        }
        "unknown" => "nothing says why",
        other => other,
    }
}

fn state(name: &str) -> &str {
    match name {
        "closed" => "ended in order",
        "died" => "died (recovered)",
        "waiting_for_a_listener" => "ended, its queue waits for a listener",
        "removed" => "all its records were removed by retention",
        "end_unknown" => "no sign of its end, and no queue",
        other => other,
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn span(of: &Value) -> String {
    let (first, last) = (number(&of["first"]), number(&of["last"]));
    if first == last {
        return format!("seq {first}");
    }
    format!("seq {first} to {last} ({} records)", grouped(last - first + 1))
}

fn between(gap: &Value) -> String {
    let or = |time: &Value, other: &str| time.as_str().filter(|time| !time.is_empty()).unwrap_or(other).to_owned();
    format!("after {}, before {}", or(&gap["from"], "the beginning"), or(&gap["to"], "the end"))
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// A number with a comma after every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
