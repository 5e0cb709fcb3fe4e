//! Reads ahead for additional sinks while the primary, or its fallback, takes nothing: they continue as far as the
//! queues reach.
//!
//! The queue notes how far they were served (`copied_sequence`). The records stay there for the primary; for it they
//! are read again, apart from those that no sink has. So additional sinks get each record once, also when the leader
//! changes.

use crate::attached::{QueueReader, Room};
use crate::delivery::Batch;
use lines::encode::Encoder;
use std::sync::Arc;

/// Second readers of the leader's queues.
pub struct CopyReader {
    readers: Vec<QueueReader>,
    encoder: Encoder,
}

impl CopyReader {
    /// Begin without readers; `encoder` redacts as the leader's own does.
    #[must_use]
    pub fn new(encoder: Encoder) -> Self {
        Self { readers: Vec::new(), encoder }
    }

    /// Reads on from the last record that additional sinks were given, up to about `bytes` of each queue.
    pub fn read(&mut self, queues: &[QueueReader], bytes: usize) -> Batch {
        self.readers.retain(|reader| queues.iter().any(|queue| Arc::ptr_eq(&queue.file, &reader.file)));
        let mut batch = Batch::default();
        for queue in queues {
            let reader = self.reader_of(queue);
            let room = Room::of_bytes(batch.lines.len() + bytes);
            batch.records += self.readers[reader].read_into(&mut batch.lines, room, &mut self.encoder);
            self.readers[reader].note_copied();
        }
        batch
    }

    fn reader_of(&mut self, queue: &QueueReader) -> usize {
        let known = self.readers.iter().position(|reader| Arc::ptr_eq(&queue.file, &reader.file));
        let number = known.unwrap_or(self.readers.len());
        if known.is_none() || self.readers[number].is_behind(queue) {
            let mut reader = queue.second_reader();
            // An earlier leader may have been further.
            reader.read_copied_into(&mut Vec::new(), usize::MAX, &mut self.encoder);
            match self.readers.get_mut(number) {
                Some(place) => *place = reader,
                None => self.readers.push(reader),
            }
        }
        number
    }
}
