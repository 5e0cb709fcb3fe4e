//! One leader per directory: locks that exclude this process, other processes, and end with their holder.

use crate::support::{child, child_directory, die, wait_until};
use queue::lock::{Attempt, ProcessLock};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

fn attempt(directory: &Path) -> Attempt {
    ProcessLock::try_acquire(&directory.join("leader.lock"), true).unwrap()
}

fn acquire(directory: &Path) -> ProcessLock {
    match attempt(directory) {
        Attempt::Acquired(lock) => lock,
        Attempt::HeldElsewhere | Attempt::HeldByThisProcess => panic!("held"),
    }
}

/// Starts the test's other half and waits for its signal.
fn start(test: &str, directory: &Path) -> Child {
    let mut child = child(test, directory).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    child
}

/// Signals that, and blocks until the test closes its end.
fn say_ready() {
    let mut stdout = std::io::stdout();
    stdout.write_all(b"\nready\n").and_then(|()| stdout.flush()).unwrap();
    assert_eq!(std::io::stdin().read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_second_leader_in_this_process_is_refused_until_the_first_one_ends() {
    let directory = tempfile::tempdir().unwrap();
    let first = acquire(directory.path());
    assert!(matches!(attempt(directory.path()), Attempt::HeldByThisProcess));
    drop(first);
    drop(acquire(directory.path()));
}

#[test]
fn a_leader_in_another_process_is_respected_until_it_ends() {
    if let Some(directory) = child_directory() {
        let _lock = acquire(&directory);
        return say_ready();
    }
    let directory = tempfile::tempdir().unwrap();
    let mut other = start("leader::lock::a_leader_in_another_process_is_respected_until_it_ends", directory.path());
    assert!(matches!(attempt(directory.path()), Attempt::HeldElsewhere));
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
    drop(acquire(directory.path()));
}

#[test]
fn looking_at_a_held_lock_does_not_take_it_away() {
    if let Some(directory) = child_directory() {
        let refused = matches!(attempt(&directory), Attempt::HeldElsewhere);
        return assert!(refused);
    }
    let directory = tempfile::tempdir().unwrap();
    let lock = acquire(directory.path());
    for _ in 0..2 {
        let test = "leader::lock::looking_at_a_held_lock_does_not_take_it_away";
        assert!(child(test, directory.path()).output().unwrap().status.success());
        assert!(matches!(attempt(directory.path()), Attempt::HeldByThisProcess));
    }
    drop(lock);
}

#[test]
fn a_forked_child_does_not_keep_the_lock_of_its_killed_parent() {
    if let Some(directory) = child_directory() {
        let _lock = acquire(&directory);
        // SAFETY: the child makes only calls that are allowed after a fork of a process with threads.
        unsafe {
            if libc::fork() == 0 {
                let mut byte = 0u8;
                libc::write(1, b"\nready\n".as_ptr().cast(), 7);
                libc::read(0, (&raw mut byte).cast(), 1);
                libc::_exit(0);
            }
        }
        die();
    }
    let directory = tempfile::tempdir().unwrap();
    let test = "leader::lock::a_forked_child_does_not_keep_the_lock_of_its_killed_parent";
    let mut parent = start(test, directory.path());
    // The grandchild is alive and has the descriptor: it waits for the other end of this pipe.
    let pipe = parent.stdin.take();
    assert_eq!(parent.wait().unwrap().signal(), Some(libc::SIGKILL));
    drop(acquire(directory.path()));
    drop(pipe);
}

#[test]
fn threads_of_one_process_never_both_lead() {
    let directory = tempfile::tempdir().unwrap();
    // Open until the end: to close any descriptor of the file would drop the lock.
    let watcher = File::create(directory.path().join("leader.lock")).unwrap();
    assert!(!is_locked(&watcher));
    let leading = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let mut lock = None;
                    wait_until("everyone gets the lock", || match attempt(directory.path()) {
                        Attempt::Acquired(acquired) => lock.replace(acquired).is_none(),
                        Attempt::HeldElsewhere | Attempt::HeldByThisProcess => false,
                    });
                    assert_eq!(leading.fetch_add(1, Ordering::Relaxed), 0);
                    assert!(is_locked(&watcher), "the kernel knows of it");
                    leading.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
    });
}

/// Asks the kernel, as another owner of an open file description would see it.
fn is_locked(file: &File) -> bool {
    // SAFETY: zeroes are a valid `flock`: the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    // SAFETY: the pointer lives for the call.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) }, 0);
    lock.l_type != libc::F_UNLCK as libc::c_short
}

#[test]
fn a_lock_stays_when_its_process_opens_and_closes_the_file_once_more() {
    if let Some(directory) = child_directory() {
        let refused = matches!(attempt(&directory), Attempt::HeldElsewhere);
        return assert!(refused);
    }
    let directory = tempfile::tempdir().unwrap();
    let _lock = acquire(directory.path());
    drop(File::open(directory.path().join("leader.lock")).unwrap());
    let test = "leader::lock::a_lock_stays_when_its_process_opens_and_closes_the_file_once_more";
    assert!(child(test, directory.path()).output().unwrap().status.success(), "somebody else got it");
}

#[test]
fn a_lock_that_is_given_back_while_a_forked_child_lives_is_free() {
    let directory = tempfile::tempdir().unwrap();
    let lock = acquire(directory.path());
    let (mut waiting, holding) = std::io::pipe().unwrap();
    // SAFETY: the child makes only calls that are allowed after a fork of a process with threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut byte = 0u8;
        // SAFETY: as above.
        unsafe {
            libc::close(holding.as_raw_fd());
            libc::read(waiting.as_raw_fd(), (&raw mut byte).cast(), 1);
            libc::_exit(0)
        }
    }
    drop(lock);
    drop(acquire(directory.path()));
    drop(holding);
    assert_eq!(waiting.read(&mut [0]).unwrap(), 0);
    // SAFETY: our own child; no status is wanted.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
}
