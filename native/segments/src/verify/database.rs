//! Stores of lines that are not segments, such as an SQLite database: the program that can read one passes its lines
//! in.

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
