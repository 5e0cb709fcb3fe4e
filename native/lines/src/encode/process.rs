//! The part of a line that names the process, kept from one line to the next.

use super::LineHead;
use crate::json::escape;

/// `,"boot_id":"…","pid":…` of the process that wrote the last line.
#[derive(Clone, Debug, Default)]
pub struct ProcessCache {
    boot_id: String,
    pid: u32,
    text: Vec<u8>,
}

impl ProcessCache {
    /// Return the text for the process of `head`.
    #[inline]
    pub fn text(&mut self, head: &LineHead<'_>) -> &[u8] {
        if self.pid != head.pid || self.boot_id != head.boot_id || self.text.is_empty() {
            self.format(head);
        }
        &self.text
    }

    #[cold]
    fn format(&mut self, head: &LineHead<'_>) {
        self.boot_id.clear();
        self.boot_id.push_str(head.boot_id);
        self.pid = head.pid;
        self.text.clear();
        self.text.extend_from_slice(br#","boot_id":"#);
        escape::push_string(&mut self.text, head.boot_id.as_bytes());
        self.text.extend_from_slice(br#","pid":"#);
        self.text.extend_from_slice(head.pid.to_string().as_bytes());
    }
}
