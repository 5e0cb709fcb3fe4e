//! The records of a segment that is about to be removed: from its footer, or from its lines.

use crate::json;
use crate::line::{self, Piece};
use crate::segment::Form;
use crate::segment_account::SegmentAccount;
use crate::segment_store::{Reading, Store, Stored};
use crate::spans::Span;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// More than any footer, unless thousands of processes wrote into one segment.
const FOOTER_BYTES: u64 = 256 << 10;

/// Returns the spans of a segment that has no writer; `plain` is its plain form, if it has one.
///
/// # Errors
/// It cannot be read, or is damaged.
pub fn spans_of(store: &mut impl Store, dir: &Path, stored: &Stored, plain: Option<&File>) -> io::Result<Vec<Span>> {
    if let Some(file) = plain {
        if let Some(spans) = spans_of_footer(store, file)? {
            return Ok(spans);
        }
        let mut file_at_start = file;
        file_at_start.seek(SeekFrom::Start(0))?;
        return spans_of_lines(Reading { store, file });
    }
    let file = store.open(&dir.join(stored.name.file_name(Form::Compressed)))?;
    spans_of_lines(zstd::stream::read::Decoder::new(Reading { store, file: &file })?)
}

fn spans_of_footer(store: &mut impl Store, mut file: &File) -> io::Result<Option<Vec<Span>>> {
    let end = file.metadata()?.len();
    file.seek(SeekFrom::Start(end.saturating_sub(FOOTER_BYTES)))?;
    let mut tail = Vec::new();
    Reading { store, file }.take(FOOTER_BYTES).read_to_end(&mut tail)?;
    let last = line::whole_lines(&tail).last().unwrap_or_default();
    Ok(json::read(last).ok().as_ref().and_then(read_footer))
}

/// Reads the spans of a footer; None for another line, or if one is malformed.
#[must_use]
pub fn read_footer(footer: &serde_json::Value) -> Option<Vec<Span>> {
    (footer.get("event_name")? == "segment.footer").then_some(())?;
    footer.get("spans")?.as_array()?.iter().map(read_span).collect()
}

/// Reads a span as [`crate::spans::spans_json`] writes it.
#[must_use]
pub fn read_span(span: &serde_json::Value) -> Option<Span> {
    let number = |name: &str| span.get(name)?.as_u64();
    let boot_id = line::parse_boot_id(span.get("boot_id")?.as_str()?.as_bytes())?;
    let (first, last) = (number("first")?, number("last")?);
    let pid = u32::try_from(number("pid")?).ok()?;
    (first <= last).then_some(Span { boot_id, pid, first, last, records: number("records")? })
}

fn spans_of_lines(from: impl Read) -> io::Result<Vec<Span>> {
    let mut account = SegmentAccount::default();
    line::read_pieces(from, |piece| {
        if let Piece::Lines(lines) = piece {
            account.add_each(lines);
        }
    })?;
    Ok(account.spans().copied().collect())
}
