//! The sinks by their names in the configuration, and how each is opened.

use super::datagram::{DatagramSink, UnixSink};
use super::stdout::{self, ConsoleSink};
use super::{FileSink, FileSinkConfig, NullSink, OpenError, Sink, StdoutSink};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where lines go.
#[derive(Clone, Debug)]
pub enum SinkSettings {
    /// Segments in the configured directory.
    File(FileSinkConfig),
    /// Segments in another directory.
    Directory(FileSinkConfig),
    Stdout,
    Stderr,
    /// One datagram per line, to `host:port`.
    Udp(String),
    /// A stream of lines, or one datagram per line, depending on the socket.
    Unix(PathBuf),
    /// Text for people on standard error, perhaps in colour.
    Console {
        colours: bool,
    },
    /// Takes everything and keeps nothing: for measurement.
    Null,
    /// A sink that the host program provides.
    Other(Other),
}

/// A sink of the host program: its name, and how it is opened.
#[derive(Clone)]
pub struct Other {
    pub name: String,
    pub open: Arc<dyn Fn() -> Box<dyn Sink> + Send + Sync>,
}

impl fmt::Debug for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Other({:?})", self.name)
    }
}

impl SinkSettings {
    /// Reads `file`, `stdout`, `stderr`, `null`, `udp://host:port`, `unix:///path` or `file:///directory`; `segments`
    /// has the other settings of a file sink.
    #[must_use]
    pub fn parse(text: &str, segments: &FileSinkConfig) -> Option<Self> {
        let absolute = |path: &str| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
        Some(match text {
            "file" => Self::File(segments.clone()),
            "stdout" => Self::Stdout,
            "stderr" => Self::Stderr,
            "null" => Self::Null,
            _ => match text.split_once("://")? {
                ("udp", address) if address.contains(':') => Self::Udp(address.to_owned()),
                ("unix", path) => Self::Unix(absolute(path)?),
                ("file", path) => Self::Directory(FileSinkConfig { dir: absolute(path)?, ..segments.clone() }),
                _ => return None,
            },
        })
    }

    /// Its name in the configuration.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(_) => "file".to_owned(),
            Self::Directory(config) => format!("file://{}", config.dir.display()),
            Self::Stdout => "stdout".to_owned(),
            Self::Stderr => "stderr".to_owned(),
            Self::Udp(address) => format!("udp://{address}"),
            Self::Unix(path) => format!("unix://{}", path.display()),
            Self::Console { .. } => stdout::NAME.to_owned(),
            Self::Null => "null".to_owned(),
            Self::Other(other) => other.name.clone(),
        }
    }

    /// Opens it; segments bear the listener's `boot_id`.
    ///
    /// # Errors
    /// The parameter at fault. A socket whose other end is not there yet is no error.
    pub fn open(&self, boot_id: u64) -> Result<Box<dyn Sink>, OpenError> {
        Ok(match self {
            Self::File(config) | Self::Directory(config) => {
                let mut config = config.clone();
                config.boot_id = format!("{boot_id:016x}");
                Box::new(FileSink::open(config)?)
            }
            Self::Stdout => Box::new(StdoutSink::open()?),
            Self::Stderr => Box::new(StdoutSink::stderr()?),
            Self::Udp(address) => Box::new(DatagramSink::udp(address.clone())),
            Self::Unix(path) => Box::new(UnixSink::new(path.clone())),
            Self::Console { colours } => Box::new(ConsoleSink::open(*colours)?),
            Self::Null => Box::new(NullSink::new()),
            Self::Other(other) => (other.open)(),
        })
    }

    /// The directory of segments, if it writes any.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::File(config) | Self::Directory(config) => Some(&config.dir),
            _ => None,
        }
    }
}

/// Every sink of a listener.
#[derive(Clone, Debug)]
pub struct DeliverySettings {
    pub primary: SinkSettings,
    pub fallback: Option<SinkSettings>,
    /// How long the primary fails or hangs before the fallback takes over.
    pub fallback_delay: Duration,
    pub additional: Vec<SinkSettings>,
    /// Buffer of each additional sink.
    pub buffer_bytes: usize,
}

impl DeliverySettings {
    /// Directories of segments that any of the sinks writes.
    #[must_use]
    pub fn directories(&self) -> Vec<PathBuf> {
        let all = std::iter::once(&self.primary).chain(&self.fallback).chain(&self.additional);
        all.filter_map(SinkSettings::directory).map(Path::to_owned).collect()
    }
}

impl From<SinkSettings> for DeliverySettings {
    fn from(primary: SinkSettings) -> Self {
        let fallback_delay = Duration::from_secs(5);
        Self { primary, fallback: None, fallback_delay, additional: Vec::new(), buffer_bytes: 8 << 20 }
    }
}
