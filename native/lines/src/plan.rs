//! What the encoder derives once from an event's schema, so that a record costs a copy: the name and the keys as
//! encoded JSON, and the meaning of a request's fields for rates and histograms.

use crate::json::escape;
use crate::rate::RateFields;
use crate::series::EngineFields;
use crate::series::observe::Roles;
use queue::event::{EventSchema, MODEL_REQUEST, REQUEST};
use request::fields::MEMBERS;
use request::websocket;

/// The way from records of one event to lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinePlan {
    /// The event.
    pub schema: EventSchema,
    /// The key of each field.
    pub keys: Vec<Key>,
    /// The name as a JSON string, quotes included.
    pub name_json: Box<[u8]>,
    /// The meaning of a request's fields for the histograms; empty for other events.
    pub roles: Roles,
    /// Where the members are that the configuration adds to a request or a WebSocket connection.
    pub members: Option<usize>,
    /// The fields of a request that count for rates; none for other events.
    pub rates: RateFields,
    /// Where statistics of an engine have their fields; None for other events.
    pub engine: Option<EngineFields>,
}

impl LinePlan {
    /// Whether these are records of requests.
    #[must_use]
    pub fn is_request(&self) -> bool {
        !self.roles.is_empty()
    }
}

impl From<EventSchema> for LinePlan {
    fn from(schema: EventSchema) -> Self {
        let is_request = matches!(schema.id, REQUEST | MODEL_REQUEST);
        let mut name_json = Vec::new();
        escape::push_string(&mut name_json, schema.name.as_bytes());
        let roles = if is_request { Roles::of_request(&schema.fields) } else { Roles::default() };
        let rates = if is_request { RateFields::of_request(&schema.fields) } else { RateFields::default() };
        let has_members = is_request || schema.name == websocket::NAME;
        let members = schema.fields.iter().position(|field| has_members && field == MEMBERS);
        let keys = schema.fields.iter().enumerate();
        let keys = keys.map(|(at, field)| Key::of(field, roles.are_observed_at(at) || rates.are_at(at)));
        let engine = EngineFields::of(&schema);
        Self { keys: keys.collect(), name_json: name_json.into(), roles, members, rates, engine, schema }
    }
}

/// Longer than any key of a request.
const PADDED_KEY_BYTES: usize = 48;

/// `,"field":`, escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    text: Box<[u8]>,
    /// The text and zeros, if it is not longer: a copy of fixed size is faster than one of any size.
    padded: [u8; PADDED_KEY_BYTES],
    /// The field's value counts for rates or histograms.
    pub is_counted: bool,
}

impl Key {
    fn of(field: &str, is_counted: bool) -> Self {
        let mut text = vec![b','];
        escape::push_string(&mut text, field.as_bytes());
        text.push(b':');
        let mut padded = [0; PADDED_KEY_BYTES];
        if let Some(start) = padded.get_mut(..text.len()) {
            start.copy_from_slice(&text);
        }
        Self { text: text.into(), padded, is_counted }
    }

    /// Appends it.
    #[inline(always)]
    pub fn push(&self, out: &mut Vec<u8>) {
        if self.text.len() > PADDED_KEY_BYTES {
            return out.extend_from_slice(&self.text);
        }
        let end = out.len() + self.text.len();
        out.extend_from_slice(&self.padded);
        out.truncate(end);
    }
}
