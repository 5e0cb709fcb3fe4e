//! Segments for the tests.

use index::catalog::{Catalog, Progress};
use index::face;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A directory of segments and one for the cache.
pub struct Place {
    pub directory: TempDir,
    pub cache: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), cache: tempfile::tempdir().unwrap() }
    }

    pub fn write(&self, number: u32, lines: &[Vec<u8>]) -> PathBuf {
        let path = self.directory.path().join(name(number));
        fs::write(&path, content(lines)).unwrap();
        path
    }

    pub fn open(&self) -> Catalog {
        Catalog::new(&[self.directory.path().to_owned()], Vec::new(), Some(self.cache.path())).unwrap()
    }

    pub fn opened(&self) -> Catalog {
        let catalog = self.open();
        assert!(refresh(&catalog).done);
        catalog
    }

    /// The index files.
    pub fn files(&self) -> Vec<PathBuf> {
        let folders = fs::read_dir(self.cache.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> =
            folders.flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path())).collect();
        files.sort();
        files
    }
}

pub fn name(number: u32) -> String {
    format!("svc-20261121T0500{:02}.000Z-00000000deadbeef-{number:06}.jsonl", number % 60)
}

pub fn content(lines: &[Vec<u8>]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect()
}

pub fn stamp(nano: u64) -> String {
    index::times::text(1_795_237_200_000_000_000 + nano)
}

pub fn request(number: u64) -> Vec<u8> {
    let outcome = if number % 10 == 0 { "error" } else { "ok" };
    let duration = (number as f64 + 0.5) / 1000.0;
    let head = stamp(number * 1_000_000);
    json!({
        "timestamp": head, "severity_text": "INFO", "event_name": "request", "boot_id": "00000000deadbeef", "pid": 7,
        "seq": number, "trace_id": format!("{number:032x}"), "request_id": format!("{number:016x}"),
        "outcome": outcome, "http.route": format!("/r{}", number % 3), "duration_s": duration,
    })
    .to_string()
    .into_bytes()
}

pub fn requests(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(request).collect()
}

pub fn refresh(catalog: &Catalog) -> Progress {
    catalog.refresh(Duration::from_secs(60))
}

pub fn rows(catalog: &Catalog, query: &Value) -> Value {
    serde_json::from_slice(&face::rows(catalog, query.to_string().as_bytes()).unwrap()).unwrap()
}

pub fn count(catalog: &Catalog, query: &Value) -> u64 {
    let answer = face::aggregate(catalog, query.to_string().as_bytes()).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["complete"], true);
    answer["count"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
}

pub fn errors(catalog: &Catalog) -> u64 {
    count(catalog, &json!({"where": ["outcome=error"]}))
}

pub fn append(path: &Path, bytes: &[u8]) {
    use std::io::Write;
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}
