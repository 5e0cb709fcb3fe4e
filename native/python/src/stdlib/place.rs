//! The place of a call as attributes, encoded once for each instruction that calls.
//!
//! The table holds the code objects, so that an address stands for one code only. Its size is bounded: calls of two
//! places that share an entry replace each other.

use super::library::Library;
use crate::gil_cell::GilCell;
use crate::value;
use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3::{ffi, intern};
use queue::record::Scratch;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::rc::Rc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The number of attributes.
pub const FIELDS: u32 = 3;
/// A power of two.
const ENTRIES: usize = 1024;

static TABLE: GilCell<[Option<Entry>; ENTRIES]> = GilCell::new([const { None }; ENTRIES]);

/// `PyFrame_GetLasti`, which the interpreter exports from Python 3.11 on without having it in the stable ABI.
static LAST_INSTRUCTION: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

struct Entry {
    code: Py<PyAny>,
    instruction: c_int,
    place: Place,
}

#[derive(Clone)]
enum Place {
    Known(Encoded),
    /// A function of the standard library's `logging`: the place is further out.
    Logging,
    /// An importing frame, which only newer versions of `logging` leave out, or code without lines.
    Unknown,
}

/// Encoded attributes. They outlive their entry in the table while a call uses them.
#[derive(Clone)]
pub struct Encoded(Rc<[u8]>);

// SAFETY: all clones are made, used and dropped with the GIL held, so the count is not changed by two threads at once.
unsafe impl Send for Encoded {}

impl std::ops::Deref for Encoded {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Looks the interpreter's function up.
pub fn find(py: Python<'_>) {
    // An older interpreter can have the library of a newer one in its process.
    if py.version_info() < (3, 11) {
        return;
    }
    // SAFETY: the name is a C string; the symbol is looked up in what is loaded, and nothing is called.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyFrame_GetLasti".as_ptr()) };
    LAST_INSTRUCTION.store(found, Ordering::Relaxed);
}

/// Returns the place of the call under way; None: only the standard library knows how to say it.
///
/// # Safety
/// The GIL is held and no exception is set.
#[inline(always)]
pub unsafe fn of_call(py: Python<'_>, library: &Library) -> Option<Encoded> {
    // SAFETY: the caller's promise; the frame of the call under way outlives it.
    unsafe {
        let frame = ffi::PyEval_GetFrame();
        if frame.is_null() {
            return None;
        }
        match of_frame(py, library, frame.cast())? {
            Place::Known(place) => Some(place),
            Place::Logging => of_outer_frame(py, library, Bound::from_borrowed_ptr(py, frame.cast())),
            Place::Unknown => None,
        }
    }
}

#[cold]
fn of_outer_frame<'py>(py: Python<'py>, library: &Library, mut frame: Bound<'py, PyAny>) -> Option<Encoded> {
    loop {
        frame = frame.getattr(intern!(py, "f_back")).ok().filter(|frame| !frame.is_none())?;
        // SAFETY: the GIL is held; a live frame.
        match unsafe { of_frame(py, library, frame.as_ptr()) }? {
            Place::Known(place) => return Some(place),
            Place::Logging => (),
            Place::Unknown => return None,
        }
    }
}

#[inline(always)]
unsafe fn of_frame(py: Python<'_>, library: &Library, frame: *mut ffi::PyObject) -> Option<Place> {
    // SAFETY: the caller's promise; the frame holds its code, so the new reference is not needed.
    unsafe {
        let code: *mut ffi::PyObject = ffi::PyFrame_GetCode(frame.cast()).cast();
        ffi::Py_DECREF(code);
        let instruction = last_instruction(py, frame)?;
        let at = at(code, instruction);
        let known = TABLE.with(py, |table| {
            let entry =
                table[at].as_ref().filter(|entry| entry.code.as_ptr() == code && entry.instruction == instruction);
            entry.map(|entry| entry.place.clone())
        });
        if known.is_some() { known } else { learn(py, library, frame, code, instruction) }
    }
}

#[inline(always)]
fn at(code: *mut ffi::PyObject, instruction: c_int) -> usize {
    let address = code as usize;
    (address >> 5 ^ address >> 15 ^ (instruction as usize >> 1)) % ENTRIES
}

#[inline(always)]
unsafe fn last_instruction(py: Python<'_>, frame: *mut ffi::PyObject) -> Option<c_int> {
    let found = LAST_INSTRUCTION.load(Ordering::Relaxed);
    // SAFETY: the caller's promise; what was found under this name has this signature in every version that exports it.
    unsafe {
        if found.is_null() {
            return Bound::from_borrowed_ptr(py, frame).getattr(intern!(py, "f_lasti")).ok()?.extract().ok();
        }
        Some(transmute::<*mut c_void, unsafe extern "C" fn(*mut ffi::PyObject) -> c_int>(found)(frame))
    }
}

#[cold]
#[inline(never)]
unsafe fn learn(
    py: Python<'_>,
    library: &Library,
    frame: *mut ffi::PyObject,
    code: *mut ffi::PyObject,
    instruction: c_int,
) -> Option<Place> {
    // SAFETY: the caller's promise.
    unsafe {
        let line = ffi::PyFrame_GetLineNumber(frame.cast());
        let code = Bound::from_borrowed_ptr(py, code);
        let place = read(library, &code, line)?;
        let entry = Entry { code: code.clone().unbind(), instruction, place: place.clone() };
        let before = TABLE.with(py, |table| table[at(code.as_ptr(), instruction)].replace(entry));
        // Dropped outside of the cell, and as bound: this is a plain C function, where PyO3 would defer the rest.
        drop(before.map(|entry| entry.code.into_bound(py)));
        Some(place)
    }
}

fn read(library: &Library, code: &Bound<'_, PyAny>, line: c_int) -> Option<Place> {
    let py = code.py();
    let text = |name| code.getattr(name).ok()?.cast_into_exact::<PyString>().ok();
    let (path, function) = (text(intern!(py, "co_filename"))?, text(intern!(py, "co_name"))?);
    // SAFETY: the GIL is held; live objects.
    unsafe {
        let file = value::utf8(path.as_ptr()).unwrap_or("");
        if file == library.source_file {
            return Some(Place::Logging);
        }
        if line <= 0 || file.contains("importlib") && file.contains("_bootstrap") {
            return Some(Place::Unknown);
        }
        let mut scratch = Scratch::new();
        scratch.push_map_key("code.file.path");
        value::push_text(&mut scratch, path.as_ptr());
        scratch.push_map_key("code.line.number");
        scratch.push_int(line.into());
        scratch.push_map_key("code.function.name");
        value::push_text(&mut scratch, function.as_ptr());
        Some(Place::Known(Encoded(scratch.as_slice().into())))
    }
}
