//! The fields of a request's record: one line each, in groups, and a record is a row of groups.
//!
//! A group is declared by [`group!`](crate::group): a line gives a field's key in the JSON, the member that holds its
//! value, and what it means. The struct, the list of names and the code that appends the values come from that one line,
//! and nothing counts places. To add a field:
//!
//! 1. give it a line in its group;
//! 2. fill the member where the group is made, and name it in `observer::plain` if a plain request has it: the compiler asks
//!    for both;
//! 3. print `docs/request.md` anew, which a test asks for.
//!
//! A request over HTTP and one that a model of Triton serves are events of their own, both named `request`. The record
//! of a process that died is made by name (`in_flight::terminal`): a new field is absent there unless its slot knows it.
//!
//! What an application sets of a request stands in one field, `attributes`. Its own records (`log`, and the events that it
//! registers) have lists that the application gives.

use crate::capture::Captured;
use crate::outcome::Outcome;
use crate::sampler::SampledBy;
pub use group::{Field, FieldInfo, Group};
use queue::event::{ADJUSTED_COUNT, EventSchema, MODEL_REQUEST, REQUEST, REQUEST_CHUNK};
use queue::record::Trace;
pub use values::{Attributes, Correlation, Exact, Gaps, Json, MembersValue, Path, Rest, Route, TextList, Unwritten};
pub use values::{MAX_PATH_BYTES, MAX_ROUTE_BYTES, MAX_TEXT_BYTES};

mod group;
mod values;

/// The members that the configuration adds: each stands in the line under its own name.
pub const MEMBERS: &str = "members";
/// Seconds from the first chunk to the last one: the listener makes rates of it (`lines::rate`).
pub const CHUNKS_S: &str = "chunks_s";

crate::group! {
    /// Which request it is.
    pub struct Identity<'a> {
        /// The request's own span; stands in the line as the ids of W3C Trace Context.
        "trace" => trace: &'a Trace,
        /// This package's id of the request: 16 hex digits.
        "request_id" => request_id: [u8; 16],
        /// The client's `X-Request-Id`, if it sent a valid one.
        "client_request_id" => client_request_id: Option<&'a [u8]>,
    }
}

crate::group! {
    /// How it ended.
    pub struct End<'a> {
        /// `ok`, `error`, `client_disconnect`, `timeout`, `server_shutdown`, `aborted` or `process_died`.
        "outcome" => outcome: Outcome [few],
        /// Class of the exception that ended it, the type that a stream reported, or what else went wrong.
        "error.type" => error_type: &'a str [few],
    }
}

crate::group! {
    /// The request and its answer as HTTP has them.
    pub struct Http<'a> {
        /// The method.
        "http.request.method" => method: &'a str [few],
        /// The path, without the query.
        "url.path" => path: Path<'a>,
        /// Template of the route that was taken.
        "http.route" => route: Route<'a> [few],
        /// Version of HTTP.
        "network.protocol.version" => protocol_version: &'a str [few],
        /// Address of the client, as the server reports it.
        "client.address" => client_address: &'a str,
        /// The status, if the answer has begun.
        "http.response.status_code" => status: Option<u64>,
        /// Bytes of the request's body that the application has read.
        "http.request.body.size" => request_bytes: u64,
        /// Bytes of the answer's body, where they are known.
        "http.response.body.size" => response_bytes: Option<u64>,
    }
}

crate::group! {
    /// How long it took.
    pub struct Duration {
        /// Seconds until the last part of the answer.
        "duration_s" => seconds: f64,
    }
}

crate::group! {
    /// What the application did behind a whole answer.
    pub struct AfterResponse<'a> {
        /// Seconds from the last part of the answer until the application was done.
        "after_response_s" => seconds: Option<f64>,
        /// How the work after the answer failed.
        "after_response_outcome" => outcome: Option<Outcome> [few],
        /// Class of the exception there.
        "after_response_error_type" => error_type: &'a str [few],
    }
}

crate::group! {
    /// The chunks of a stream.
    #[derive(Default)]
    pub struct Stream<'a> {
        /// Events with content, reasoning or a tool call; parts of the body if it has no events.
        "chunks" => chunks: Option<u64>,
        /// Seconds until the first one.
        "gen_ai.response.time_to_first_chunk" => first_s: Option<f64>,
        /// Least gap between two, microseconds.
        "chunk_gap_min_us" => gap_min: Option<u64>,
        /// Mean gap, microseconds.
        "chunk_gap_mean_us" => gap_mean: Option<u64>,
        /// Largest gap, microseconds.
        "chunk_gap_max_us" => gap_max: Option<u64>,
        /// Each gap, microseconds, of `chunks: timeline`.
        "chunk_gaps_us" => gaps: Gaps<'a>,
        /// How many further gaps there were.
        "chunk_gaps_truncated" => gaps_truncated: Option<u64>,
        /// Seconds from the first chunk to the last one, for the rates.
        CHUNKS_S => span: Unwritten,
        /// Seconds until the first byte of a stream's body.
        "time_to_first_byte_s" => first_byte_s: Option<f64>,
        /// Seconds until the first reasoning, if that was not the first chunk.
        "gen_ai.response.time_to_first_reasoning" => first_reasoning_s: Option<f64>,
        /// Seconds until the first tool call, if that was not the first chunk.
        "gen_ai.response.time_to_first_tool_call" => first_tool_call_s: Option<f64>,
        /// Comments, pings and empty lines that kept the connection alive.
        "stream.keep_alives" => keep_alives: Option<u64>,
        /// Events that frame the content, such as a role, usage or the end.
        "stream.frames" => frames: Option<u64>,
        /// The stream was compressed, so that its chunks are parts of the body.
        "stream.compressed" => is_compressed: Option<bool>,
        /// Code of the failure that the stream reported.
        "error.code" => error_code: &'a str,
    }
}

crate::group! {
    /// What was asked and answered; the listener reads `gen_ai.request.*` and `gen_ai.response.*` from the bodies.
    pub struct GenAi<'a> {
        /// What the path asks for, such as `chat`.
        "gen_ai.operation.name" => operation: &'static str [few],
        /// The request's body.
        "request_body" => request: Option<&'a mut Captured>,
        /// The answer's body.
        "response_body" => response: Option<&'a mut Captured>,
    }
}

crate::group! {
    /// Why it is on record.
    pub struct Sampling {
        /// `head`, `error`, `slow`, `abort` or `forced`.
        "sampled_by" => by: SampledBy [few],
        /// How many requests it stands for, where that is known.
        ADJUSTED_COUNT => count: Option<f64>,
    }
}

crate::group! {
    /// What the configuration and the application add.
    #[derive(Clone, Copy, Debug)]
    pub struct Added<'a> {
        /// Headers and members of the body, for the listener.
        MEMBERS => members: MembersValue<'a>,
        /// Fields that the application has set with `current_request().set()`.
        "attributes" => attributes: Attributes<'a>,
    }
}

crate::group! {
    /// Tokens as reported by the engine or the model; those of the answer itself go before.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Usage {
        /// Tokens that were read.
        "gen_ai.usage.input_tokens" => input: Option<u64>,
        /// Tokens that were generated.
        "gen_ai.usage.output_tokens" => output: Option<u64>,
        /// Tokens of the input that were found in a cache.
        "gen_ai.usage.cache_read.input_tokens" => cached: Option<u64>,
        /// Source of the counts: `response`, `engine` or `model`.
        "usage_source" => source: &'static str [few],
    }
}

crate::group! {
    /// The engine behind the server.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Engine<'a> {
        /// Its id of the request.
        "engine.request_id" => request_id: Exact<'a>,
        /// Engine requests: one for each prompt and choice.
        "engine.requests" => requests: Option<u64>,
        /// Why each of them ended.
        "engine.finish_reasons" => finish_reasons: Option<TextList<'a>>,
        /// Seconds in the queue, of the longest.
        "engine.queued_s" => queued_s: Option<f64>,
        /// Seconds of prefill, of the longest.
        "engine.prefill_s" => prefill_s: Option<f64>,
        /// Seconds of decoding, of the longest.
        "engine.decode_s" => decode_s: Option<f64>,
        /// Seconds in the engine, of the longest.
        "engine.e2e_s" => e2e_s: Option<f64>,
        /// How often they gave way to others.
        "engine.preemptions" => preemptions: Option<u64>,
    }
}

crate::group! {
    /// The model of Triton that served it, as known at its beginning: a slot holds the values of this group.
    #[derive(Clone, Copy, Debug)]
    pub struct Served<'a> {
        /// Name of the model.
        "triton.model_name" => name: Exact<'a> [few],
        /// Its version.
        "triton.model_version" => version: Exact<'a> [few],
        /// Its instance.
        "triton.model_instance_name" => instance: Exact<'a> [few],
        /// Requests of the batch.
        "triton.batch_size" => batch_size: u64,
        /// Place in the batch, from 0.
        "triton.batch_position" => batch_position: u64,
        /// Triton's id of a sequence of requests.
        "triton.correlation_id" => correlation: Correlation<'a>,
    }
}

crate::group! {
    /// What a model of Triton was given, and what it gave back.
    #[derive(Clone, Copy, Debug)]
    pub struct Tensors<'a> {
        /// Parameters of the request that `triton_parameters` names.
        "triton.parameters" => parameters: Option<Json<'a>>,
        /// Name, type and shape of each input.
        "triton.inputs" => inputs: Option<Json<'a>>,
        /// The same of each output of the first response.
        "triton.outputs" => outputs: Option<Json<'a>>,
    }
}

crate::group! {
    /// The exception that ended it.
    pub struct Exception<'a> {
        /// Its class.
        "exception.type" => kind: Rest<'a> [few],
        /// Its message.
        "exception.message" => message: Rest<'a>,
        /// Its stack.
        "exception.stacktrace" => stacktrace: Rest<'a>,
    }
}

crate::group! {
    /// The call over gRPC that it was.
    pub struct Rpc<'a> {
        /// `grpc`.
        "rpc.system.name" => system: &'static str [few],
        /// Service and method, such as `inference.GRPCInferenceService/ModelInfer`.
        "rpc.method" => method: Path<'a> [few],
        /// Name of the call's status, such as `OK` or `UNAVAILABLE`.
        "rpc.response.status_code" => status: &'static str [few],
    }
}

crate::group! {
    /// One chunk of a stream.
    pub struct Chunk<'a> {
        /// The request's own span.
        "trace" => trace: &'a Trace,
        /// This package's id of the request.
        "request_id" => request_id: [u8; 16],
        /// Number of the chunk, from 1.
        "chunk" => number: u64,
        /// Its bytes, where they are known.
        "bytes" => bytes: Option<u64>,
        /// Seconds since the request began.
        "since_start_s" => since_start_s: f64,
    }
}

crate::record! {
    /// A request over HTTP.
    pub struct HttpRecord<'a> {
        identity: Identity<'a>,
        end: End<'a>,
        http: Http<'a>,
        duration: Duration,
        after_response: AfterResponse<'a>,
        stream: Option<Stream<'a>>,
        gen_ai: GenAi<'a>,
        sampling: Sampling,
    } at the end if any {
        added: Added<'a>,
        usage: &'a Usage,
        engine: &'a Engine<'a>,
        exception: Exception<'a>,
        rpc: Rpc<'a>,
    }
}

crate::record! {
    /// A request that a model of Triton serves.
    pub struct ModelRecord<'a> {
        identity: Identity<'a>,
        end: End<'a>,
        duration: Duration,
        stream: Option<Stream<'a>>,
        sampling: Sampling,
        added: Option<Added<'a>>,
        usage: Option<Usage>,
        served: Served<'a>,
        tensors: Tensors<'a>,
    } at the end if any {
        exception: Exception<'a>,
    }
}

/// The schemas of the events here, for a producer's queue.
#[must_use]
pub fn schemas() -> Vec<EventSchema> {
    let schema = |id, name, fields: Vec<FieldInfo>| {
        let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
        EventSchema::new(id, name, &names).expect("names of fields keep the rules")
    };
    vec![
        schema(REQUEST, "request", HttpRecord::fields()),
        schema(REQUEST_CHUNK, "request.chunk", Chunk::FIELDS.to_vec()),
        schema(MODEL_REQUEST, "request", ModelRecord::fields()),
    ]
}

/// The fields of requests, of whichever server: each once.
#[must_use]
pub fn of_requests() -> Vec<FieldInfo> {
    let mut fields = HttpRecord::fields();
    let others = ModelRecord::fields().into_iter().filter(|field| !fields.contains(field)).collect::<Vec<_>>();
    fields.extend(others);
    fields
}
