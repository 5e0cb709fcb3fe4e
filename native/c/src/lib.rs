//! The C library `libinferlog`: the functions of `inferlog.h`, over the same producer, observer and listener as the Python
//! module's.
//!
//! Rules of every function: no panic leaves it; a null pointer where an object is expected is refused; a text is a pointer
//! with a length. An emit takes no lock, and allocates nothing for a record of up to 2,048 bytes.
//!
//! An open log is never freed: a thread may still hold it when another one closes it. A closed log refuses records and
//! counts them.

mod emit;
mod failure;
mod log;
mod message;
#[cfg(feature = "requests")]
mod request;

pub use emit::{
    Event, Kind, Record, Scalar, Value, inferlog_emit, inferlog_push, inferlog_record_begin, inferlog_record_commit,
    inferlog_register,
};
pub use failure::{Text, inferlog_last_error};
pub use log::{
    ABI_VERSION, Log, Stats, inferlog_abi_version, inferlog_close, inferlog_flush, inferlog_open, inferlog_open_file,
    inferlog_stats,
};
#[cfg(not(feature = "requests"))]
pub use message::Request;
pub use message::{Attribute, inferlog_message};
#[cfg(feature = "requests")]
pub use request::{
    End, Ids, Model, Request, RequestStart, Tensor, inferlog_request_answer, inferlog_request_begin,
    inferlog_request_body, inferlog_request_chunk, inferlog_request_disconnect, inferlog_request_emit,
    inferlog_request_end, inferlog_request_header, inferlog_request_ids, inferlog_request_tensors,
};
