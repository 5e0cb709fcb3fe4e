//! The answer while it passes: its beginning, the parts of its body, files, trailers.

use super::stream_events::{is_error_event, is_without_content};
use super::{Observer, ObserverSettings};
use crate::capture::Content;
use crate::rpc::RpcStatus;

impl Observer {
    /// Whether the whole answer has passed.
    #[inline]
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.completed != 0
    }

    /// The server did not take the last part of the answer.
    pub fn take_back_end(&mut self) {
        self.completed = 0;
    }

    /// Whether the answer has begun: its status cannot change any more.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.status != 0
    }

    /// The answer begins. `content` is the kind of its body, where that matters. Servers refuse a second beginning.
    #[inline]
    pub fn response_start(&mut self, status: u16, content: Option<Content<'_>>, settings: &ObserverSettings) {
        if self.status != 0 {
            return;
        }
        self.status = status;
        self.note_answer();
        if let Some(content) = content {
            let facts =
                if self.has_facts { (settings.capture_head_bytes, settings.capture_tail_bytes) } else { (0, 0) };
            self.response_body = settings.texts.response(content, !self.wants_output, facts).map(Box::new);
        }
    }

    /// A part of the answer's body passes at `now`; returns whether it is a chunk.
    #[inline]
    pub fn response_body(&mut self, bytes: &[u8], more: bool, now: u64, settings: &ObserverSettings) -> bool {
        if self.ended {
            // Servers refuse messages after the end.
            return false;
        }
        self.part(bytes.len() as u64, more, now);
        if bytes.is_empty() {
            return false;
        }
        if more && is_error_event(bytes) {
            (self.failed, self.unusual) = (true, true);
        }
        if let Some(capture) = &mut self.response_body {
            capture.push(bytes);
        }
        let is_chunk = !is_without_content(bytes);
        if is_chunk {
            self.chunk(now, settings);
        } else {
            self.note_progress(now);
        }
        is_chunk
    }

    /// A part of the answer's body passes at `now` that ends no chunk, such as the beginning of a long message.
    pub fn response_part(&mut self, bytes: &[u8], more: bool, now: u64) {
        if self.ended {
            return;
        }
        self.part(bytes.len() as u64, more, now);
        self.note_progress(now);
    }

    #[inline]
    pub(super) fn part(&mut self, bytes: u64, more: bool, now: u64) {
        self.ended = !more;
        if !more && !self.awaits_trailers {
            self.completed = now;
        }
        self.streamed |= more;
        self.bytes_out += bytes;
    }

    /// The server sends a part of the answer from a file (the extensions `pathsend` and `zerocopysend`). Its size is
    /// known only if the application reported it, and none of it is captured.
    pub fn response_file(&mut self, bytes: Option<u64>, more: bool, now: u64, settings: &ObserverSettings) {
        if self.ended {
            return;
        }
        self.part(bytes.unwrap_or(0), more, now);
        if bytes.is_none() {
            (self.unknown_size, self.unusual) = (true, true);
        }
        // Half a body is worse than none.
        self.response_body = None;
        self.chunk(now, settings);
    }

    /// The answer has begun and ends with trailers.
    pub fn expect_trailers(&mut self) {
        self.awaits_trailers = !self.ended;
    }

    /// The request is a call over gRPC, with this status as far as it is known.
    pub fn call(&mut self, status: RpcStatus) {
        (self.rpc, self.unusual) = (status, true);
    }

    /// Trailers pass at `now`; `more`: others follow.
    pub fn response_trailers(&mut self, more: bool, now: u64) {
        if self.ended && !more {
            self.awaits_trailers = false;
            self.completed = now;
        }
    }
}
