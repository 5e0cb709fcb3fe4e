//! OpenTelemetry's severity numbers, as far as the records of this package use them.

pub const INFO: u8 = 9;
pub const WARN: u8 = 13;
pub const ERROR: u8 = 17;
