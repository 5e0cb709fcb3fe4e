//! Segments that were sealed and have lost their footer.
//!
//! A listener begins a segment only once the one before has a footer, or was given up, which the header of the next one
//! says. So a segment without a footer was cut, if the listener's next one does not name it as given up.

use super::listing::Listed;
use super::report::Problem;
use super::scan::Found;
use std::collections::HashMap;

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
