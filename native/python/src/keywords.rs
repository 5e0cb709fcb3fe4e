//! The names of the keywords of call sites, and of the dictionaries that they pass as `extra`, encoded once.
//!
//! A call site passes the same tuple of names with each of its calls. As long as somebody holds the tuple, its address
//! stands for these names, in this order: so the tuples are held here, with what they are encoded. Their number is bounded.
//! A dictionary is new with each call, but a call site writes the same names into it: the addresses of these names, in
//! their order, stand for them as long as they are held here.
//!
//! A call with `**fields` passes a new tuple each time, which is never met again. Such calls must neither fill the
//! places nor pay for it: one call of [`LEARN_EVERY`] that finds nothing is remembered, and takes a place only if that
//! was not used since the last attempt.

use super::gil_cell::GilCell;
use super::value::utf8;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use queue::record::{LONGEST_KEY, MapKeys};
use std::mem::MaybeUninit;
use std::rc::Rc;

/// The places: a power of two.
const PLACES: usize = 256;
const LEARN_EVERY: u32 = 64;
/// A longer list of names is not worth its memory.
pub const MOST_NAMES: usize = 64;

static TUPLES: GilCell<Known> = GilCell::new(Known::nothing());
static DICTIONARIES: GilCell<Known> = GilCell::new(Known::nothing());

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
    /// What keeps the addresses from being used again.
    names: Py<PyTuple>,
    addresses: Box<[usize]>,
    keys: SharedKeys,
}

/// Room for the values of a dictionary.
pub type Values = [MaybeUninit<*mut ffi::PyObject>; MOST_NAMES];

/// Room that is not filled yet.
#[inline(always)]
pub const fn no_values() -> Values {
    [const { MaybeUninit::uninit() }; MOST_NAMES]
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
    const fn nothing() -> Self {
        Self { missed: 0, places: [const { Place::free() }; PLACES] }
    }

    #[inline(always)]
    fn place(&mut self, address: usize) -> &mut Place {
        &mut self.places[(address >> 4 ^ address >> 12) % PLACES]
    }

    /// The encoded names at a place, if they are the ones that `is_same` asks for.
    #[inline(always)]
    fn find(&mut self, address: usize, is_same: impl FnOnce(&Site) -> bool) -> Option<SharedKeys> {
        let place = self.place(address);
        let site = place.site.as_ref().filter(|site| is_same(site))?;
        place.was_used = true;
        Some(site.keys.clone())
    }

    /// Whether the names are to be remembered.
    fn is_due(&mut self, address: usize) -> bool {
        self.missed = self.missed.wrapping_add(1);
        self.missed.is_multiple_of(LEARN_EVERY) && !std::mem::take(&mut self.place(address).was_used)
    }
}

/// Returns the encoded names of a call's keywords, if they are known. None of them is a parameter of the standard
/// library's methods.
///
/// # Safety
/// `names` is a live tuple of `str`.
#[inline(always)]
pub unsafe fn keys(py: Python<'_>, names: *mut ffi::PyObject) -> Option<SharedKeys> {
    let found = TUPLES.with(py, |known| known.find(names as usize, |site| site.names.as_ptr() == names));
    if found.is_none() && TUPLES.with(py, |known| known.is_due(names as usize)) {
        // SAFETY: the caller's promise.
        let names = unsafe { Bound::from_borrowed_ptr(py, names).cast_into_unchecked::<PyTuple>() };
        // SAFETY: the names of the tuple are live.
        let is_field = |name| unsafe { utf8(name) }.is_some_and(|name| !is_no_field(name));
        learn(&TUPLES, names.as_ptr() as usize, &names, is_field);
    }
    found
}

/// Returns the encoded names of a dictionary's last `count` entries, which begin at `position`, if they are known, and
/// puts their values in their order into `values`. All of these names are fields to `is_field`, which must always say the
/// same of a name.
///
/// # Safety
/// `dictionary` is a live `dict`, and there are so many entries.
#[inline(always)]
pub unsafe fn keys_of_dict<'v>(
    py: Python<'_>,
    dictionary: *mut ffi::PyObject,
    mut position: ffi::Py_ssize_t,
    count: usize,
    values: &'v mut Values,
    is_field: impl Fn(*mut ffi::PyObject) -> bool,
) -> Option<(SharedKeys, &'v [*mut ffi::PyObject])> {
    // SAFETY: the caller's promise; nothing here runs Python code, so the dictionary stays as it is. The values are
    // written where all names are found.
    unsafe {
        let (mut name, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
        if count > MOST_NAMES || ffi::PyDict_Next(dictionary, &mut position, &mut name, &mut value) == 0 {
            return None;
        }
        let address = name as usize ^ count << 4;
        let is_same = |site: &Site| {
            site.addresses.len() == count
                && values.iter_mut().zip(&site.addresses).enumerate().all(|(at, (place, known))| {
                    if at > 0 {
                        ffi::PyDict_Next(dictionary, &mut position, &mut name, &mut value);
                    }
                    place.write(value);
                    *known == name as usize
                })
        };
        let found = DICTIONARIES.with(py, |known| known.find(address, is_same));
        if found.is_none() && DICTIONARIES.with(py, |known| known.is_due(address)) {
            let names = Bound::from_borrowed_ptr(py, dictionary).cast_into_unchecked::<PyDict>().keys().to_tuple();
            learn(&DICTIONARIES, address, &names.get_slice(names.len() - count, names.len()), is_field);
        }
        found.map(|keys| (keys, std::slice::from_raw_parts(values.as_ptr().cast(), count)))
    }
}

#[inline(never)]
fn learn(
    table: &GilCell<Known>,
    address: usize,
    names: &Bound<'_, PyTuple>,
    is_field: impl Fn(*mut ffi::PyObject) -> bool,
) {
    let py = names.py();
    let Some(keys) = encoded(names, is_field) else { return };
    let addresses = names.iter().map(|name| name.as_ptr() as usize).collect();
    let site = Site { names: names.clone().unbind(), addresses, keys: SharedKeys(Rc::new(keys)) };
    let before = table.with(py, |known| known.place(address).site.replace(site));
    // Dropped outside of the cell, and as bound: this is a plain C function, where PyO3 would defer the rest.
    drop(before.map(|site| site.names.into_bound(py)));
}

/// Encodes names of which all are fields and plain `str`: these are not part of reference cycles, and their end runs no
/// Python code.
fn encoded(names: &Bound<'_, PyTuple>, is_field: impl Fn(*mut ffi::PyObject) -> bool) -> Option<MapKeys> {
    if names.len() > MOST_NAMES {
        return None;
    }
    let name = |at: usize| {
        // SAFETY: a live tuple and a position within it; the text lives as long as the tuple, whose `str` it is.
        unsafe {
            let name = ffi::PyTuple_GetItem(names.as_ptr(), at as ffi::Py_ssize_t);
            let is_plain = ffi::Py_TYPE(name) == &raw mut ffi::PyUnicode_Type;
            if is_plain && is_field(name) { utf8(name) } else { None }
        }
    };
    let texts: Option<Vec<&str>> =
        (0..names.len()).map(|at| name(at).filter(|name| name.len() <= LONGEST_KEY)).collect();
    MapKeys::new(&texts?)
}

/// Whether a keyword is a parameter of the standard library's logging methods.
#[inline]
pub fn is_no_field(name: &str) -> bool {
    matches!(name.len(), 5 | 8 | 10) && matches!(name, "extra" | "exc_info" | "stack_info" | "stacklevel")
}
