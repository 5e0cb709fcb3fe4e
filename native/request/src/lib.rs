//! The content of a request's record, whichever server the request came through.
//!
//! ```text
//! requests                     the beginning of a request: decision, overrides, slot
//!   ├ observer                 one request: ids, texts, timeline, outcome, the terminal record
//!   ├ events                   what the events of an answer add to it, and which of them report a failure
//!   ├ in_flight                its slot of the flight recorder: facts, and the terminal record of one whose process died
//!   └ sampler                  which requests are recorded: ratio, callers, route_pattern, budget
//! runtime                      an operator's temporary overrides
//! fields                       the fields of the record, in groups
//! capture                      which texts are kept, and how they are packed
//! websocket                    the fields of a WebSocket connection
//! ids, outcome                 W3C Trace Context and this package's ids; how a request ended, gRPC's status too
//! ```

pub mod added;
pub mod block;
pub mod budget;
pub mod callers;
pub mod capture;
pub mod events;
pub mod fields;
pub mod ids;
pub mod in_flight;
pub mod observer;
pub mod outcome;
pub mod ratio;
pub mod requests;
pub mod route_pattern;
pub mod runtime;
pub mod sampler;
pub mod websocket;
