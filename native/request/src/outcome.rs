//! How a request ended: the field `outcome` of its terminal record, its severity and `error.type`, the status of a call over gRPC among them.

use queue::event::{ERROR, INFO, WARN};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    Error,
    ClientDisconnect,
    Timeout,
    ServerShutdown,
    /// An operator or an orchestrator had the engine give it up.
    Aborted,
    /// The process died; reported by the listener that recovers its queue.
    ProcessDied,
}

impl Outcome {
    /// Decides from the end of the call and the answer as far as it was seen; also returns the `error.type`, or "".
    #[must_use]
    pub fn of<'a>(ending: Ending<'a>, answer: &Answered<'a>) -> (Self, &'a str) {
        let Answered { status, complete, disconnected, failed, aborted, rpc } = *answer;
        match ending {
            Ending::Returned if disconnected => (Self::ClientDisconnect, ""),
            Ending::Returned if failed.is_some() => (Self::Error, failed.unwrap_or_default()),
            Ending::Returned if aborted == Abort::Asked => (Self::Aborted, "engine_abort"),
            Ending::Returned if aborted == Abort::Engine => (Self::ServerShutdown, "engine_abort"),
            Ending::Returned if !complete => (Self::Error, "response_incomplete"),
            Ending::Returned if rpc.is_timeout() => (Self::Timeout, rpc.error_type()),
            Ending::Returned if rpc.is_failure() => (Self::Error, rpc.error_type()),
            Ending::Returned => match status {
                504 | 408 => (Self::Timeout, ""),
                500.. => (Self::Error, ""),
                _ => (Self::Ok, ""),
            },
            Ending::TimedOut(name) => (Self::Timeout, name),
            Ending::Disconnected(name) => (Self::ClientDisconnect, name),
            Ending::Raised(name) | Ending::Cancelled(name) if disconnected => (Self::ClientDisconnect, name),
            Ending::Raised(name) => (Self::Error, name),
            Ending::Cancelled(name) => (Self::ServerShutdown, name),
        }
    }

    /// The value of the field `outcome`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::ClientDisconnect => "client_disconnect",
            Self::Timeout => "timeout",
            Self::ServerShutdown => "server_shutdown",
            Self::Aborted => "aborted",
            Self::ProcessDied => "process_died",
        }
    }

    /// OpenTelemetry severity number of the terminal record.
    #[must_use]
    pub const fn severity(self) -> u8 {
        match self {
            Self::Ok => INFO,
            Self::ClientDisconnect | Self::ServerShutdown | Self::Aborted => WARN,
            Self::Error | Self::Timeout | Self::ProcessDied => ERROR,
        }
    }
}

/// How a request over HTTP ended: its answer, and the application's work after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended<'a> {
    pub outcome: Outcome,
    /// `error.type`, or "".
    pub error_type: &'a str,
    /// A failure after a good answer, such as a background task's; it does not change the outcome of the answer.
    pub after_response: Option<(Outcome, &'a str)>,
}

impl<'a> Ended<'a> {
    /// Decides as [`Outcome::of`] about the answer, and about what came after it.
    #[must_use]
    pub fn of(ending: Ending<'a>, answer: &Answered<'a>) -> Self {
        let ended = Outcome::of(ending, answer);
        if answer.complete && ending != Ending::Returned && Outcome::of(Ending::Returned, answer).0 == Outcome::Ok {
            return Self { outcome: Outcome::Ok, error_type: "", after_response: Some(ended) };
        }
        Self { outcome: ended.0, error_type: ended.1, after_response: None }
    }

    /// Whether the application failed, at the answer or after it.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.outcomes().any(|outcome| matches!(outcome, Outcome::Error | Outcome::Timeout))
    }

    /// Whether client, operator or shutdown broke it off.
    #[must_use]
    pub(crate) fn was_aborted(&self) -> bool {
        use Outcome::{Aborted, ClientDisconnect, ServerShutdown};
        self.outcomes().any(|outcome| matches!(outcome, ClientDisconnect | ServerShutdown | Aborted))
    }

    /// OpenTelemetry severity number of the terminal record.
    #[must_use]
    pub fn severity(&self) -> u8 {
        self.outcomes().map(Outcome::severity).max().unwrap_or(INFO)
    }

    fn outcomes(&self) -> impl Iterator<Item = Outcome> {
        std::iter::once(self.outcome).chain(self.after_response.map(|(outcome, _)| outcome))
    }
}

/// The answer, as far as it was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answered<'a> {
    /// 0: it has not begun.
    pub status: u16,
    /// All of it has passed.
    pub complete: bool,
    /// The client went away before.
    pub disconnected: bool,
    /// The type of the failure that a stream reported, whatever its status.
    pub failed: Option<&'a str>,
    /// Whether the engine gave the request up, although the client waits.
    pub aborted: Abort,
    /// The status of a call over gRPC.
    pub rpc: RpcStatus,
}

/// Whether an engine gave a request up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Abort {
    #[default]
    No,
    /// By itself, as it does when it stops.
    Engine,
    /// It was asked to, by a call to the server.
    Asked,
}

/// How the application's call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending<'a> {
    Returned,
    /// An exception other than the two below; its class name.
    Raised(&'a str),
    TimedOut(&'a str),
    /// An exception that means that the client is gone.
    Disconnected(&'a str),
    /// Cancelled, or its coroutine thrown away.
    Cancelled(&'a str),
}

/// The status of a call over gRPC, which stands in the trailers of its answer, if the request is one.
///
/// Names, and which of them are failures of the server: gRPC's list of status codes, and OpenTelemetry's conventions for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RpcStatus {
    /// The request is no call over gRPC.
    #[default]
    NoCall,
    /// The answer has no status yet, or none that is a number.
    Missing,
    /// The status.
    Of(u16),
}

const NAMES: [&str; 17] = [
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
];
const UNKNOWN: u16 = 2;
const DEADLINE_EXCEEDED: u16 = 4;
/// Failures of the server; the others are those of the client.
const FAILURES: [u16; 6] = [UNKNOWN, DEADLINE_EXCEEDED, 12, 13, 14, 15];

impl RpcStatus {
    /// Reads the value of the trailer `grpc-status`.
    #[must_use]
    pub fn from_trailer(value: &[u8]) -> Self {
        str::from_utf8(value).ok().and_then(|text| text.parse().ok()).map_or(Self::Missing, Self::Of)
    }

    /// The name; of a number that gRPC does not know, that of the code which clients take it for; empty if there is none.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoCall | Self::Missing => "",
            Self::Of(code) => NAMES.get(usize::from(code)).unwrap_or(&NAMES[usize::from(UNKNOWN)]),
        }
    }

    /// The name as a kind of error: of an answer without a status, clients take it for an unknown one.
    #[must_use]
    pub fn error_type(self) -> &'static str {
        if self == Self::Missing { NAMES[usize::from(UNKNOWN)] } else { self.name() }
    }

    /// Whether the call took too long.
    #[must_use]
    pub(crate) const fn is_timeout(self) -> bool {
        matches!(self, Self::Of(DEADLINE_EXCEEDED))
    }

    /// Whether the server failed. An answer without a status has failed too.
    #[must_use]
    pub fn is_failure(self) -> bool {
        match self {
            Self::NoCall => false,
            Self::Missing => true,
            Self::Of(code) => FAILURES.contains(&code) || usize::from(code) >= NAMES.len(),
        }
    }
}
