//! All tests of the crate in one program.

// By the name that the other crates of the workspace use.
extern crate inferlog_parameters as parameters;

mod by_line;
