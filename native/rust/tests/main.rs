//! What a Rust program records.
