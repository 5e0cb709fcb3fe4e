//! The record of a WebSocket connection. It is an event of its own, since a connection of an hour would distort the
//! times of the requests.

use crate::added::AddedFields;
use crate::fields::{Added, Attributes, Group, MEMBERS, MembersValue};
use queue::record::Scratch;

/// The name of the event.
pub const NAME: &str = "websocket.connection";

/// Its fields, in the order of their values. The last three are there only after an exception.
pub const FIELDS: [&str; 23] = [
    "trace",
    "request_id",
    "client_request_id",
    "outcome",
    "error.type",
    "url.path",
    "http.route",
    "network.protocol.version",
    "client.address",
    "http.response.status_code",
    "websocket.subprotocol",
    "websocket.messages_received",
    "websocket.bytes_received",
    "websocket.messages_sent",
    "websocket.bytes_sent",
    "websocket.close_code",
    "websocket.closed_by",
    "duration_s",
    MEMBERS,
    "attributes",
    "exception.type",
    "exception.message",
    "exception.stacktrace",
];

/// Appends what the configuration and the application add: the values behind `duration_s`.
pub fn push_added(added: &AddedFields, record_bytes: usize, to: &mut Scratch) {
    Added {
        members: MembersValue { members: added.members.as_bytes(), more: b"", record_bytes },
        attributes: Attributes { map: added.attributes(), record_bytes },
    }
    .push(to);
}
