//! The models that loom explores: every interleaving of the ring and of the slots, as one program.

#![cfg(loom)]

mod ring;
mod slots;
