//! The pattern of queue directories: an absolute path in which `{name}` stands for any one part.
//!
//! `/queues/{k8s.namespace.name}/{k8s.pod.name}/queues` finds one directory for each pod. No link is followed from the
//! first `{name}` on: what is below is written by others.

use std::fs::{read_dir, symlink_metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The form of the paths of queue directories.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// What stands before the first name.
    root: PathBuf,
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    Fixed(String),
    /// Any part; the name of the attribute that gets it.
    Any(String),
}

/// A directory that has the form of the pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub path: PathBuf,
    /// What stands for each name of the pattern.
    pub attributes: Vec<(String, String)>,
    /// The user and the group that own it.
    pub owner: (u32, u32),
}

impl Found {
    /// What stands for the names, with slashes between: the directory's name in messages and metrics, and the path of
    /// its segments below `directory`.
    pub fn name(&self) -> String {
        self.attributes.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join("/")
    }
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A sentence: it is not absolute, has no name, a name twice or one that is not between the slashes alone.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with('/') {
            return Err("must be an absolute path".to_owned());
        }
        let parts = text.split('/').filter(|part| !part.is_empty()).map(part).collect::<Result<Vec<_>, _>>()?;
        let first = parts.iter().position(|part| matches!(part, Part::Any(_))).ok_or("must have a {name}")?;
        let (before, parts) = parts.split_at(first);
        let mut names: Vec<&str> = parts.iter().filter_map(Part::name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        if names.len() < all {
            return Err("must have each name once".to_owned());
        }
        let root = before.iter().fold(PathBuf::from("/"), |path, part| match part {
            Part::Fixed(part) | Part::Any(part) => path.join(part),
        });
        Ok(Self { root, parts: parts.to_vec() })
    }

    /// How many names it has: so deep below `directory` are the segments.
    pub fn depth(&self) -> usize {
        self.parts.iter().filter(|part| part.name().is_some()).count()
    }

    /// The directories that there are, in the order of their names.
    pub fn find(&self) -> Vec<Found> {
        let owned = self.find_parts(&self.parts).into_iter().filter_map(|(path, attributes)| {
            let facts = symlink_metadata(&path).ok()?;
            Some(Found { path, attributes, owner: (facts.uid(), facts.gid()) })
        });
        owned.collect()
    }

    /// The directories of the last name, in which queue directories come and go. None, where these are the same.
    pub fn unused(&self) -> Vec<PathBuf> {
        let last = self.parts.iter().rposition(|part| part.name().is_some()).unwrap_or_default();
        if last + 1 == self.parts.len() {
            return Vec::new();
        }
        self.find_parts(&self.parts[..=last]).into_iter().map(|(path, _)| path).collect()
    }

    fn find_parts(&self, parts: &[Part]) -> Vec<(PathBuf, Attributes)> {
        let mut found = vec![(self.root.clone(), Vec::new())];
        for part in parts {
            found = found.into_iter().flat_map(|(path, known)| below(&path, part, &known)).collect();
        }
        found
    }
}

impl Part {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Fixed(_) => None,
            Self::Any(name) => Some(name),
        }
    }
}

fn part(text: &str) -> Result<Part, String> {
    if matches!(text, "." | "..") {
        return Err("must not have . or .. as a part".to_owned());
    }
    if !text.contains(['{', '}']) {
        return Ok(Part::Fixed(text.to_owned()));
    }
    let name = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(format!("{text:?} must be {{name}}, of letters, digits, '.', '_' and '-'"));
    }
    Ok(Part::Any(name.to_owned()))
}

type Attributes = Vec<(String, String)>;

/// The directories of a part. Links and hidden ones are left out.
fn below(path: &Path, part: &Part, known: &Attributes) -> Vec<(PathBuf, Attributes)> {
    match part {
        Part::Fixed(part) => {
            let path = path.join(part);
            if is_directory(&path) { vec![(path, known.clone())] } else { Vec::new() }
        }
        Part::Any(name) => subdirectories(path)
            .into_iter()
            .map(|value| {
                let mut attributes = known.clone();
                let path = path.join(&value);
                attributes.push((name.clone(), value));
                (path, attributes)
            })
            .collect(),
    }
}

/// The names of the directories in a directory, sorted. Links and hidden ones are left out.
pub fn subdirectories(path: &Path) -> Vec<String> {
    let entries = read_dir(path).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut names: Vec<String> = directories.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort_unstable();
    names
}

fn is_directory(path: &Path) -> bool {
    symlink_metadata(path).is_ok_and(|facts| facts.is_dir())
}

#[cfg(test)]
mod tests {
    use super::Pattern;
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    #[test]
    fn it_finds_one_directory_for_each_pod_and_follows_no_link() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for path in ["chat/a/queues", "chat/b/other", "chat/.c/queues", "tools/d/queues"] {
            create_dir_all(at(path)).unwrap();
        }
        write(at("chat/e"), "a file").unwrap();
        symlink(at("chat/a"), at("tools/f")).unwrap();
        create_dir_all(at("tools/g")).unwrap();
        symlink(at("chat/a/queues"), at("tools/g/queues")).unwrap();
        let text = format!("{}/{{namespace}}/{{pod}}/queues", root.path().display());
        let pattern = Pattern::parse(&text).unwrap();
        let found = pattern.find();
        assert_eq!(found.iter().map(super::Found::name).collect::<Vec<_>>(), ["chat/a", "tools/d"]);
        assert_eq!(found[0].path, at("chat/a/queues"));
        assert_eq!(found[0].attributes[1], ("pod".to_owned(), "a".to_owned()));
        assert_eq!(pattern.depth(), 2);
    }

    #[test]
    fn a_wrong_pattern_is_refused() {
        for (text, why) in [
            ("queues/{pod}", "absolute"),
            ("/queues", "{name}"),
            ("/queues/{pod}/../{namespace}", ".."),
            ("/queues/x{pod}", "must be {name}"),
            ("/queues/{}", "must be {name}"),
            ("/queues/{pod}/{pod}", "each name once"),
        ] {
            assert!(Pattern::parse(text).unwrap_err().contains(why), "{text}");
        }
    }
}
