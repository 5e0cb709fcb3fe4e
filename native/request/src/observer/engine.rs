//! What an inference engine says of a request, beside what was seen of its answer.

use super::Observer;

/// What the engine behind the server told at a request's end.
#[derive(Debug)]
pub struct EngineFacts {
    /// The engine gave the request up.
    pub aborted: bool,
    /// The values of the last fields of a `request` record, as [`queue::record::Scratch`] collects them.
    pub values: Vec<u8>,
}

impl Observer {
    /// The engine has told this of the request, which ends now.
    pub fn told_by_engine(&mut self, facts: EngineFacts) {
        self.engine = Some(Box::new(facts));
    }
}
