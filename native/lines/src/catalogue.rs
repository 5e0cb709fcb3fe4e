//! The catalogue: each field of a record, with type, unit, meaning and source. Tables, pages and schemas read it.
//!
//! A field that a server fills is declared in [`request::fields`]. All others are declared here: a field that the listener
//! derives has one line in [`derived`](crate::catalogue::derived), and the code that writes it takes its key from there.

use derived::CACHE_CREATION_TOKENS;
use request::added;
use request::fields::{self, FieldInfo, Group};

/// The writer of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The beginning of every line.
    Head,
    /// The server, into the record of a request.
    Server,
    /// The listener, into the record of a request: read from bodies, derived, or configured.
    Listener,
    /// An application's logger.
    Log,
    /// The header of a segment, for each of its records.
    Resource,
    /// Another event: a chunk, or the state of an engine.
    Event,
}

impl Source {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Server => "server",
            Self::Listener => "listener",
            Self::Log => "log",
            Self::Resource => "resource",
            Self::Event => "event",
        }
    }
}

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key in the line.
    pub name: &'static str,
    pub source: Source,
    /// Its type in SQL; empty if the line has no such key.
    pub column: &'static str,
    /// What it means, in a sentence of Markdown.
    pub meaning: &'static str,
    /// Whether its texts are few, so that a table stores each only once.
    pub has_few_values: bool,
}

impl Entry {
    /// Its unit as UCUM writes it; empty if it has none. The name says it.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        let ends = |ends: &[&str]| ends.iter().any(|end| self.name.ends_with(end));
        match self.name {
            "bytes" => "By",
            "chunks" => "{chunk}",
            _ if ends(&["tokens_per_second", "tokens_per_s"]) => "{token}/s",
            _ if ends(&["_tokens", ".max_tokens"]) => "{token}",
            _ if ends(&["_us"]) => "us",
            _ if ends(&["_s", ".time_per_output_token"]) => "s",
            name if name.starts_with("gen_ai.response.time_to_first_") => "s",
            _ if ends(&["body.size", "file.size"]) => "By",
            _ => "",
        }
    }
}

/// All fields, in the order of their sources; a name stands once.
#[must_use]
pub fn fields() -> Vec<Entry> {
    let of_server =
        |fields: &[FieldInfo], source| -> Vec<_> { fields.iter().map(|field| of_server(field, source)).collect() };
    let server = of_server(&fields::of_requests(), Source::Server);
    let chunks = of_server(fields::Chunk::FIELDS, Source::Event);
    let mut all: Vec<Entry> = Vec::new();
    for group in [HEAD, &server, derived::FIELDS, ADDED, LOG, RESOURCE, &chunks, WEBSOCKET, ENGINE] {
        all.extend(group);
    }
    let mut seen = std::collections::HashSet::new();
    all.retain(|entry| seen.insert(entry.name));
    all
}

fn of_server(field: &FieldInfo, source: Source) -> Entry {
    let FieldInfo { name, column, meaning, has_few_values } = *field;
    Entry { name, source, column, meaning: meaning.trim_ascii(), has_few_values }
}

/// One entry for each line: the meaning, the key and the type. `few`: its values are few.
macro_rules! entries {
    ($source:ident: $( $(#[doc = $meaning:literal])+ $name:expr, $column:literal $([$few:ident])?; )+) => {
        &[$( Entry {
            name: $name,
            source: Source::$source,
            column: $column,
            meaning: concat!($($meaning),+).trim_ascii(),
            has_few_values: entries!(@ $($few)?),
        }, )+]
    };
    (@) => { false };
    (@ few) => { true };
}

const HEAD: &[Entry] = entries! { Head:
    /// When the record was made: of a request, when it had ended. UTC.
    "timestamp", "TIMESTAMP";
    /// Severity: DEBUG, INFO, WARN, ERROR, FATAL.
    "severity_text", "VARCHAR" [few];
    /// Kind of the record: `request`, `log`, or an event's own name.
    "event_name", "VARCHAR" [few];
    /// Id of one run of a process: 16 hex digits.
    "boot_id", "VARCHAR" [few];
    /// Id of the process, in its own namespace.
    "pid", "BIGINT";
    /// Number of the record in its process, from 0.
    "seq", "UBIGINT";
    /// Id of the trace: 32 hex digits.
    "trace_id", "VARCHAR";
    /// Id of the request's span in the trace: 16 hex digits.
    "span_id", "VARCHAR";
    /// Id of the caller's span.
    "parent_span_id", "VARCHAR";
    /// Flags of W3C Trace Context; 01: sampled.
    "trace_flags", "VARCHAR" [few];
};

const LOG: &[Entry] = entries! { Log:
    /// Name of the logger.
    "logger", "VARCHAR" [few];
    /// The message, as it was formatted.
    "message", "VARCHAR";
};

const RESOURCE: &[Entry] = entries! { Resource:
    /// Name of the service.
    "service.name", "VARCHAR" [few];
    /// Its version.
    "service.version", "VARCHAR" [few];
    /// Id of its instance.
    "service.instance.id", "VARCHAR" [few];
    /// Name of the machine.
    "host.name", "VARCHAR" [few];
    /// Name of the pod.
    "k8s.pod.name", "VARCHAR" [few];
    /// Its namespace.
    "k8s.namespace.name", "VARCHAR" [few];
    /// Name of the node.
    "k8s.node.name", "VARCHAR" [few];
    /// Id of the container.
    "container.id", "VARCHAR" [few];
    /// Environment, such as `production`.
    "deployment.environment.name", "VARCHAR" [few];
};

const ADDED: &[Entry] = entries! { Listener:
    /// The user, as a header or the application says.
    added::USER, "VARCHAR";
    /// Whose request it was, as a header or the application says.
    added::TENANT, "VARCHAR" [few];
    /// Id of the conversation.
    added::CONVERSATION, "VARCHAR";
    /// Keyed hash of the API key.
    added::API_KEY, "VARCHAR";
    /// The client's program, as it says.
    added::USER_AGENT, "VARCHAR" [few];
    /// Name under which the server was called.
    added::SERVER_ADDRESS, "VARCHAR" [few];
    /// Member `user` of the body.
    "openai.request.user", "VARCHAR";
    /// Member `metadata` of the body.
    "openai.request.metadata", "VARCHAR";
    /// Member `prompt_cache_key` of the body.
    "openai.request.prompt_cache_key", "VARCHAR";
    /// Member `safety_identifier` of the body.
    "openai.request.safety_identifier", "VARCHAR";
    /// The body, where it is captured.
    added::WHOLE_BODY, "VARCHAR";
};

const WEBSOCKET: &[Entry] = entries! { Event:
    /// Subprotocol of the WebSocket connection that was agreed on.
    "websocket.subprotocol", "";
    /// Messages that the client sent.
    "websocket.messages_received", "";
    /// Their bytes.
    "websocket.bytes_received", "";
    /// Messages that the server sent.
    "websocket.messages_sent", "";
    /// Their bytes.
    "websocket.bytes_sent", "";
    /// Code with which the connection was closed, such as 1000.
    "websocket.close_code", "";
    /// Which side closed it: `client` or `server`.
    "websocket.closed_by", "";
};

const ENGINE: &[Entry] = entries! { Event:
    /// Number of the engine.
    "engine.index", "";
    /// Length of the interval that the figures are of.
    "engine.interval_s", "";
    /// Requests that were running at its end.
    "engine.running", "";
    /// Requests that were waiting at its end.
    "engine.waiting", "";
    /// Share of the KV cache that was in use at its end, 0 to 1.
    "engine.kv_cache_usage", "";
    /// Tokens that were looked for in the prefix cache.
    "engine.prefix_cache_queries", "";
    /// Tokens that were found in the prefix cache.
    "engine.prefix_cache_hits", "";
    /// Tokens of prompts that were read.
    "engine.prompt_tokens", "";
    /// The same per second.
    "engine.prompt_tokens_per_s", "";
    /// Tokens that were generated.
    "engine.generation_tokens", "";
    /// The same per second.
    "engine.generation_tokens_per_s", "";
    /// Requests that finished.
    "engine.finished", "";
};

/// The fields that the listener derives: a line each, with the constant that the code uses which writes the field.
pub(crate) mod derived {
    use super::{Entry, Source};

    /// The key of a field, and how a member of an object begins with it.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Key {
        pub(crate) name: &'static str,
        /// `,"name":`
        pub(crate) member: &'static str,
    }

    impl Key {
        /// Appends the member with this value, which is JSON.
        pub(crate) fn push(self, out: &mut Vec<u8>, json: &str) {
            out.extend_from_slice(self.member.as_bytes());
            out.extend_from_slice(json.as_bytes());
        }
    }

    macro_rules! derived {
        ($( $(#[doc = $meaning:literal])+ $key:ident = $name:literal, $column:literal $([$few:ident])?; )+) => {
            $(
                $(#[doc = $meaning])+
                pub(crate) const $key: Key = Key { name: $name, member: concat!(",\"", $name, "\":") };
            )+

            pub(super) const FIELDS: &[Entry] = entries! { Listener:
                $( $(#[doc = $meaning])+ $name, $column $([$few])?; )+
            };
        };
    }

    derived! {
        /// Model that was asked for.
        REQUEST_MODEL = "gen_ai.request.model", "VARCHAR" [few];
        /// Whether a stream was asked for.
        REQUEST_STREAM = "gen_ai.request.stream", "BOOLEAN";
        /// Most tokens that may be generated.
        MAX_TOKENS = "gen_ai.request.max_tokens", "BIGINT";
        /// Temperature of sampling.
        TEMPERATURE = "gen_ai.request.temperature", "DOUBLE";
        /// Share of probability that sampling keeps.
        TOP_P = "gen_ai.request.top_p", "DOUBLE";
        /// Tokens that sampling keeps.
        TOP_K = "gen_ai.request.top_k", "DOUBLE";
        /// Seed of sampling.
        SEED = "gen_ai.request.seed", "BIGINT";
        /// Answers that were asked for.
        CHOICE_COUNT = "gen_ai.request.choice.count", "BIGINT";
        /// Texts that end the output.
        STOP_SEQUENCES = "gen_ai.request.stop_sequences", "VARCHAR[]";
        /// Penalty for frequent tokens.
        FREQUENCY_PENALTY = "gen_ai.request.frequency_penalty", "DOUBLE";
        /// Penalty for tokens that occur.
        PRESENCE_PENALTY = "gen_ai.request.presence_penalty", "DOUBLE";
        /// Provider that serves the model, such as `vllm`.
        PROVIDER = "gen_ai.provider.name", "VARCHAR" [few];
        /// Kind of output that was asked for: `text`, `json`, …
        OUTPUT_TYPE = "gen_ai.output.type", "VARCHAR" [few];
        /// Tools that the model may call.
        TOOLS = "gen_ai.tool.definitions", "JSON";
        /// The answer's id.
        RESPONSE_ID = "gen_ai.response.id", "VARCHAR";
        /// Model that answered.
        RESPONSE_MODEL = "gen_ai.response.model", "VARCHAR" [few];
        /// Why each choice ended.
        FINISH_REASONS = "gen_ai.response.finish_reasons", "VARCHAR[]";
        /// Tokens that were read.
        INPUT_TOKENS = "gen_ai.usage.input_tokens", "BIGINT";
        /// Tokens that were generated.
        OUTPUT_TOKENS = "gen_ai.usage.output_tokens", "BIGINT";
        /// Tokens of the input that were found in a cache.
        CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens", "BIGINT";
        /// Tokens of the output that were reasoning.
        REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens", "BIGINT";
        /// Tokens of the input that a cache has taken.
        CACHE_CREATION_TOKENS = "gen_ai.usage.cache_creation.input_tokens", "BIGINT";
        /// Mean time of an output token after the first one.
        TIME_PER_OUTPUT_TOKEN = "gen_ai.response.time_per_output_token", "DOUBLE";
        /// Output tokens per second of `duration_s`.
        OUTPUT_TOKENS_PER_SECOND = "gen_ai.response.output_tokens_per_second", "DOUBLE";
        /// Tokens of the input that were audio.
        AUDIO_INPUT_TOKENS = "gen_ai.usage.audio.input_tokens", "BIGINT";
        /// Tokens of the input that were images.
        IMAGE_INPUT_TOKENS = "gen_ai.usage.image.input_tokens", "BIGINT";
        /// Tokens of the output that were audio.
        AUDIO_OUTPUT_TOKENS = "gen_ai.usage.audio.output_tokens", "BIGINT";
        /// Seconds of audio that were read, as the answer says.
        AUDIO_INPUT_S = "audio_input_s", "DOUBLE";
        /// Source of the counts: `response`, `engine` or `model`.
        USAGE_SOURCE = "usage_source", "VARCHAR" [few];
        /// Whether the body was longer than what is captured.
        BODY_TRUNCATED = "http.request.body.truncated", "BOOLEAN";
        /// Language of a form, such as a transcription's.
        FORM_LANGUAGE = "form.language", "VARCHAR";
        /// Language into which a form's file is translated.
        FORM_TO_LANGUAGE = "form.to_language", "VARCHAR";
        /// Format that a form asks for.
        FORM_RESPONSE_FORMAT = "form.response_format", "VARCHAR";
        /// Size of the image that a form asks for.
        FORM_SIZE = "form.size", "VARCHAR";
        /// Quality that a form asks for.
        FORM_QUALITY = "form.quality", "VARCHAR";
        /// What a file is uploaded for.
        FORM_PURPOSE = "form.purpose", "VARCHAR";
        /// Why the text of the answer is not stored, such as `unknown format`.
        OUTPUT_WITHHELD = "output_withheld", "VARCHAR";
        /// Why facts of a body may be missing: `compressed`.
        BODY_FACTS = "body_facts", "VARCHAR";
        /// Name of the file in a form, as the client says.
        FILE_NAME = "file.name", "VARCHAR";
        /// Its type, as the client says.
        FILE_MIME_TYPE = "file.mime_type", "VARCHAR";
        /// Its bytes, where its beginning and its end were captured.
        FILE_SIZE = "file.size", "BIGINT";
    }
}

// The names of OpenTelemetry's GenAI conventions, of which two versions differ: the one table of what is renamed.
//
// The lines have the names of version 1.41, the last that was published with the general conventions. Those after it have
// no version yet ("next").

/// Which version's names a line has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Semconv {
    /// Version 1.41.
    #[default]
    Published,
    /// The unreleased names.
    Next,
}

/// Names of version 1.41, and what replaces them.
const RENAMED: [(&str, &str); 1] = [(CACHE_CREATION_TOKENS.name, "gen_ai.usage.cache_write.input_tokens")];

impl Semconv {
    /// The version with this name: `1.41` or `next`.
    #[must_use]
    pub fn named(name: &str) -> Self {
        if name == "next" { Self::Next } else { Self::Published }
    }

    /// The name in this version of what version 1.41 calls `name`.
    #[must_use]
    pub fn name(self, name: &'static str) -> &'static str {
        match self {
            Self::Published => name,
            Self::Next => RENAMED.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_a_meaning() {
        for entry in fields() {
            let ends = entry.meaning.ends_with(['.', '…']);
            assert!(ends && !entry.meaning.contains('|'), "{}: {:?}", entry.name, entry.meaning);
        }
    }
}
