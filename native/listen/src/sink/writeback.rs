//! Paced writeback: how the file sink keeps the page cache small (property P9).
//!
//! The lines of a segment are cut into windows of `writeback_bytes`. The writeback of a full window is started at once,
//! and the window before it is waited for and dropped from the cache. So at most two windows are dirty, plus one batch,
//! across segments: the rest of a sealed segment is a window like any other. Waiting here slows the listener to the
//! speed of the device, never a producer. File systems without a device (tmpfs) refuse these calls, which costs nothing
//! and means nothing: errors are ignored, and a failing device shows in the next write.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use super::os::Os;

/// The windows of one sink, which writes one segment after the other.
#[derive(Debug)]
pub(super) struct Pacer {
    /// Bytes of a window; 0 leaves writeback to the kernel.
    window: u64,
    /// The position of the current segment's first byte whose writeback is not started.
    from: u64,
    in_flight: Option<(Arc<File>, Range<u64>)>,
}

impl Pacer {
    pub(super) fn new(window: u64) -> Self {
        Self { window, from: 0, in_flight: None }
    }

    /// Start every full window of the live segment, which has grown to `len`.
    pub(super) fn advance(&mut self, os: &mut impl Os, file: &Arc<File>, len: u64) {
        if self.window == 0 {
            return;
        }
        // The file may have been cut from outside.
        self.from = self.from.min(len);
        while len - self.from >= self.window {
            self.start(os, file, self.from..self.from + self.window);
            self.from += self.window;
        }
    }

    /// Start the rest of a sealed segment of `len` bytes; the next segment begins at 0.
    pub(super) fn seal(&mut self, os: &mut impl Os, file: &Arc<File>, len: u64) {
        self.advance(os, file, len);
        if self.window != 0 && self.from < len {
            self.start(os, file, self.from..len);
        }
        self.from = 0;
    }

    /// Start the rest of the last segment and wait for nothing: closing must not hang on a device.
    pub(super) fn leave(&mut self, os: &mut impl Os, file: &Arc<File>, len: u64) {
        if self.window != 0 && self.from < len {
            let _ = os.start_writeback(file, self.from..len);
        }
        self.forget();
    }

    /// Release every file, so that a removed one gives its space back.
    pub(super) fn forget(&mut self) {
        self.from = 0;
        self.in_flight = None;
    }

    fn start(&mut self, os: &mut impl Os, file: &Arc<File>, range: Range<u64>) {
        let _ = os.start_writeback(file, range.clone());
        if let Some((file, range)) = self.in_flight.replace((Arc::clone(file), range)) {
            let _ = os.finish_writeback(&file, range);
        }
    }
}
