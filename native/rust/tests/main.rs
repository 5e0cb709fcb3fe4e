//! What a Rust program records: by itself, and behind the layer of tower over HTTP/1.1 and 2.

mod events;
mod layer;
mod server;
mod streams;
