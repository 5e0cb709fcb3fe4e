//! The configuration that a queue directory belongs to: no process of another configuration produces there.

use crate::support::{INFO, child, child_directory, die, emit, queue_settings, register};
use queue::configuration;
use queue::producer::{Producer, QueueSettings};
use queue::queue_file;
use std::io;
use std::path::Path;

const HERE: &str = "version: 1\ndirectory: \"/a\"\nsink: \"file\"\n# capture_hash_key: 12\n";
const THERE: &str = "version: 1\ndirectory: \"/b\"\nsink: \"file\"\n";

fn of(configuration: &str, directory: &Path) -> io::Result<Producer> {
    Producer::open(QueueSettings { configuration: Some(configuration.to_owned()), ..queue_settings(directory) })
}

#[test]
fn a_directory_of_another_configuration_takes_no_queue_and_says_what_differs() {
    let directory = tempfile::tempdir().unwrap();
    let first = of(HERE, directory.path()).unwrap();
    of(HERE, directory.path()).unwrap().close();
    let refused = of(THERE, directory.path()).err().unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    let text = refused.to_string();
    let differing = "capture_hash_key is 12 there and not set here; directory is \"/a\" there and \"/b\" here. Name";
    assert!(text.contains(differing), "{text}");
    assert!(first.queue().is_some());
}

#[test]
fn what_the_dead_of_another_configuration_left_is_moved_aside_whole() {
    if let Some(directory) = child_directory() {
        let producer = of(HERE, &directory).unwrap();
        let event = register(&producer);
        assert!(emit(&producer, event, INFO, 0, 0));
        die();
    }
    let directory = tempfile::tempdir().unwrap();
    let test = "configuration::what_the_dead_of_another_configuration_left_is_moved_aside_whole";
    child(test, directory.path()).output().unwrap();
    let _second = of(THERE, directory.path()).unwrap();
    let aside = directory.path().join(configuration::fingerprint(HERE));
    assert_eq!(queue_file::list(&aside).unwrap().len(), 1);
    assert!(aside.join("control-5").exists());
    assert_eq!(configuration::read(&aside).unwrap().as_deref(), Some(HERE));
    assert_eq!(configuration::read(directory.path()).unwrap().as_deref(), Some(THERE));
}
