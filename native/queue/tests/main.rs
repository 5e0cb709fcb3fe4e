//! All tests of queue files, records and event schemas as one program; here those of memory: what the system refuses is an
//! error, not silence.

// By the name that the other crates of the workspace use.
extern crate inferlog_queue as queue;

mod support;

mod golden_record;
mod published;
mod record;

#[cfg(all(target_os = "linux", not(feature = "portable")))]
use queue::memory::allocate;
use queue::memory::{Access, give_back, map, page_bytes, unmap, zero};

#[test]
fn memory_is_given_back_and_replaced_in_whole_pages_only() {
    let page = page_bytes().unwrap() as usize;
    let file = tempfile::tempfile().unwrap();
    file.set_len(2 * page as u64).unwrap();
    let base = map(&file, 2 * page, Access::Write).unwrap().as_ptr();
    // SAFETY: a mapping of our own; nothing refers to its content.
    unsafe {
        assert!(give_back(base.add(1), page).is_err() || cfg!(feature = "portable"));
        assert!(zero(base.add(1), page).is_err());
        base.write(7);
        base.add(page).write(8);
        zero(base, page).unwrap();
        assert_eq!((base.read(), base.add(page).read()), (0, 8));
        unmap(base, 2 * page);
    }
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
#[test]
fn a_page_that_is_to_be_there_is_written_without_a_fault() {
    let (page, pages) = (page_bytes().unwrap() as usize, 64);
    let file = tempfile::tempfile().unwrap();
    allocate(&file, pages * page).unwrap();
    let faults = |access| {
        let base = map(&file, pages * page, access).unwrap().as_ptr();
        let before = faults_of_thread();
        for at in 0..pages {
            // SAFETY: a mapping of our own; nothing refers to its content.
            unsafe { base.add(at * page).write_volatile(1) };
        }
        let seen = faults_of_thread() - before;
        // SAFETY: as above.
        unsafe { unmap(base, pages * page) };
        seen
    };
    // First, so that the code of the other one is there: its pages come by faults too.
    assert!(faults(Access::Write) > 0);
    assert_eq!(faults(Access::WriteNow), 0);
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
fn faults_of_thread() -> i64 {
    // SAFETY: numbers, for which zeroes are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the value lives for the call.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
    usage.ru_minflt
}
