//! All tests of what a request's record says as one program.

mod budget;
mod capture;
mod golden_layout;
mod ids;
mod in_flight;
mod ratio;
mod route_pattern;
mod sampler;
mod trace_state;
