//! Decompresses the beginning of a body, as far as it was captured and no further than a limit.

use brotli_decompressor::Decompressor;
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use request::capture::Encoding;
use std::io::{self, Read};

/// Most bytes that a body is decompressed to.
pub const MAX_DECODED: usize = 16 << 20;
/// Largest window that RFC 9659 allows: 8 MiB.
const ZSTD_WINDOW_LOG: u32 = 23;
/// Bytes that are decompressed at once.
const STEP: usize = 16 << 10;

/// What `bytes` begin with, and whether that is all.
pub fn decode(encoding: Encoding, bytes: &[u8]) -> (Vec<u8>, bool) {
    match encoding {
        Encoding::Other => (Vec::new(), false),
        Encoding::Gzip => read(MultiGzDecoder::new(bytes)),
        // The name means zlib's format, but some send the bare one.
        Encoding::Deflate if is_zlib(bytes) => read(ZlibDecoder::new(bytes)),
        Encoding::Deflate => read(DeflateDecoder::new(bytes)),
        Encoding::Brotli => read(Decompressor::new(bytes, STEP)),
        Encoding::Zstd => match zstd() {
            Ok(decoder) => read(zstd::stream::zio::Reader::new(bytes, decoder)),
            Err(_) => (Vec::new(), false),
        },
    }
}

fn zstd() -> io::Result<zstd::stream::raw::Decoder<'static>> {
    let mut decoder = zstd::stream::raw::Decoder::new()?;
    decoder.set_parameter(zstd::stream::raw::DParameter::WindowLogMax(ZSTD_WINDOW_LOG))?;
    Ok(decoder)
}

fn is_zlib(bytes: &[u8]) -> bool {
    matches!(bytes, [first, second, ..] if first & 15 == 8 && u16::from_be_bytes([*first, *second]) % 31 == 0)
}

fn read(mut from: impl Read) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    let mut step = vec![0; STEP];
    while out.len() < MAX_DECODED {
        match from.read(&mut step) {
            Ok(0) => return (out, true),
            Ok(length) => out.extend_from_slice(&step[..length]),
            Err(_) => break,
        }
    }
    (out, false)
}
