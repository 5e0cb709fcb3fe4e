//! The names of OpenTelemetry's GenAI conventions, of which two versions differ: the one table of what is renamed.
//!
//! The lines have the names of version 1.41, the last that was published with the general conventions. Those after it have
//! no version yet ("next").

use crate::catalogue::derived::CACHE_CREATION_TOKENS;

/// Which version's names a line has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Semconv {
    /// Version 1.41.
    #[default]
    Published,
    /// The unreleased names.
    Next,
}

/// Names of version 1.41, and what replaces them.
const RENAMED: [(&str, &str); 1] = [(CACHE_CREATION_TOKENS.name, "gen_ai.usage.cache_write.input_tokens")];

impl Semconv {
    /// The version with this name: `1.41` or `next`.
    #[must_use]
    pub fn named(name: &str) -> Self {
        if name == "next" { Self::Next } else { Self::Published }
    }

    /// The name in this version of what version 1.41 calls `name`.
    #[must_use]
    pub fn name(self, name: &'static str) -> &'static str {
        match self {
            Self::Published => name,
            Self::Next => RENAMED.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new),
        }
    }
}
