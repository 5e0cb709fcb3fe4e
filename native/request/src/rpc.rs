//! The status of a call over gRPC, which stands in the trailers of its answer.
//!
//! Names, and which of them are failures of the server: gRPC's list of status codes, and OpenTelemetry's conventions for it.

/// The status of a call, if the request is one.
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
