//! Retention, quota and compression: rounds in real directories, on an operating system that fails or dies on command.

mod bench;
mod compression;
mod damage;
mod last;
mod limits;
mod rotation;
mod shipped;
mod spans;
