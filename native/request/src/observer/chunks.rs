//! The detail in which a stream is recorded.

/// The detail in which a stream's timing is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    Off,
    /// Count, time to the first chunk, least, mean and largest gap.
    Summary,
    /// Summary and each gap, up to a limit.
    Timeline,
    /// Summary and a `request.chunk` record for each chunk.
    Events,
}

impl Chunks {
    /// The mode with this name in configurations.
    ///
    /// # Errors
    /// A sentence that names the value.
    pub fn named(name: &str) -> Result<Self, String> {
        match name {
            "off" => Ok(Self::Off),
            "summary" => Ok(Self::Summary),
            "timeline" => Ok(Self::Timeline),
            "events" => Ok(Self::Events),
            other => Err(format!("chunks={other:?}: must be off, summary, timeline or events")),
        }
    }

    /// The mode with this code in the run-time control: the place in this list.
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Off,
            1 => Self::Summary,
            2 => Self::Timeline,
            _ => Self::Events,
        }
    }
}
