//! What the caller knows about a request at its end, the exception that ended it included.

use super::Observer;
use crate::fields::{Engine, Exception, Rest, Served, Tensors, Usage};
use crate::outcome::Abort;

/// What the caller knows about a request at its end.
#[derive(Clone, Copy, Debug)]
pub enum RequestSource<'a> {
    /// The request came over HTTP.
    Http {
        /// The server's texts about it.
        texts: RequestTexts<'a>,
        /// The report of the engine behind the server, if there is one.
        engine: Option<&'a EngineFacts<'a>>,
    },
    /// A model of Triton served the request.
    Model(ModelFacts<'a>),
}

/// Texts of the request that the caller still holds at its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestTexts<'a> {
    pub method: &'a str,
    pub path: &'a [u8],
    pub route_prefix: &'a str,
    pub route: &'a str,
    pub protocol_version: &'a str,
    pub client_address: &'a str,
}

/// What an inference engine reports at a request's end.
#[derive(Clone, Copy, Debug)]
pub struct EngineFacts<'a> {
    /// Whether the engine gave the request up.
    pub aborted: Abort,
    /// Its tokens.
    pub usage: Usage,
    /// The rest of the report.
    pub engine: Engine<'a>,
}

/// What a model of Triton knows about a request.
#[derive(Clone, Copy, Debug)]
pub struct ModelFacts<'a> {
    /// The model.
    pub served: Served<'a>,
    /// Inputs and outputs.
    pub tensors: Tensors<'a>,
    /// Tokens, if the model has reported any.
    pub usage: Option<Usage>,
}

/// Type, message and stack of an exception.
#[derive(Debug)]
pub struct ExceptionTexts {
    pub kind: String,
    /// Empty: not recorded; the same for the stack.
    pub message: String,
    pub stacktrace: String,
}

impl ExceptionTexts {
    /// Removes the texts that can quote the request.
    pub fn withhold(&mut self) {
        self.message.clear();
        self.stacktrace.clear();
    }

    /// The fields, cut to the room of a record of at most so many bytes.
    #[must_use]
    pub fn within(&self, record_bytes: usize) -> Exception<'_> {
        let [kind, message, stacktrace] =
            [&self.kind, &self.message, &self.stacktrace].map(|text| Rest { text, record_bytes });
        Exception { kind, message, stacktrace }
    }
}

impl Observer {
    /// The request is about to end with an exception.
    pub fn raise(&mut self, exception: ExceptionTexts) {
        self.unusual = true;
        self.exception = Some(Box::new(exception));
    }
}
