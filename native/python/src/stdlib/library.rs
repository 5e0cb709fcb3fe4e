//! What the standard library's `logging` consists of, and whether it is still the library's own.
//!
//! Applications and tracers replace methods (`logging.Logger.callHandlers`), the class of records, or the names of levels.
//! Each call looks that up in the dictionaries of classes and of the module, which costs some nanoseconds a name.

use super::METHODS;
use super::attributes::{Attributes, Key, Keys, item};
use super::level::is_own_level;
use crate::gil_cell::GilCell;
use crate::held::Held;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyType};
use std::ptr::null_mut;

/// The methods of a logger that a record goes through. Loggers and their classes can have others of these names.
const WAY: [&str; 7] = ["isEnabledFor", "_log", "findCaller", "makeRecord", "handle", "callHandlers", "filter"];
const METHOD_NAMES: [&str; METHODS.len()] = ["debug", "info", "warning", "error", "critical", "log"];

pub struct Library {
    /// Our class of loggers, and that of the root logger.
    classes: [Address; 2],
    /// The standard library's two.
    plain_classes: [Address; 2],
    pub handler: HandlerClass,
    /// Its `handle` does nothing.
    pub null_handler: HandlerClass,
    null_handle: Entry,
    logger_class: Py<PyType>,
    levels: [Key; METHODS.len() - 1],
    /// The names of these levels, each if it was the standard library's own.
    own_names: [Option<Entry>; METHODS.len() - 1],
    methods: [Entry; METHODS.len()],
    is_enabled_for: Entry,
    way: Vec<Entry>,
    additions: Vec<Additions>,
    way_names: [Py<PyString>; WAY.len()],
    /// The number of a logger's attributes, without `manager`, which is missing where no manager has made it.
    attributes: isize,
    pub level_names: Py<PyDict>,
    /// The names that no `extra` may have.
    pub record_attributes: Py<PyAny>,
    pub mapping: Py<PyAny>,
    /// The frames of this file are not the place of a call.
    pub source_file: String,
    pub context: Held,
    pub keys: Keys,
}

/// The address of a class, which is never dropped.
#[derive(Clone, Copy, PartialEq)]
pub struct Address(*mut ffi::PyTypeObject);

// SAFETY: it is compared only.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    pub fn of(class: &Bound<'_, PyType>) -> Self {
        Self(class.clone().into_ptr().cast())
    }

    /// Whether a live object is of exactly this class.
    #[inline(always)]
    pub unsafe fn is_of(self, object: *mut ffi::PyObject) -> bool {
        // SAFETY: the caller's promise.
        unsafe { ffi::Py_TYPE(object) == self.0 }
    }
}

/// A class of handlers, and the number of attributes that its objects have unless somebody adds one.
#[derive(Clone, Copy)]
pub struct HandlerClass {
    pub address: Address,
    pub attributes: isize,
}

impl HandlerClass {
    pub fn of(handler: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { address: Address::of(&handler.get_type()), attributes: number_of_attributes(handler)? })
    }
}

/// An entry of a dictionary, with the value that it had at first.
pub struct Entry {
    dictionary: Py<PyDict>,
    key: Key,
    value: Py<PyAny>,
}

impl Entry {
    pub fn of(dictionary: &Bound<'_, PyDict>, name: &str) -> PyResult<Self> {
        Self::of_key(dictionary, PyString::intern(dictionary.py(), name).into_any())
    }

    /// As [`Key::of`].
    fn of_key(dictionary: &Bound<'_, PyDict>, key: Bound<'_, PyAny>) -> PyResult<Self> {
        let value = dictionary.as_any().get_item(&key)?.unbind();
        Ok(Self { dictionary: dictionary.clone().unbind(), key: Key::of(key), value })
    }

    #[inline(always)]
    pub fn is_unchanged(&self, py: Python<'_>) -> bool {
        // SAFETY: the GIL is held; a live dictionary.
        unsafe { self.key.item(py, self.dictionary.as_ptr()) == Some(self.value.as_ptr()) }
    }

    /// Whether all are unchanged, by a loop that is as short as it can be.
    #[inline(always)]
    pub fn are_unchanged(py: Python<'_>, entries: &[Self]) -> bool {
        let (mut name, mut value) = (null_mut(), null_mut());
        entries.iter().all(|entry| {
            let mut position = entry.key.position(py);
            name = null_mut();
            // SAFETY: as in `Key::item`.
            unsafe { ffi::PyDict_Next(entry.dictionary.as_ptr(), &mut position, &mut name, &mut value) };
            name == entry.key.as_ptr() && value == entry.value.as_ptr() || entry.is_unchanged_elsewhere(py)
        })
    }

    #[cold]
    #[inline(never)]
    fn is_unchanged_elsewhere(&self, py: Python<'_>) -> bool {
        self.is_unchanged(py)
    }
}

/// The dictionary of a class that had none of certain names when it had this size.
pub struct Additions {
    dictionary: Py<PyDict>,
    names: Vec<Py<PyString>>,
    size: GilCell<isize>,
}

impl Additions {
    pub fn of(class: &Bound<'_, PyType>, names: &[&str]) -> PyResult<Self> {
        let names = names.iter().map(|name| PyString::intern(class.py(), name).unbind()).collect();
        Ok(Self { dictionary: dictionary(class)?.unbind(), names, size: GilCell::new(-1) })
    }

    #[inline(always)]
    pub fn are_harmless(&self, py: Python<'_>) -> bool {
        // SAFETY: the GIL is held; a live dictionary.
        let size = unsafe { ffi::PyDict_Size(self.dictionary.as_ptr()) };
        self.size.with(py, |known| *known == size) || self.look(py, size)
    }

    #[cold]
    fn look(&self, py: Python<'_>, size: isize) -> bool {
        // SAFETY: as above.
        let is_harmless =
            self.names.iter().all(|name| unsafe { item(self.dictionary.as_ptr(), name.as_ptr()) }.is_none());
        if is_harmless {
            self.size.with(py, |known| *known = size);
        }
        is_harmless
    }
}

impl Library {
    /// See `super::add_logger_methods`.
    pub fn new(
        [logger, root]: [&Bound<'_, PyType>; 2],
        handler: &Bound<'_, PyAny>,
        record_attributes: &Bound<'_, PyAny>,
        context: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let py = logger.py();
        let logging = py.import("logging")?;
        let class = |name: &str| -> PyResult<Bound<'_, PyType>> { Ok(logging.getattr(name)?.cast_into()?) };
        let (plain, plain_root) = (class("Logger")?, class("RootLogger")?);
        let null_handler = class("NullHandler")?;
        let handler_class = handler.get_type();
        let methods = dictionary(&plain)?;
        let entries = [
            (&methods, &["_log", "findCaller", "makeRecord", "handle", "callHandlers"][..]),
            (&dictionary(&class("Filterer")?)?, &["filter"]),
            (&dictionary(&class("LogRecord")?)?, &["__init__", "getMessage"]),
            (&dictionary(&handler_class)?, &["handle", "emit"]),
            (&logging.dict(), &["_logRecordFactory", "_srcfile", "_levelToName"]),
        ];
        let way = entries.iter().flat_map(|(dictionary, names)| names.iter().map(|name| Entry::of(dictionary, name)));
        let additions = [
            Additions::of(logger, &WAY),
            Additions::of(root, &WAY),
            Additions::of(&plain_root, &[&WAY[..], &METHOD_NAMES].concat()),
            Additions::of(&plain, &["filter"]),
            Additions::of(&handler_class, &["filter"]),
            Additions::of(&class("Handler")?, &["filter"]),
        ];
        let entry = |name: &str| Entry::of(&methods, name);
        let [debug, info, warning, error, critical, log] = METHOD_NAMES.map(entry);
        let level = |level: i32| level.into_pyobject(py).map(|level| Key::of(level.into_any()));
        let level_names = logging.getattr("_levelToName")?.cast_into::<PyDict>()?;
        let own_name = |level: i64| -> PyResult<Option<Entry>> {
            let entry = Entry::of_key(&level_names, level.into_pyobject(py)?.into_any());
            let is_own = |name: &Entry| {
                let name = name.value.bind(py);
                // SAFETY: the GIL is held; the value is live, and a `str` where it is looked at.
                name.is_exact_instance_of::<PyString>() && unsafe { is_own_level(level, name.as_ptr()) }
            };
            Ok(entry.ok().filter(is_own))
        };
        Ok(Self {
            classes: [Address::of(logger), Address::of(root)],
            plain_classes: [Address::of(&plain), Address::of(&plain_root)],
            handler: HandlerClass::of(handler)?,
            null_handler: HandlerClass::of(&null_handler.call0()?)?,
            null_handle: Entry::of(&dictionary(&null_handler)?, "handle")?,
            logger_class: logger.clone().unbind(),
            levels: [level(10)?, level(20)?, level(30)?, level(40)?, level(50)?],
            own_names: [own_name(10)?, own_name(20)?, own_name(30)?, own_name(40)?, own_name(50)?],
            methods: [debug?, info?, warning?, error?, critical?, log?],
            is_enabled_for: entry("isEnabledFor")?,
            way: way.collect::<PyResult<_>>()?,
            additions: additions.into_iter().collect::<PyResult<_>>()?,
            way_names: WAY.map(|name| PyString::intern(py, name).unbind()),
            attributes: number_of_attributes(&logger.call1(("inference_logging",))?)?,
            level_names: level_names.unbind(),
            record_attributes: record_attributes.clone().unbind(),
            mapping: py.import("collections.abc")?.getattr("Mapping")?.unbind(),
            source_file: logging.getattr("_srcfile")?.extract()?,
            context: Held::new(context.clone().unbind()),
            keys: Keys::new(py),
        })
    }

    /// The level of a method, as a key of the dictionary in which each logger keeps what it has decided; None: it is in
    /// the call.
    #[inline(always)]
    pub fn level(&self, method: usize) -> Option<&Key> {
        self.levels.get(method)
    }

    /// The number of a method's level; None: it is in the call.
    #[inline(always)]
    pub fn number(method: usize) -> Option<i64> {
        (method < METHODS.len() - 1).then_some(10 * (method as i64 + 1))
    }

    /// Whether a method's level has the name that the standard library gives it; false also where that is not known.
    #[inline(always)]
    pub fn has_own_name(&self, py: Python<'_>, method: usize) -> bool {
        self.own_names.get(method).is_some_and(|name| name.as_ref().is_some_and(|name| name.is_unchanged(py)))
    }

    /// Whether a logger is of one of our two classes.
    #[inline(always)]
    pub unsafe fn is_ours(&self, logger: *mut ffi::PyObject) -> bool {
        // SAFETY: the caller passes a live object.
        unsafe { self.classes[0].is_of(logger) || self.classes[1].is_of(logger) }
    }

    /// Whether a logger's `handlers`, `propagate` and `parent` are ordinary attributes.
    #[inline(always)]
    pub unsafe fn is_ordinary(&self, logger: *mut ffi::PyObject) -> bool {
        // SAFETY: the caller passes a live object.
        unsafe { self.is_ours(logger) || self.plain_classes.iter().any(|class| class.is_of(logger)) }
    }

    /// Whether the decision about a level is the standard library's own.
    #[inline(always)]
    pub fn decides(&self, py: Python<'_>, method: usize) -> bool {
        let entries = [&self.methods[method], &self.is_enabled_for];
        entries.iter().all(|entry| entry.is_unchanged(py))
            && self.additions[..3].iter().all(|class| class.are_harmless(py))
    }

    /// Whether the way of a record is the standard library's own, besides what [`Library::decides`] looks at.
    #[inline(always)]
    pub fn handles(&self, py: Python<'_>) -> bool {
        Entry::are_unchanged(py, &self.way) && self.additions[3..].iter().all(|class| class.are_harmless(py))
    }

    /// Whether the standard library's handler that does nothing still does nothing.
    #[inline(always)]
    pub fn ignores(&self, py: Python<'_>) -> bool {
        self.null_handle.is_unchanged(py)
    }

    /// Whether a logger has a method of its own on the way of a record.
    #[inline(always)]
    pub unsafe fn is_overridden(&self, py: Python<'_>, logger: Attributes) -> bool {
        // SAFETY: the caller's promise of live objects.
        unsafe {
            let has_manager = logger.get(py, &self.keys.manager).is_some();
            logger.size() != self.attributes + isize::from(has_manager) && self.has_own_way(logger)
        }
    }

    #[inline(never)]
    unsafe fn has_own_way(&self, logger: Attributes) -> bool {
        // SAFETY: as above.
        unsafe { self.way_names.iter().any(|name| logger.item(name.as_ptr()).is_some()) }
    }

    /// The method that is called where ours is not defined.
    pub fn inherited<'py>(
        &self,
        py: Python<'py>,
        method: usize,
        logger: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        py.get_type::<pyo3::types::PySuper>().call1((&self.logger_class, logger))?.getattr(METHOD_NAMES[method])
    }
}

/// The dictionary of a class, which Python code sees through a proxy only.
pub fn dictionary<'py>(class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyDict>> {
    let gc = class.py().import("gc")?;
    let behind = gc.getattr("get_referents")?.call1((class.getattr("__dict__")?,))?.cast_into::<PyList>()?;
    let missing = || PyRuntimeError::new_err(format!("{class}: this interpreter does not show the class's dictionary"));
    behind.get_item(0).map_err(|_| missing())?.cast_into_exact::<PyDict>().map_err(|_| missing())
}

fn number_of_attributes(object: &Bound<'_, PyAny>) -> PyResult<isize> {
    Ok(object.getattr("__dict__")?.len()? as isize)
}
