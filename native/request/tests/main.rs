//! All tests of the content of a request's record as one program.

// By the name that the other crates of the workspace use.
extern crate inferlog_request as request;

mod added;
mod budget;
mod capture;
mod events;
mod golden_layout;
mod ids;
mod route_pattern;
mod sampler;
