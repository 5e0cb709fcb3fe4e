//! Responses that no server passes on as messages: a model's own.

use super::{Observer, ObserverSettings};

impl Observer {
    /// A model's response passes; `is_chunk`: there is one, and not just the end of them.
    pub fn model_response(&mut self, is_chunk: bool, more: bool, now: u64, settings: &ObserverSettings) {
        if self.ended {
            return;
        }
        self.part(0, more, now);
        if is_chunk {
            self.chunk(now, settings);
        }
    }

    /// The model answers by a response sender, with any number of responses.
    pub const fn stream(&mut self) {
        self.streamed = true;
    }
}
