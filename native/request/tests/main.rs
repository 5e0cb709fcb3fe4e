//! All tests of the content of a request's record as one program.

mod budget;
mod capture;
mod golden_layout;
mod ids;
mod in_flight;
mod ratio;
mod route_pattern;
mod sampler;
mod trace_state;
