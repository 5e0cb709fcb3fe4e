//! The messages of a call over gRPC: five bytes of length before each (gRPC over HTTP/2, "Length-Prefixed-Message").

const PREFIX_BYTES: usize = 5;

/// Finds where messages end, in pieces of any size.
#[derive(Debug, Default)]
pub struct Messages {
    prefix: [u8; PREFIX_BYTES],
    filled: usize,
    /// Bytes of the message that have not come.
    left: usize,
}

impl Messages {
    /// Splits the next bytes where messages end: each part, and whether a message ends with it.
    pub fn split<'a>(&mut self, mut bytes: &'a [u8], mut visit: impl FnMut(&'a [u8], bool)) {
        while !bytes.is_empty() {
            let mut at = 0;
            while self.filled < PREFIX_BYTES && at < bytes.len() {
                self.prefix[self.filled] = bytes[at];
                (self.filled, at) = (self.filled + 1, at + 1);
                if self.filled == PREFIX_BYTES {
                    let [_, length @ ..] = self.prefix;
                    self.left = u32::from_be_bytes(length) as usize;
                }
            }
            let taken = self.left.min(bytes.len() - at);
            self.left -= taken;
            let is_end = self.filled == PREFIX_BYTES && self.left == 0;
            if is_end {
                self.filled = 0;
            }
            let (part, rest) = bytes.split_at(at + taken);
            visit(part, is_end);
            bytes = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Messages;

    #[test]
    fn messages_end_where_their_lengths_say() {
        let message = |length: usize| [&[0][..], &(length as u32).to_be_bytes(), &vec![7; length]].concat();
        let lengths = [3, 0, 300, 1];
        let stream: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
        for piece in [1, 2, 4, 5, 9, 64, stream.len()] {
            let (mut messages, mut seen, mut found, mut bytes) = (Messages::default(), Vec::new(), Vec::new(), 0);
            for part in stream.chunks(piece) {
                messages.split(part, |part, is_end| {
                    seen.extend_from_slice(part);
                    bytes += part.len();
                    if is_end {
                        found.push(std::mem::take(&mut bytes) - 5);
                    }
                });
            }
            assert_eq!((&found[..], &seen), (&lengths[..], &stream), "pieces of {piece}");
        }
    }
}
