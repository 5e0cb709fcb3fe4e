//! The ring and the slots against models; loom's tests are a program of their own.

#![cfg(not(loom))]

// By the name that the other crates of the workspace use.
extern crate inferlog_ring as ring;

mod model;
mod slots;
