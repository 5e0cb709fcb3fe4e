//! What differs between operating systems, and nothing else: every call that POSIX does not have is one of these.
//!
//! [`linux`] is what production runs on. [`portable`] does the same with what POSIX and macOS have, for development:
//! waits poll, writing back is a full sync, and memory is given back when it is unmapped. The feature `portable` takes it
//! on Linux as well, so that the same tests hold for both.

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod linux;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub use linux::*;

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
mod portable;
#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
pub use portable::*;

/// The threads that can wake a sleeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Threads of one process.
    Process,
    /// Every process that maps the word.
    Shared,
}
