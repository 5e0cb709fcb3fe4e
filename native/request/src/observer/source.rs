//! What the caller knows of a request at its end.

use crate::fields::{Engine, Served, Tensors, Usage};

/// What the caller knows of a request at its end.
#[derive(Clone, Copy, Debug)]
pub enum RequestSource<'a> {
    /// It came over HTTP.
    Http {
        /// What the server said of it.
        texts: RequestTexts<'a>,
        /// What the engine behind the server said, if anything.
        engine: Option<&'a EngineFacts<'a>>,
    },
    /// A model of Triton served it.
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
    /// The engine gave the request up.
    pub aborted: bool,
    /// Its tokens.
    pub usage: Usage,
    /// The rest of it.
    pub engine: Engine<'a>,
}

/// What a model of Triton had of a request.
#[derive(Clone, Copy, Debug)]
pub struct ModelFacts<'a> {
    /// The model.
    pub served: Served<'a>,
    /// Inputs and outputs.
    pub tensors: Tensors<'a>,
    /// Tokens, if the model has reported any.
    pub usage: Option<Usage>,
}
