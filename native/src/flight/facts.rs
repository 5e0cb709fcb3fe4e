//! What a slot tells of its request besides its progress; fixed places, each written in one piece.
//!
//! ```text
//! word  6      first chunk, monotonic nanoseconds; 0: none yet
//! word  7      [ 0:32 | flags:16 | status:16 ]   flags: 1 streamed, 2 size not known, 4 probe, 8 body is JSON
//! word  8, 9   start, monotonic and Unix nanoseconds
//! word 10      bytes of the request's body
//! word 11…15   trace id (2), span id, parent span id, our own id of the request
//! word 16      [ trace flags:8 | 0:8 | route:16 | path:16 | client's id:8 | method:8 ]   lengths in bytes
//! word 17      [ 0:32 | tail:16 | head:16 ]   lengths of the body's first and last bytes
//! word 18…23   zero
//! word 24      method, at most 16 bytes
//! word 26      the client's id of the request, at most 128 bytes
//! word 42      path, at most 512 bytes
//! word 106     route, at most 256 bytes
//! word 138     the first bytes of a JSON body, at most 464: the listener reads the model from them
//! word 196     the last bytes of the same, at most 480
//! ```
