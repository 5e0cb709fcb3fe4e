//! What the caller knows about a request at its end.

use crate::fields::{Engine, Served, Tensors, Usage};
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
