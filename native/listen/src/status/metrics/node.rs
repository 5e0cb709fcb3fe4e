//! The build, and the memory of the node that it runs on.

use super::family::Family;
use std::path::Path;

/// Fields of `/proc/meminfo`, and the families that show them.
const FIELDS: [(&str, &str, &str); 3] = [
    ("MemTotal", "inference_logging_node_memory_bytes", "Memory of the node"),
    ("Dirty", "inference_logging_node_dirty_bytes", "Page cache of the node that waits to be written to disk"),
    ("Writeback", "inference_logging_node_writeback_bytes", "Page cache of the node that is being written to disk"),
];

/// The node's memory, and how much page cache waits for the disk: the writes of all of its services. Nothing if
/// `meminfo` cannot be read.
pub fn families(meminfo: &Path) -> Vec<Family> {
    let text = std::fs::read_to_string(meminfo).unwrap_or_default();
    let kibibytes = |field: &str| -> Option<u64> {
        let (_, value) = text.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| *name == field)?;
        value.split_whitespace().next()?.parse().ok()
    };
    let shown = |(field, name, help)| {
        let bytes = kibibytes(field)? * 1024;
        Some(Family::gauge(name, help).unit("bytes").value(bytes as f64))
    };
    FIELDS.into_iter().filter_map(shown).collect()
}

/// The version of this library, and of the Python that it runs in, if any.
pub fn build(python_version: Option<&str>) -> Family {
    let mut labels = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    labels.extend(python_version.map(|version| ("python_version", version.to_owned())));
    Family::info("inference_logging_build", "The version of this library and of Python", labels)
}

#[cfg(test)]
mod tests {
    use super::{build, families};

    #[test]
    fn the_nodes_memory_is_reported_in_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let meminfo = directory.path().join("meminfo");
        std::fs::write(&meminfo, "MemTotal:       16384 kB\nDirty:              8 kB\nHugePages_Total:       0\n")
            .unwrap();
        let reported: Vec<_> =
            families(&meminfo).into_iter().map(|family| (family.name, family.samples[0].value)).collect();
        let expected = [
            ("inference_logging_node_memory_bytes", 16384.0 * 1024.0),
            ("inference_logging_node_dirty_bytes", 8.0 * 1024.0),
        ];
        assert_eq!(reported, expected);
        assert_eq!(families(&directory.path().join("absent")), []);
    }

    #[test]
    fn a_process_without_python_names_no_version_of_it() {
        let names = |family: super::Family| family.samples[0].labels.iter().map(|label| label.0).collect::<Vec<_>>();
        assert_eq!(names(build(None)), ["version"]);
        assert_eq!(names(build(Some("3.11.4"))), ["version", "python_version"]);
    }
}
