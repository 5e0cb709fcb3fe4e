//! Checks that chained segments link: each header names the value at the end of the segment before, and no segment
//! among them lacks a chain.
//!
//! A line is proven by the next one, so a chain without a key, or no chain at all, is trusted if a chain with the key
//! follows it. Without the key, one can continue from the last line without a key: so with a key given, each chain must
//! end with it.

use super::listing::Listed;
use super::scan::{Found, Links};
use super::{Problem, path_of};
use crate::chain::{START, Value};
use queue::hex;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The end of the prefix of the audit lane's segments: those have a chain, except with `audit_chain=off`.
const AUDIT: &str = "-audit";

/// The segments of one prefix in one directory, in their order.
struct Series<'a> {
    all: Vec<usize>,
    listed: &'a [Listed],
    found: &'a [Found],
}

/// Checks the links; returns what was checked, and the problems. `has_key`: chains must end with it.
pub fn check(listed: &[Listed], found: &[Found], has_key: bool) -> (Json, Vec<Problem>) {
    let mut by_directory = BTreeMap::<_, Vec<usize>>::new();
    for (at, one) in listed.iter().enumerate().filter(|(at, _)| found[*at].lines > 0) {
        let database = one.database.as_ref().map(|database| &database.path);
        by_directory.entry((&one.directory, &one.name.prefix, database)).or_default().push(at);
    }
    let ends: HashSet<Value> = found.iter().filter_map(|found| Some(found.links.as_ref()?.last)).collect();
    let (mut problems, mut last) = (Vec::new(), Vec::new());
    let mut chained = 0;
    for ((_, prefix, _), all) in by_directory {
        let series = Series { all, listed, found };
        let links: Vec<_> = series.links().collect();
        chained += links.len();
        let must_have_key = has_key && (!links.is_empty() || prefix.ends_with(AUDIT));
        problems.extend(series.unchecked().or_else(|| series.without_key(must_have_key)));
        problems.extend(series.unchained());
        problems.extend(series.unlinked(&ends));
        last.extend(
            links
                .last()
                .filter(|(_, links)| links.checked)
                .map(|(at, links)| json!({"segment": path_of(&listed[*at]), "value": digits(links.last)})),
        );
    }
    let first = found.iter().find_map(|found| found.links.as_ref());
    let json = first.map(|links| {
        let (algorithm, keyed, checked) = (links.algorithm.name(), links.keyed, links.checked);
        json!({"segments": chained, "algorithm": algorithm, "keyed": keyed, "checked": checked, "last": last})
    });
    (json.unwrap_or(Json::Null), problems)
}

fn digits(value: Value) -> String {
    let mut digits = Vec::new();
    hex::push(&mut digits, value);
    String::from_utf8_lossy(&digits).into_owned()
}

impl<'a> Series<'a> {
    fn links(&self) -> impl Iterator<Item = (usize, &'a Links)> {
        self.all.iter().filter_map(|at| Some((*at, self.found[*at].links.as_ref()?)))
    }

    fn problem(&self, kind: &'static str, at: usize, text: &str) -> Problem {
        Problem::of_segment(kind, &self.listed[at], text.to_owned())
    }

    fn unchecked(&self) -> Option<Problem> {
        let (at, _) = self.links().find(|(_, links)| !links.checked)?;
        Some(self.problem(
            "chain_unchecked",
            at,
            "its chain has a key: give it with --chain-key-file, or nothing is proven",
        ))
    }

    fn without_key(&self, must_have_key: bool) -> Option<Problem> {
        let at = *self.all.last().filter(|_| must_have_key)?;
        let text =
            "its chain does not end with the key that was given: anyone who can write here can have written it all";
        let is_keyed = self.found[at].links.as_ref().is_some_and(|links| links.keyed);
        (!is_keyed).then(|| self.problem("chain_without_key", at, text))
    }

    fn unchained(&self) -> Option<Problem> {
        let (first, _) = self.links().next()?;
        let behind = self.all.iter().skip_while(|at| **at != first);
        let at = *behind.into_iter().find(|at| self.found[**at].links.is_none())?;
        let text = "it has no chain, though one before it has: with audit_chain=off, take another audit_directory";
        Some(self.problem("chain_missing", at, text))
    }

    /// `ends`: of all segments that were read. A chain can continue in this directory from another one.
    fn unlinked(&self, ends: &HashSet<Value>) -> Vec<Problem> {
        let mut before: Option<(usize, &Links)> = None;
        let mut problems = Vec::new();
        for (at, links) in self.links().filter(|(_, links)| links.checked) {
            let text = match before.replace((at, links)) {
                None if links.previous == START || ends.contains(&links.previous) => continue,
                None => "the chain does not begin with it: the segments before it are missing".to_owned(),
                Some((_, before)) if links.previous == before.last => continue,
                Some((before, _)) => format!(
                    "it does not follow the end of {}: lines or segments between them are missing, or it is none of them",
                    path_of(&self.listed[before])
                ),
            };
            problems.push(self.problem("chain_broken", at, &text));
        }
        problems
    }
}

// Segments that were sealed and have lost their footer.
//
// A listener begins a segment only once the one before has a footer, or was given up, which the header of the next one
// says. So a segment without a footer was cut, if the listener's next one does not name it as given up.

/// Finds them. `listed` is in the order of beginning, within a directory.
pub fn missing(listed: &[Listed], found: &[Found]) -> Vec<Problem> {
    let mut before = HashMap::<_, usize>::new();
    let mut problems = Vec::new();
    for (at, one) in listed.iter().enumerate().filter(|(_, one)| one.database.is_none()) {
        let Some(last) = before.insert((&one.directory, &one.name.prefix, &one.name.boot_id), at) else { continue };
        let number = listed[last].name.number;
        let is_next = one.name.number == number + 1 && found[at].lines > 0;
        let is_open = !found[last].sealed && !found[last].live;
        if is_open && is_next && found[at].abandoned != Some(number) {
            let text = "its listener has sealed it, and its footer is gone: its end was cut off";
            problems.push(Problem::of_segment("footer_missing", &listed[last], text.to_owned()));
        }
    }
    problems
}
