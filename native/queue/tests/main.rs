//! All tests of queue files, records and event schemas as one program.

mod support;

mod configuration;
mod golden_record;
mod published;
mod record;
mod room;
