//! The ring and the slots against models; loom's tests are a program of their own.

#![cfg(not(loom))]

mod model;
mod slots;
