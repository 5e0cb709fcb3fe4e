//! Which segments there are to read.

use crate::segment::{Form, SegmentName};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// A segment in a directory, in one form or both.
#[derive(Clone, Debug)]
pub struct Listed {
    pub directory: PathBuf,
    pub name: SegmentName,
    /// The plain form is there: it is the one to read.
    pub plain: bool,
    pub compressed: bool,
    pub disk_bytes: u64,
}

impl Listed {
    /// The path of a form.
    #[must_use]
    pub fn path(&self, form: Form) -> PathBuf {
        self.directory.join(self.name.file_name(form))
    }
}

/// Lists the segments of a directory in the order of their beginning, each once; with `prefixes`, only of those.
///
/// # Errors
/// The directory cannot be read.
pub fn list(directory: &Path, prefixes: &[String]) -> io::Result<Vec<Listed>> {
    let mut found = BTreeMap::<SegmentName, Listed>::new();
    for entry in std::fs::read_dir(directory)?.flatten() {
        let Some((name, form)) = entry.file_name().to_str().and_then(SegmentName::parse_file) else { continue };
        let wanted = form != Form::Temporary && (prefixes.is_empty() || prefixes.contains(&name.prefix));
        let Some(facts) = entry.metadata().ok().filter(|facts| wanted && facts.is_file()) else { continue };
        let directory = directory.to_owned();
        let new = Listed { directory, name: name.clone(), plain: false, compressed: false, disk_bytes: 0 };
        let listed = found.entry(name).or_insert(new);
        listed.plain |= form == Form::Plain;
        listed.compressed |= form == Form::Compressed;
        listed.disk_bytes += facts.len();
    }
    Ok(found.into_values().collect())
}
