//! What both readers of a configuration have in common: sizes, and the words of a refusal.

use std::fmt;

/// Longest value that a sentence shows whole, in characters.
const LONGEST_VALUE: usize = 120;

/// Returns the sentence about a name that is none of the `known` ones, with the one that may be meant.
pub fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let nearest = known.map(|known| (distance(known, name), known)).min_by_key(|(distance, _)| *distance);
    match nearest.filter(|(distance, _)| 2 * distance <= name.len()) {
        Some((_, nearest)) => format!("{name}: unknown parameter, the nearest known is {nearest}"),
        None => format!("{name}: unknown parameter"),
    }
}

/// A value as JSON, cut where it is long.
pub fn shown(json: &str) -> String {
    match json.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}…", &json[..end]),
        None => json.to_owned(),
    }
}

/// Reads a size such as `16777216`, `16MiB`, `16 Mi` or `16 MB`; None: it has another form.
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim_matches([' ', '\t', '\n', '\r', '\x0c', '\x0b']);
    let (digits, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let unit = unit.trim_start_matches([' ', '\t', '\n', '\r', '\x0c', '\x0b']).to_ascii_uppercase();
    let factor = match unit.strip_suffix('B').unwrap_or(&unit) {
        "KI" => 1 << 10,
        "MI" => 1 << 20,
        "GI" => 1 << 30,
        "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "" => 1,
        _ => return None,
    };
    let is_number = !digits.is_empty();
    is_number.then(|| digits.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(factor))
}

/// The edit distance of two names: bytes inserted, removed or replaced.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, wanted) in one.bytes().enumerate() {
        let mut before = line;
        row[0] = line + 1;
        for (column, found) in other.bytes().enumerate() {
            let changed = before + usize::from(wanted != found);
            before = row[column + 1];
            row[column + 1] = changed.min(before + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

/// The problems of a configuration. Retrying never helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParametersError {
    /// One for each problem: it begins with the parameter, and names the value and what is allowed.
    pub sentences: Vec<String>,
}

impl ParametersError {
    /// The parameters at fault, in the order of the sentences.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        let is_of_name = |byte: char| byte.is_ascii_alphanumeric() || byte == '_';
        self.sentences.iter().map(move |sentence| {
            let end = sentence.find(|byte| !is_of_name(byte)).unwrap_or(sentence.len());
            &sentence[..end]
        })
    }
}

impl From<Vec<String>> for ParametersError {
    fn from(sentences: Vec<String>) -> Self {
        Self { sentences }
    }
}

impl fmt::Display for ParametersError {
    /// One sentence a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentences.join("\n"))
    }
}

impl std::error::Error for ParametersError {}
