//! What the encoder derives once from an event's schema, so that a record costs a copy: the name and the keys as
//! encoded JSON, and the meaning of a request's fields for rates and histograms.

use crate::json::escape;
use crate::rate::RateFields;
use crate::series::observe::Roles;
use queue::event::{EventSchema, MODEL_REQUEST, REQUEST};

/// The way from records of one event to lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinePlan {
    /// The event.
    pub schema: EventSchema,
    /// `,"field":` of each field, escaped.
    pub keys: Vec<Box<[u8]>>,
    /// The name as a JSON string, quotes included.
    pub name_json: Box<[u8]>,
    /// The meaning of a request's fields for the histograms; empty for other events.
    pub roles: Roles,
    /// The fields of a request that count for rates; none for other events.
    pub rates: RateFields,
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
        Self {
            keys: schema.fields.iter().map(|field| key(field)).collect(),
            name_json: name_json.into(),
            roles: if is_request { Roles::of_request(&schema.fields) } else { Roles::default() },
            rates: if is_request { RateFields::of_request(&schema.fields) } else { RateFields::default() },
            schema,
        }
    }
}

fn key(field: &str) -> Box<[u8]> {
    let mut key = vec![b','];
    escape::push_string(&mut key, field.as_bytes());
    key.push(b':');
    key.into()
}
