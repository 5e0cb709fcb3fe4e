//! The header is that of the sources, and a C program that uses it is on record.

use std::fs;
use std::path::Path;

#[test]
fn the_header_is_that_of_the_sources() {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(crate_directory.join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings = cbindgen::generate_with_config(crate_directory, config).expect("bindings");
    let mut written = Vec::new();
    bindings.write(&mut written);
    // What Rust calls safety is what a C function requires.
    let written = String::from_utf8(written).expect("UTF-8").replace(" # Safety\n", " Requires:\n");
    let written = with_few_conditions(&written);
    let path = crate_directory.join("include/inferlog.h");
    if std::env::var_os("UPDATE_HEADER").is_some() {
        fs::write(&path, &written).expect("the header");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == written, "run `make header`:\n{written}");
}

/// One condition around neighbours that have it, and none within them.
fn with_few_conditions(header: &str) -> String {
    const IF: &str = "#if defined(INFERLOG_REQUESTS)\n";
    let joined = header.replace(&format!("#endif\n{IF}"), "").replace(&format!("#endif\n\n{IF}"), "\n");
    joined
        .replace(&format!("typedef enum {{\n{IF}"), "typedef enum {\n")
        .replace("#endif\n} inferlog_end;", "} inferlog_end;")
}
