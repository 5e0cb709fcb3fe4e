//! How a `LogRecord` is laid out, and what one says, read from its dictionary in one pass.
//!
//! The standard library writes a record's own attributes in one order, and `extra` behind them: so each name is compared
//! with the one that is due at its place, by address. A record in another order is searched.

use super::attributes::{Attributes, each_from, int};
use super::extra::{is_plain, name_of};
use super::format::Text;
use super::level::is_own_level;
use super::record::Message;
use crate::keywords::{self, SharedKeys, Values};
use crate::value;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;
use queue::record::{KeysLeft, MapKeys, Scratch};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

const MOST_EXTRAS: usize = 32;
const MOST_ARGUMENTS: usize = 8;

/// The attributes of a record that are read, by their position in [`READ`].
const READ: [&str; 10] =
    ["name", "msg", "args", "levelname", "levelno", "pathname", "lineno", "funcName", "exc_info", "stack_info"];
const NAME: usize = 0;
const MSG: usize = 1;
const ARGS: usize = 2;
const LEVEL_NAME: usize = 3;
const LEVEL: usize = 4;
const PATH: usize = 5;
const LINE: usize = 6;
const FUNCTION: usize = 7;
const EXCEPTION: usize = 8;
const STACK: usize = 9;
/// The place of what is not read.
const UNREAD: usize = READ.len();

/// The attributes of a place, with the positions of their values.
const PLACE: [(&str, usize); 3] =
    [("code.file.path", PATH), ("code.line.number", LINE), ("code.function.name", FUNCTION)];

/// How the records of the standard library are laid out.
pub struct Layout {
    /// The names of an ordinary record's attributes in their order, and the position in [`READ`] or [`UNREAD`].
    names: Vec<(Py<PyString>, usize)>,
    /// The names that no `extra` may have.
    own: Py<PyAny>,
    /// The standard library's levels, the usual one first.
    levels: [Level; 5],
    place: MapKeys,
}

impl Layout {
    /// Of ordinary records whose attributes have these names in their order; `own` are all that a record can have.
    pub fn of(py: Python<'_>, names: &[Bound<'_, PyString>], own: &Bound<'_, PyAny>) -> PyResult<Self> {
        let position = |name: &Bound<'_, PyString>| READ.iter().position(|read| name.to_string_lossy() == *read);
        let level = |number, name| Level::of(py, number, name);
        Ok(Self {
            names: names.iter().map(|name| (name.clone().unbind(), position(name).unwrap_or(UNREAD))).collect(),
            own: own.clone().unbind(),
            levels: [
                level(20, "INFO")?,
                level(10, "DEBUG")?,
                level(30, "WARNING")?,
                level(40, "ERROR")?,
                level(50, "CRITICAL")?,
            ],
            place: MapKeys::new(&PLACE.map(|(name, _)| name))
                .ok_or_else(|| PyRuntimeError::new_err("a key is too long"))?,
        })
    }

    /// Whether these records have all that is read.
    pub fn is_whole(&self) -> bool {
        (0..UNREAD).all(|read| self.names.iter().any(|(_, at)| *at == read))
    }
}

/// A level of the standard library as its records have it.
struct Level {
    number: i64,
    object: Py<PyAny>,
    name: Py<PyString>,
}

impl Level {
    fn of(py: Python<'_>, number: i64, name: &str) -> PyResult<Self> {
        let object = number.into_pyobject(py)?.into_any().unbind();
        Ok(Self { number, object, name: PyString::intern(py, name).unbind() })
    }
}

/// What a record says; borrowed from its dictionary.
pub struct Content<'a> {
    read: [*mut ffi::PyObject; READ.len() + 1],
    /// How many attributes come from `extra`.
    pub extras: usize,
    /// Their names, where they are known, and their values.
    known: Option<(SharedKeys, &'a [*mut ffi::PyObject])>,
    /// The others.
    extra: [MaybeUninit<(&'a str, *mut ffi::PyObject)>; MOST_EXTRAS],
}

impl<'a> Content<'a> {
    /// Nothing is read yet.
    #[inline(always)]
    pub const fn nothing() -> Self {
        Self {
            read: [null_mut(); READ.len() + 1],
            extras: 0,
            known: None,
            extra: [const { MaybeUninit::uninit() }; MOST_EXTRAS],
        }
    }

    /// The logger's name.
    #[inline(always)]
    pub const fn name(&self) -> *mut ffi::PyObject {
        self.read[NAME]
    }

    #[inline(always)]
    pub const fn level_name(&self) -> *mut ffi::PyObject {
        self.read[LEVEL_NAME]
    }

    /// Whether the place of the call is known.
    #[inline(always)]
    pub unsafe fn has_place(&self) -> Option<bool> {
        // SAFETY: the caller's promise.
        unsafe { int(self.read[LINE]).map(|line| line != 0) }
    }

    #[inline(always)]
    pub unsafe fn push_place(&self, py: Python<'_>, scratch: &mut Scratch, layout: &Layout) {
        // SAFETY: the caller's promise.
        unsafe { push_values(py, scratch, &PLACE.map(|(_, at)| self.read[at]), layout.place.all()) }
    }

    /// Reads a record; None: it has another form, or something whose text takes other code.
    #[inline(always)]
    pub unsafe fn read(
        &mut self,
        py: Python<'_>,
        layout: &Layout,
        attributes: Attributes,
        values: &'a mut Values,
    ) -> Option<()> {
        // SAFETY: the caller's promise.
        unsafe {
            let is_whole = match self.read_in_order(layout, attributes) {
                Some(position) => self.read_extra(py, layout, attributes, position, values),
                None => self.search(layout, attributes),
            };
            let read = &self.read;
            let is_text = |at: usize| ffi::Py_TYPE(read[at]) == &raw mut ffi::PyUnicode_Type;
            let is_usable = is_whole
                && is_text(NAME)
                && is_text(MSG)
                && is_text(LEVEL_NAME)
                && is_plain(read[PATH])
                && is_plain(read[FUNCTION])
                && read[EXCEPTION] == ffi::Py_None()
                && read[STACK] == ffi::Py_None();
            is_usable.then_some(())
        }
    }

    /// Reads the attributes of a record in the usual order; returns the position behind them.
    #[inline(always)]
    unsafe fn read_in_order(&mut self, layout: &Layout, attributes: Attributes) -> Option<ffi::Py_ssize_t> {
        let (mut position, mut name, mut value) = (0, null_mut(), null_mut());
        for (known, at) in &layout.names {
            // SAFETY: the caller's promise. Behind the last entry the name stays that of the one before.
            unsafe { ffi::PyDict_Next(attributes.as_ptr(), &mut position, &mut name, &mut value) };
            if name != known.as_ptr() {
                return None;
            }
            self.read[*at] = value;
        }
        Some(position)
    }

    /// Reads what is behind a record's own attributes; false: that takes other code.
    #[inline(always)]
    unsafe fn read_extra(
        &mut self,
        py: Python<'_>,
        layout: &Layout,
        attributes: Attributes,
        position: ffi::Py_ssize_t,
        values: &'a mut Values,
    ) -> bool {
        // SAFETY: the caller's promise: the dictionary has the attributes that were read, and these.
        unsafe {
            let count = attributes.size() as usize - layout.names.len();
            if count == 0 {
                return true;
            }
            let is_field = |name| name_of(&layout.own, name).is_some();
            self.known = keywords::keys_of_dict(py, attributes.as_ptr(), position, count, values, is_field);
            match &self.known {
                Some((_, values)) => {
                    self.extras = count;
                    values.iter().all(|value| is_plain(*value))
                }
                None => each_from(attributes.as_ptr(), position, |name, value| self.add(layout, name, value)),
            }
        }
    }

    /// Reads a record whose attributes are in any order; false: one is missing, or takes other code.
    #[cold]
    #[inline(never)]
    unsafe fn search(&mut self, layout: &Layout, attributes: Attributes) -> bool {
        self.read = [null_mut(); READ.len() + 1];
        // SAFETY: the caller's promise.
        let is_whole = unsafe {
            each_from(attributes.as_ptr(), 0, |name, value| {
                match layout.names.iter().find(|(known, _)| known.as_ptr() == name) {
                    Some((_, at)) => self.read[*at] = value,
                    None => return self.add(layout, name, value),
                }
                true
            })
        };
        is_whole && self.read[..UNREAD].iter().all(|value| !value.is_null())
    }

    /// Adds an attribute of `extra`; false: it cannot be one, or its text takes other code.
    #[inline(never)]
    unsafe fn add(&mut self, layout: &Layout, name: *mut ffi::PyObject, value: *mut ffi::PyObject) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if ffi::Py_TYPE(name) != &raw mut ffi::PyUnicode_Type || !is_plain(value) {
                return false;
            }
            let Some(text) = name_of(&layout.own, name) else {
                // An attribute of its own that an ordinary record does not have yet, as `message`.
                return ffi::PySet_Contains(layout.own.as_ptr(), name) == 1
                    && value::utf8(name).is_some_and(|text| !READ.contains(&text));
            };
            let Some(place) = self.extra.get_mut(self.extras) else { return false };
            place.write((text, value));
            self.extras += 1;
            true
        }
    }

    /// The number of the level, and whether it has the name that the standard library gives it.
    #[inline(always)]
    pub unsafe fn level(&self, layout: &Layout) -> Option<(i64, bool)> {
        let (number, name) = (self.read[LEVEL], self.read[LEVEL_NAME]);
        let is_this = |level: &&Level| level.object.as_ptr() == number && level.name.as_ptr() == name;
        if let Some(level) = layout.levels.iter().find(is_this) {
            return Some((level.number, true));
        }
        // SAFETY: the caller's promise.
        unsafe { int(number).map(|number| (number, is_own_level(number, name))) }
    }

    /// As `LogRecord.getMessage`; None: that takes other code, or fails.
    #[inline(always)]
    pub unsafe fn message<'t, 'py>(&self, py: Python<'py>, text: &'t mut Text) -> Option<Message<'t, 'py>> {
        // SAFETY: the caller's promise.
        unsafe {
            let (message, arguments) = (self.read[MSG], self.read[ARGS]);
            let kind = ffi::Py_TYPE(arguments);
            let is_tuple = kind == &raw mut ffi::PyTuple_Type;
            let count = if is_tuple { ffi::PyTuple_Size(arguments) as usize } else { 0 };
            if count == 0 {
                let has_none = is_tuple || arguments == ffi::Py_None();
                return has_none.then(|| Message::Object(Bound::from_borrowed_ptr(py, message)));
            }
            let mut values = [null_mut(); MOST_ARGUMENTS];
            for (at, place) in values.get_mut(..count)?.iter_mut().enumerate() {
                *place = ffi::PyTuple_GetItem(arguments, at as ffi::Py_ssize_t);
                is_plain(*place).then_some(())?;
            }
            let format = value::utf8(message);
            if format.and_then(|format| text.format(format, values.as_ptr(), count)).is_some() {
                return Some(Message::Text(text.as_str()));
            }
            let made = Bound::from_owned_ptr_or_opt(py, ffi::PyNumber_Remainder(message, arguments));
            if made.is_none() {
                ffi::PyErr_Clear();
            }
            made.map(Message::Object)
        }
    }

    #[inline(always)]
    pub unsafe fn push_extras(&self, py: Python<'_>, scratch: &mut Scratch) {
        // SAFETY: the caller's promise, and `add` has written these.
        unsafe {
            if let Some((keys, values)) = &self.known {
                return push_values(py, scratch, values, keys.all());
            }
            for extra in &self.extra[..self.extras] {
                let (name, value) = extra.assume_init();
                scratch.push_map_key(name);
                value::push(py, scratch, value);
            }
        }
    }
}

/// Appends values with their keys.
#[inline(never)]
unsafe fn push_values(py: Python<'_>, scratch: &mut Scratch, values: &[*mut ffi::PyObject], keys: KeysLeft<'_>) {
    // SAFETY: the caller's promise.
    unsafe { value::push_all(py, scratch, values.as_ptr(), values.len(), Some(keys)) }
}
