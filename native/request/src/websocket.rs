//! The record of a WebSocket connection. It is an event of its own, since a connection of an hour would distort the
//! times of the requests.

/// The name of the event.
pub const NAME: &str = "websocket.connection";

/// Its fields, in the order of their values. The last three are there only after an exception.
pub const FIELDS: [&str; 21] = [
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
    "exception.type",
    "exception.message",
    "exception.stacktrace",
];
