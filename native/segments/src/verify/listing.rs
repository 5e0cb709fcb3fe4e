//! What there is to read: the segments of directories, and stores of lines that are not segments, such as an SQLite database.
//! The program that can read one passes its lines in.

use crate::segment::{Form, SegmentName};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens a store for one reading of its lines, each ended by `\n`, in the order of their chain.
pub type Open = Arc<dyn Fn() -> io::Result<Box<dyn io::Read>> + Send + Sync>;

/// A store of lines: one prefix, and one chain over all of them.
#[derive(Clone)]
pub struct Database {
    pub path: PathBuf,
    pub prefix: String,
    pub open: Open,
}

impl Database {
    /// The directory that it lies in.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({})", self.path.display())
    }
}

/// A segment in a directory, in one form or both.
#[derive(Clone, Debug)]
pub struct Listed {
    pub directory: PathBuf,
    pub name: SegmentName,
    /// The plain form exists: it is the one to read.
    pub plain: bool,
    pub compressed: bool,
    pub disk_bytes: u64,
    /// Not a segment: the name has only its prefix.
    pub database: Option<Database>,
}

impl Listed {
    /// The path of a form.
    #[must_use]
    pub fn path(&self, form: Form) -> PathBuf {
        match &self.database {
            Some(database) => database.path.clone(),
            None => self.directory.join(self.name.file_name(form)),
        }
    }

    /// A store of lines among the segments.
    #[must_use]
    pub(crate) fn of_database(database: &Database) -> Self {
        let name =
            SegmentName { prefix: database.prefix.clone(), begun_unix_milli: 0, boot_id: String::new(), number: 1 };
        Self {
            directory: database.directory().to_owned(),
            name,
            plain: true,
            compressed: false,
            disk_bytes: std::fs::metadata(&database.path).map_or(0, |facts| facts.len()),
            database: Some(database.clone()),
        }
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
        let new =
            Listed { directory, name: name.clone(), plain: false, compressed: false, disk_bytes: 0, database: None };
        let listed = found.entry(name).or_insert(new);
        listed.plain |= form == Form::Plain;
        listed.compressed |= form == Form::Compressed;
        listed.disk_bytes += facts.len();
    }
    Ok(found.into_values().collect())
}
