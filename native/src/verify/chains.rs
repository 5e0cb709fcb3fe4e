//! Whether chained segments link: each header names the value at the end of another segment, and no two the same.

use super::listing::Listed;
use super::report::{Problem, path_of};
use super::scan::Found;
use crate::chain::{START, Value};
use serde_json::{Value as Json, json};
use std::collections::HashMap;

/// Checks the links; returns what was checked, and what does not fit.
pub fn check(listed: &[Listed], found: &[Found]) -> (Json, Vec<Problem>) {
    let mut by_directory = HashMap::<_, Vec<usize>>::new();
    for (at, one) in listed.iter().enumerate().filter(|(at, _)| found[*at].links.is_some()) {
        by_directory.entry((&one.directory, &one.name.prefix)).or_default().push(at);
    }
    let mut problems = Vec::new();
    for chained in by_directory.values() {
        problems.extend(unchecked(chained, listed, found));
        problems.extend(unlinked(chained, listed, found));
    }
    let chained: usize = by_directory.values().map(Vec::len).sum();
    let first = found.iter().find_map(|found| found.links.as_ref());
    let json = first.map(|links| {
        json!({"segments": chained, "algorithm": links.algorithm.name(), "keyed": links.keyed, "checked": links.checked})
    });
    (json.unwrap_or(Json::Null), problems)
}

fn unchecked(chained: &[usize], listed: &[Listed], found: &[Found]) -> Option<Problem> {
    let at = chained.iter().find(|at| found[**at].links.as_ref().is_some_and(|links| !links.checked))?;
    let text = "its chain has a key: give it with --chain-key-file, or nothing is proven".to_owned();
    Some(Problem::of_segment("chain_unchecked", &listed[*at], text))
}

fn unlinked(chained: &[usize], listed: &[Listed], found: &[Found]) -> Vec<Problem> {
    let links = |at: usize| found[at].links.as_ref();
    let ends: HashMap<Value, usize> = chained.iter().filter_map(|at| Some((links(*at)?.last, *at))).collect();
    let mut taken = HashMap::<Value, usize>::new();
    let mut problems = Vec::new();
    for (position, at) in chained.iter().enumerate() {
        let Some(links) = links(*at).filter(|links| links.checked) else { continue };
        if let Some(other) = taken.insert(links.previous, *at) {
            let text = format!("it follows the same line as {}", path_of(&listed[other]));
            problems.push(Problem::of_segment("chain_broken", &listed[*at], text));
        } else if position > 0 && (links.previous == START || !ends.contains_key(&links.previous)) {
            let before = path_of(&listed[chained[position - 1]]);
            let text = format!("it does not follow the end of {before}: lines or segments between them are missing");
            problems.push(Problem::of_segment("chain_broken", &listed[*at], text));
        }
    }
    problems
}
