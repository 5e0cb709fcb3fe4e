//! What the system refuses is an error, not silence.

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
