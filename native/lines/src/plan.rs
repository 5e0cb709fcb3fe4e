//! What the encoder derives from an event's schema once, so that a record costs a copy: its name and its keys as encoded
//! JSON, and what the fields of a request mean for rates and histograms.

use crate::json::escape;
use crate::rate::RateFields;
use crate::series::observe::Roles;
use queue::event::{EventSchema, MODEL_REQUEST, REQUEST};

/// How the records of one event become lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinePlan {
    /// The event.
    pub schema: EventSchema,
    /// `,"field":` of each field, escaped.
    pub keys: Vec<Box<[u8]>>,
    /// The name as a JSON string, quotes included.
    pub name_json: Box<[u8]>,
    /// What the fields of a request mean for the histograms; empty for other events.
    pub roles: Roles,
    /// Those that rates are made of; none of other events.
    pub rates: RateFields,
}

impl LinePlan {
    /// Whether the records are those of requests.
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
