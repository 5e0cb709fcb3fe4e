//! A lane as a process sees it that takes no part in it: no queue of its own, and no listener.

use super::lane::{LaneState, Source};
use crate::sink::Now;
use queue::control::Control;
use std::io;
use std::path::{Path, PathBuf};

/// The lane of a queue directory, from outside.
pub struct Outside {
    /// The queue directory.
    pub directory: PathBuf,
    pub control: Control,
}

impl Outside {
    /// Opens what the directory's processes publish.
    ///
    /// # Errors
    /// `NotFound`: no process of this version has used the directory; otherwise its page cannot be mapped.
    pub fn open(directory: &Path) -> io::Result<Self> {
        Ok(Self { directory: directory.to_owned(), control: Control::find(directory)? })
    }
}

impl Source for Outside {
    fn read(&self, now: Now) -> LaneState {
        LaneState::outside(&self.directory, self.control, now)
    }
}
