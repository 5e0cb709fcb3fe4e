//! The inputs that a target keeps, one after the other.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Runs `check` on every input of one target.
pub fn replay(target: &str, check: impl Fn(&[u8])) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus.tar.zst");
    let mut archive = tar::Archive::new(zstd::Decoder::new(File::open(path).unwrap()).unwrap());
    let mut inputs = 0;
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().into_owned();
        if !entry.header().entry_type().is_file() || !name.starts_with(target) {
            continue;
        }
        // Shown where it fails.
        println!("{}", name.display());
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        check(&bytes);
        inputs += 1;
    }
    assert!(inputs > 0, "no input of {target}");
}
