//! The array of Gemini's streams, whose elements are the events.

use super::{EventReader, Form, Kinds, Passed};

impl EventReader {
    /// Reads a part of a body that is an array, or may be one until its first element has ended.
    pub(super) fn read_array(&mut self, bytes: &[u8], is_last: bool, mut is_known: bool, passed: &mut Passed) {
        let mut at = 0;
        while at < bytes.len() {
            if self.walker.depth == 0 {
                // Between two elements, or before the first one.
                let Some(next) = memchr::memchr(b'{', &bytes[at..]) else { break };
                at += next;
                self.walker.notes.begin_event();
            }
            at += self.walker.feed(&bytes[at..], at);
            if !self.walker.is_done {
                break;
            }
            if !is_known && !self.walker.seen.has_candidates() && !self.walker.seen.has_failed() {
                self.form = Form::Parts;
                break;
            }
            (is_known, self.form, self.waiting) = (true, Form::Array { is_known: true }, 0);
            self.count(self.walker.seen.event(), passed);
            self.walker.notes.end_event();
            self.begin_event();
        }
        if !is_known {
            // What cannot be known before the first element has ended is counted then.
            self.waiting += u32::from(!bytes.is_empty());
            if is_last || self.form == Form::Parts {
                passed.chunks += std::mem::take(&mut self.waiting);
                (passed.kinds, passed.first) = (Kinds::CONTENT, Kinds::CONTENT);
            }
        }
    }
}
