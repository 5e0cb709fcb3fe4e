//! What a Rust program records: by itself, and behind the layer of tower over HTTP/1.1 and 2.

mod disconnects;
mod events;
mod example;
mod layer;
mod probes;
mod rpc;
mod server;
mod streams;
