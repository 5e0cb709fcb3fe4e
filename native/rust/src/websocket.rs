//! A WebSocket connection whose bytes pass by: its messages and bytes both ways, and how it was closed.
//!
//! Only the headers of frames are read (RFC 6455, section 5.2). A connection is always recorded, whatever the sampler says
//! of requests. Its record comes with its end; a process that is killed leaves none.

use crate::log::Log;
use queue::event::{ERROR, INFO, WARN};
use queue::record::Scratch;
use queue::system::now_monotonic_nano;
use request::added::AddedFields;
use request::fields::{Field, Path};
use request::ids::RequestIds;
use request::websocket::{FIELDS, NAME, push_added};

const NORMAL: [u16; 3] = [1000, 1001, 1005];
/// The connection was lost without a close.
const LOST: u16 = 1006;
const INTERNAL_ERROR: u16 = 1011;
const SERVICE_RESTART: u16 = 1012;
const NANO: f64 = 1e9;

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// What is known of a connection at its beginning.
#[derive(Clone, Debug)]
pub struct ConnectionStart {
    pub path: String,
    pub protocol_version: &'static str,
    pub client_address: String,
}

/// A connection. Dropped without an end of either side, it ends as one that the server has given up.
pub struct Connection {
    log: Log,
    ids: RequestIds,
    start: ConnectionStart,
    /// The recorded headers of its handshake.
    added: AddedFields,
    started: u64,
    status: u16,
    subprotocol: String,
    received: Frames,
    sent: Frames,
    /// Who closed it first, and with which code.
    closed: Option<(Side, Option<u16>)>,
}

impl Connection {
    /// Begins a connection; None if logging is switched off. `headers`: name and value of each header of the handshake, of
    /// which `record_headers` are recorded.
    #[must_use]
    pub fn begin(log: Log, ids: RequestIds, start: ConnectionStart, headers: &[(&[u8], &[u8])]) -> Option<Self> {
        let started = now_monotonic_nano();
        let added = || AddedFields::of(log.requests.settings.recorded.of_headers(headers));
        (!log.service.runtime.is_off()).then(|| Self::new(log, ids, start, added(), started))
    }

    pub(crate) fn new(log: Log, ids: RequestIds, start: ConnectionStart, added: AddedFields, started: u64) -> Self {
        Self {
            log,
            ids,
            start,
            added,
            started,
            status: 0,
            subprotocol: String::new(),
            received: Frames::default(),
            sent: Frames::default(),
            closed: None,
        }
    }

    /// The server answers the handshake.
    pub fn answer(&mut self, status: u16, subprotocol: &str) {
        (self.status, self.subprotocol) = (status, subprotocol.to_owned());
        if status != 101 {
            self.closed = Some((Side::Server, None));
        }
    }

    /// Bytes of one side pass.
    pub fn pass(&mut self, from: Side, bytes: &[u8]) {
        let frames = if from == Side::Client { &mut self.received } else { &mut self.sent };
        frames.push(bytes);
        if let Some(code) = frames.closed
            && self.closed.is_none()
        {
            self.closed = Some((from, Some(code)));
        }
    }

    /// One side ends its stream of bytes.
    pub fn end(&mut self, side: Side) {
        if self.closed.is_none() {
            self.closed = Some((side, Some(LOST)));
        }
    }

    fn outcome(&self) -> (&'static str, &'static str, u8) {
        match self.closed {
            None => ("server_shutdown", "", WARN),
            Some((Side::Server, Some(LOST))) => ("error", "connection_lost", ERROR),
            Some((Side::Server, Some(INTERNAL_ERROR))) => ("error", "", ERROR),
            Some((Side::Server, _)) if self.status >= 500 => ("error", "", ERROR),
            Some((Side::Server, _)) => ("ok", "", INFO),
            Some((Side::Client, Some(SERVICE_RESTART))) => ("server_shutdown", "", WARN),
            Some((Side::Client, Some(code))) if NORMAL.contains(&code) => ("ok", "", INFO),
            Some((Side::Client, _)) => ("client_disconnect", "", WARN),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let producer = &self.log.service.producer;
        let Ok(event) = producer.register_form(NAME, &FIELDS.map(str::to_owned), true) else { return };
        let (outcome, error_type, severity) = self.outcome();
        let mut to = Scratch::new();
        to.push_trace(&self.ids.trace);
        self.ids.push_request_id(&mut to);
        self.ids.push_client_request_id(&mut to);
        outcome.push(&mut to);
        error_type.push(&mut to);
        Path(self.start.path.as_bytes()).push(&mut to);
        "".push(&mut to);
        self.start.protocol_version.push(&mut to);
        self.start.client_address.as_str().push(&mut to);
        (self.status > 0).then_some(u64::from(self.status)).push(&mut to);
        self.subprotocol.as_str().push(&mut to);
        for count in [self.received.messages, self.received.bytes, self.sent.messages, self.sent.bytes] {
            count.push(&mut to);
        }
        self.closed.and_then(|(_, code)| code).map(u64::from).push(&mut to);
        self.closed.map_or("", |(side, _)| side.name()).push(&mut to);
        (now_monotonic_nano().saturating_sub(self.started) as f64 / NANO).push(&mut to);
        push_added(&self.added, producer.max_record_bytes(), &mut to);
        producer.emit(event, severity, to.as_slice());
    }
}

const CONTINUATION: u8 = 0;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const NO_STATUS: u16 = 1005;

/// The frames of one side, counted as their bytes pass, in pieces of any size.
#[derive(Debug, Default)]
struct Frames {
    /// The header of the frame that comes, as far as it has come.
    header: [u8; 14],
    filled: usize,
    /// Bytes of the payload that have not come.
    left: u64,
    /// The first bytes of a close frame's payload.
    reason: Vec<u8>,
    messages: u64,
    bytes: u64,
    /// The code of its close frame.
    closed: Option<u16>,
}

impl Frames {
    fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.filled < self.header_bytes() {
                self.header[self.filled] = bytes[0];
                self.filled += 1;
                bytes = &bytes[1..];
                if self.filled == self.header_bytes() {
                    self.begin();
                }
                continue;
            }
            let (payload, rest) = bytes.split_at(self.left.min(bytes.len() as u64) as usize);
            self.take(payload);
            bytes = rest;
        }
    }

    /// The length of the header, as far as its first bytes say.
    fn header_bytes(&self) -> usize {
        if self.filled < 2 {
            return 2;
        }
        let length = match self.header[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + if self.is_masked() { 4 } else { 0 }
    }

    const fn is_masked(&self) -> bool {
        self.header[1] & 0x80 != 0
    }

    const fn opcode(&self) -> u8 {
        self.header[0] & 0x0f
    }

    /// The header is whole.
    fn begin(&mut self) {
        let big_endian = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        self.left = match self.header[1] & 0x7f {
            126 => big_endian(&self.header[2..4]),
            127 => big_endian(&self.header[2..10]),
            short => u64::from(short),
        };
        let is_last = self.header[0] & 0x80 != 0;
        if is_last && (CONTINUATION..=BINARY).contains(&self.opcode()) {
            self.messages += 1;
        }
        if self.left == 0 {
            self.finish();
        }
    }

    fn take(&mut self, payload: &[u8]) {
        match self.opcode() {
            CONTINUATION..=BINARY => self.bytes += payload.len() as u64,
            CLOSE => self.reason.extend(payload.iter().take(2_usize.saturating_sub(self.reason.len()))),
            _ => (),
        }
        self.left -= payload.len() as u64;
        if self.left == 0 {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if self.opcode() == CLOSE {
            let mask = if self.is_masked() { &self.header[self.header_bytes() - 4..] } else { &[0; 2] };
            self.closed = Some(match self.reason[..] {
                [high, low] => u16::from_be_bytes([high ^ mask[0], low ^ mask[1]]),
                _ => NO_STATUS,
            });
        }
        self.filled = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::Frames;

    /// A frame with a payload of zeros, masked by `mask` if it comes from a client.
    fn frame(first: u8, length: usize, mask: Option<[u8; 4]>) -> Vec<u8> {
        let bit = if mask.is_some() { 0x80 } else { 0 };
        let mut frame = vec![first];
        match length {
            0..126 => frame.push(bit | length as u8),
            126..65_536 => {
                frame.push(bit | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            _ => {
                frame.push(bit | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(mask.unwrap_or_default().iter().take(if mask.is_some() { 4 } else { 0 }));
        frame.resize(frame.len() + length, 0);
        frame
    }

    #[test]
    fn messages_and_bytes_are_counted_in_pieces_of_any_size() {
        let mask = Some([1, 2, 3, 4]);
        let stream = [
            frame(0x81, 5, mask),      // a text
            frame(0x02, 300, mask),    // the first part of a binary message
            frame(0x89, 4, mask),      // a ping between its parts
            frame(0x80, 70_000, mask), // its last part
            frame(0x82, 0, None),      // an empty one
        ]
        .concat();
        for piece in [1, 2, 3, 7, 1000, stream.len()] {
            let mut frames = Frames::default();
            stream.chunks(piece).for_each(|bytes| frames.push(bytes));
            assert_eq!((frames.messages, frames.bytes, frames.closed), (3, 70_305, None), "pieces of {piece}");
        }
    }

    #[test]
    fn the_code_of_a_close_is_unmasked() {
        let mut masked = frame(0x88, 2, Some([0xaa, 0xbb, 0xcc, 0xdd]));
        let end = masked.len();
        masked[end - 2..].copy_from_slice(&[0x03 ^ 0xaa, 0xe9 ^ 0xbb]);
        for (stream, code) in [(masked, 1001), (frame(0x88, 0, None), 1005)] {
            let mut frames = Frames::default();
            stream.chunks(1).for_each(|bytes| frames.push(bytes));
            assert_eq!(frames.closed, Some(code));
        }
    }
}
