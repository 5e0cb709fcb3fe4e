//! Responses of a model, which no server passes on as messages.

use super::{Observer, ObserverSettings};

impl Observer {
    /// A model's response passes; without `is_chunk` it only marks the end.
    pub fn model_response(&mut self, is_chunk: bool, more: bool, now: u64, settings: &ObserverSettings) {
        if self.ended {
            return;
        }
        self.part(0, more, now);
        if is_chunk {
            self.chunks_pass(1, now, settings);
        }
    }

    /// The model answers with a response sender, with any number of responses.
    pub const fn stream(&mut self) {
        self.streamed = true;
    }
}
