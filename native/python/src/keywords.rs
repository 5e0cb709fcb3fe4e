//! The names of the keywords of call sites, encoded once.
//!
//! A call site passes the same tuple of names with each of its calls. As long as somebody holds the tuple, its address
//! stands for these names, in this order: so the tuples are held here, with what they are encoded. Their number is bounded.
//!
//! A call with `**fields` passes a new tuple each time, which is never met again. Such calls must neither fill the
//! places nor pay for it: one call of [`LEARN_EVERY`] that finds nothing is remembered, and takes a place only if that
//! was not used since the last attempt.

use super::gil_cell::GilCell;
use super::value::utf8;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use queue::record::{LONGEST_KEY, MapKeys};
use std::rc::Rc;

/// The places: a power of two.
const PLACES: usize = 256;
const LEARN_EVERY: u32 = 64;
/// A longer list of names is not worth its memory.
const MOST_NAMES: usize = 64;

static KNOWN: GilCell<Known> = GilCell::new(Known { missed: 0, places: [const { Place::free() }; PLACES] });

struct Known {
    /// Calls that found nothing.
    missed: u32,
    places: [Place; PLACES],
}

struct Place {
    site: Option<Site>,
    /// A call has found it since the last attempt to take the place.
    was_used: bool,
}

struct Site {
    /// What keeps the address from being used again.
    names: Py<PyTuple>,
    keys: SharedKeys,
}

/// The encoded names of a tuple. They outlive their place in the table while a call uses them, since the values of that
/// call can run Python code, which can make other calls.
#[derive(Clone)]
pub struct SharedKeys(Rc<MapKeys>);

// SAFETY: all clones are made, used and dropped with the GIL held, so the count is not changed by two threads at once.
unsafe impl Send for SharedKeys {}

impl std::ops::Deref for SharedKeys {
    type Target = MapKeys;

    #[inline(always)]
    fn deref(&self) -> &MapKeys {
        &self.0
    }
}

impl Place {
    const fn free() -> Self {
        Self { site: None, was_used: false }
    }
}

impl Known {
    #[inline(always)]
    fn place(&mut self, names: *mut ffi::PyObject) -> &mut Place {
        let address = names as usize;
        &mut self.places[(address >> 4 ^ address >> 12) % PLACES]
    }

    /// Whether the tuple is to be remembered.
    fn is_due(&mut self, names: *mut ffi::PyObject) -> bool {
        self.missed = self.missed.wrapping_add(1);
        self.missed.is_multiple_of(LEARN_EVERY) && !std::mem::take(&mut self.place(names).was_used)
    }
}

/// Returns the encoded names of a call's keywords, if they are known. None of them is a parameter of the standard
/// library's methods.
///
/// # Safety
/// `names` is a live tuple of `str`.
#[inline(always)]
pub unsafe fn keys(py: Python<'_>, names: *mut ffi::PyObject) -> Option<SharedKeys> {
    let found = KNOWN.with(py, |known| {
        let place = known.place(names);
        let site = place.site.as_ref().filter(|site| site.names.as_ptr() == names)?;
        place.was_used = true;
        Some(site.keys.clone())
    });
    if found.is_none() {
        // SAFETY: the caller's promise.
        unsafe { learn(py, names) };
    }
    found
}

#[inline(never)]
unsafe fn learn(py: Python<'_>, names: *mut ffi::PyObject) {
    if !KNOWN.with(py, |known| known.is_due(names)) {
        return;
    }
    // SAFETY: the caller's promise.
    let names = unsafe { Bound::from_borrowed_ptr(py, names).cast_into_unchecked::<PyTuple>() };
    let Some(keys) = encoded(&names) else { return };
    let site = Site { names: names.clone().unbind(), keys: SharedKeys(Rc::new(keys)) };
    let before = KNOWN.with(py, |known| known.place(names.as_ptr()).site.replace(site));
    // Dropped outside of the cell, and as bound: this is a plain C function, where PyO3 would defer the rest.
    drop(before.map(|site| site.names.into_bound(py)));
}

/// Encodes names of which all are fields and plain `str`: these are not part of reference cycles, and their end runs no
/// Python code.
fn encoded(names: &Bound<'_, PyTuple>) -> Option<MapKeys> {
    if names.len() > MOST_NAMES {
        return None;
    }
    let name = |at: usize| {
        // SAFETY: a live tuple and a position within it; the text lives as long as the tuple, whose `str` it is.
        unsafe {
            let name = ffi::PyTuple_GetItem(names.as_ptr(), at as ffi::Py_ssize_t);
            let is_plain = ffi::Py_TYPE(name) == &raw mut ffi::PyUnicode_Type;
            if is_plain { utf8(name) } else { None }
        }
    };
    let is_field = |name: &&str| name.len() <= LONGEST_KEY && !is_no_field(name);
    let texts: Option<Vec<&str>> = (0..names.len()).map(|at| name(at).filter(is_field)).collect();
    MapKeys::new(&texts?)
}

/// Whether a keyword is a parameter of the standard library's logging methods.
#[inline]
pub fn is_no_field(name: &str) -> bool {
    matches!(name.len(), 5 | 8 | 10) && matches!(name, "extra" | "exc_info" | "stack_info" | "stacklevel")
}
