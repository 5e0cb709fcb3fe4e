//! `inference_logging.Handler`: what a `LogRecord` says, read from its dictionary in one pass.
//!
//! The standard library writes a record's own attributes in one order, and `extra` behind them: so each name is compared
//! with the one that is due at its place, by address. A record in another order is searched. What would run other code
//! (an exception's text, the text of an object) is left to the handler's Python code.

use super::Ended;
use super::attributes::{Attributes, Key, each_from, int};
use super::extra::{is_plain, name_of};
use super::format::Text;
use super::handling;
use super::level::{is_own_level, severity_of};
use super::library::{Additions, Address, Entry, HandlerClass, dictionary};
use super::record::{Head, Message};
use crate::calling::call_with_keywords;
use crate::emit;
use crate::foreign::ACTIVE_SPAN;
use crate::held::Held;
use crate::keywords::{self, SharedKeys, Values};
use crate::request_ids::trace_of_record;
use crate::value;
use crate::{FunctionDef, python_bool, raised};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};
use pyo3::{ffi, intern};
use queue::record::{KeysLeft, MapKeys, Scratch};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

pub static PUT_RECORD: FunctionDef = FunctionDef::fast(
    c"put_record",
    put_record,
    c"Put a handler's record into the queue; return whether that is done.",
);

static HANDLE: FunctionDef = FunctionDef::fast_with_keywords(
    c"handle",
    handle,
    c"handle($self, record)\n--\n\n\
Filter and emit `record` without a lock, which the base class takes in any case from Python 3.13 on.",
);

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

static RECORDS: PyOnceLock<Records> = PyOnceLock::new();

/// The standard library's class of records, and how its records are laid out.
struct Records {
    class: Address,
    get_message: Entry,
    /// The names of an ordinary record's attributes in their order, and the position in [`READ`] or [`UNREAD`].
    names: Vec<(Py<PyString>, usize)>,
    /// The names that no `extra` may have.
    own: Py<PyAny>,
    /// The standard library's levels, the usual one first.
    levels: [Level; 5],
    place: MapKeys,
    context: Held,
    handler: HandlerClass,
    filters: Key,
    /// The methods between a handler's `handle` and the queue.
    methods: [Entry; 2],
    additions: [Additions; 2],
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

impl Records {
    /// Whether nothing but this file decides about a handler's records.
    #[inline(always)]
    unsafe fn is_plain(&self, py: Python<'_>, handler: *mut ffi::PyObject) -> Option<bool> {
        // SAFETY: the caller's promise; nothing here runs Python code.
        unsafe {
            if !self.handler.address.is_of(handler) {
                return None;
            }
            let attributes = Attributes::of(handler)?;
            let is_plain = attributes.size() == self.handler.attributes
                && ffi::PyList_Size(attributes.list(py, &self.filters)?) == 0
                && Entry::are_unchanged(py, &self.methods)
                && self.additions.iter().all(|class| class.are_harmless(py));
            Some(is_plain)
        }
    }
}

/// Prepares `put_record`, and gives the handler's class its `handle`: `kind` is the class of records, `names` are the
/// attributes of an ordinary record in their order, `own` all that a record can have of its own, `context` reads the
/// request under way, and `handler` is an ordinary handler.
#[pyfunction]
pub fn prepare_records(
    kind: &Bound<'_, PyType>,
    names: Vec<Bound<'_, PyString>>,
    own: &Bound<'_, PyAny>,
    context: &Bound<'_, PyAny>,
    handler: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = kind.py();
    let position = |name: &Bound<'_, PyString>| READ.iter().position(|read| name.to_string_lossy() == *read);
    let class = |name: &str| -> PyResult<Bound<'_, PyType>> { Ok(py.import("logging")?.getattr(name)?.cast_into()?) };
    HANDLE.add_to(&handler.get_type())?;
    let methods = dictionary(&handler.get_type())?;
    let level = |number, name| Level::of(py, number, name);
    let records = Records {
        class: Address::of(kind),
        get_message: Entry::of(&dictionary(kind)?, "getMessage")?,
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
        context: Held::new(context.clone().unbind()),
        handler: HandlerClass::of(handler)?,
        filters: Key::new(py, "filters"),
        methods: [Entry::of(&methods, "emit")?, Entry::of(&dictionary(&class("Filterer")?)?, "filter")?],
        additions: [Additions::of(&handler.get_type(), &["filter"])?, Additions::of(&class("Handler")?, &["filter"])?],
    };
    // Where one is missing, the library is another: then every record is left to Python.
    if (0..UNREAD).all(|read| records.names.iter().any(|(_, at)| *at == read)) {
        RECORDS.get_or_init(py, || records);
    }
    Ok(())
}

/// # Safety
/// Called by the interpreter only: `arguments` holds `count` live objects.
unsafe extern "C" fn put_record(
    _: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL; the number is checked.
    unsafe {
        let py = Python::assume_attached();
        if count != 2 {
            return raised(py, PyTypeError::new_err("put_record takes a handler and a record"));
        }
        match RECORDS.get(py).and_then(|records| put(py, records, *arguments, *arguments.add(1))) {
            Some(Ended::Raised) => null_mut(),
            ended => python_bool(ended.is_some()),
        }
    }
}

/// # Safety
/// Called by the interpreter only: `handler` is one of ours, `arguments` holds `count` live objects and the values of
/// `keywords`.
unsafe extern "C" fn handle(
    handler: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL.
    unsafe {
        let py = Python::assume_attached();
        let plain = if count == 1 && keywords.is_null() { RECORDS.get(py) } else { None };
        let plain = plain.filter(|records| records.is_plain(py, handler) == Some(true));
        match plain.and_then(|records| put(py, records, handler, *arguments)) {
            Some(Ended::Done) => {
                ffi::Py_INCREF(*arguments);
                *arguments
            }
            Some(Ended::Raised) => null_mut(),
            None => handle_in_python(&Bound::from_borrowed_ptr(py, handler), arguments, count as usize, keywords),
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn handle_in_python(
    handler: &Bound<'_, PyAny>,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    match handler.getattr(intern!(handler.py(), "_filter_and_emit")) {
        // SAFETY: the caller's promise.
        Ok(method) => unsafe { call_with_keywords(method.as_ptr(), arguments, count, keywords) },
        Err(error) => raised(handler.py(), error),
    }
}

/// Puts a record into the queue; None: nothing is done, and Python code has to do it.
///
/// It is called from two places, and is not part of their code twice.
#[inline(never)]
unsafe fn put(
    py: Python<'_>,
    records: &Records,
    handler: *mut ffi::PyObject,
    record: *mut ffi::PyObject,
) -> Option<Ended> {
    // SAFETY: the caller's promise.
    unsafe {
        if !records.class.is_of(record) || !records.get_message.is_unchanged(py) || !handling::is_idle(py) {
            return None;
        }
        if ACTIVE_SPAN.is_missing() {
            return put_idle(py, records, record);
        }
        handling::handle(&Bound::from_borrowed_ptr(py, handler), || put_idle(py, records, record))?
    }
}

#[inline(always)]
unsafe fn put_idle(py: Python<'_>, records: &Records, record: *mut ffi::PyObject) -> Option<Ended> {
    // SAFETY: the caller's promise; only the first two calls may run Python code, and nothing is borrowed before.
    unsafe {
        let context = emit::request(py, &records.context);
        let trace = trace_of_record(py, context.as_ref().map(Bound::get));
        let mut values = keywords::no_values();
        let mut content = Content::nothing();
        content.read(py, records, Attributes::of(record)?, &mut values)?;
        let (number, is_own_level) = content.level(records)?;
        let severity = severity_of(number);
        let service = emit::open_service()?;
        if severity < emit::least_of_others(service) {
            return Some(Ended::Done);
        }
        let mut text = Text::new();
        let message = content.message(py, &mut text)?;
        let has_place = int(content.read[LINE])? != 0;
        let count = content.extras as u32 + u32::from(!is_own_level) + if has_place { super::place::FIELDS } else { 0 };
        let head = Head { service, severity, name: content.read[NAME] };
        let ended = head.put(py, (trace.as_ref(), context.as_ref()), &message, count, |scratch| {
            content.push_extras(py, scratch);
            if !is_own_level {
                scratch.push_map_key("levelname");
                value::push_text(scratch, content.read[LEVEL_NAME]);
            }
            if has_place {
                push_values(py, scratch, &PLACE.map(|(_, at)| content.read[at]), records.place.all());
            }
        });
        Some(ended)
    }
}

/// What a record says; borrowed from its dictionary.
struct Content<'a> {
    read: [*mut ffi::PyObject; READ.len() + 1],
    /// How many attributes come from `extra`.
    extras: usize,
    /// Their names, where they are known, and their values.
    known: Option<(SharedKeys, &'a [*mut ffi::PyObject])>,
    /// The others.
    extra: [MaybeUninit<(&'a str, *mut ffi::PyObject)>; MOST_EXTRAS],
}

impl<'a> Content<'a> {
    #[inline(always)]
    const fn nothing() -> Self {
        Self {
            read: [null_mut(); READ.len() + 1],
            extras: 0,
            known: None,
            extra: [const { MaybeUninit::uninit() }; MOST_EXTRAS],
        }
    }

    /// Reads a record; None: it has another form, or something whose text takes other code.
    #[inline(always)]
    unsafe fn read(
        &mut self,
        py: Python<'_>,
        records: &Records,
        attributes: Attributes,
        values: &'a mut Values,
    ) -> Option<()> {
        // SAFETY: the caller's promise.
        unsafe {
            let is_whole = match self.read_in_order(records, attributes) {
                Some(position) => self.read_extra(py, records, attributes, position, values),
                None => self.search(records, attributes),
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
    unsafe fn read_in_order(&mut self, records: &Records, attributes: Attributes) -> Option<ffi::Py_ssize_t> {
        let (mut position, mut name, mut value) = (0, null_mut(), null_mut());
        for (known, at) in &records.names {
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
        records: &Records,
        attributes: Attributes,
        position: ffi::Py_ssize_t,
        values: &'a mut Values,
    ) -> bool {
        // SAFETY: the caller's promise: the dictionary has the attributes that were read, and these.
        unsafe {
            let count = attributes.size() as usize - records.names.len();
            if count == 0 {
                return true;
            }
            let is_field = |name| name_of(&records.own, name).is_some();
            self.known = keywords::keys_of_dict(py, attributes.as_ptr(), position, count, values, is_field);
            match &self.known {
                Some((_, values)) => {
                    self.extras = count;
                    values.iter().all(|value| is_plain(*value))
                }
                None => each_from(attributes.as_ptr(), position, |name, value| self.add(records, name, value)),
            }
        }
    }

    /// Reads a record whose attributes are in any order; false: one is missing, or takes other code.
    #[cold]
    #[inline(never)]
    unsafe fn search(&mut self, records: &Records, attributes: Attributes) -> bool {
        self.read = [null_mut(); READ.len() + 1];
        // SAFETY: the caller's promise.
        let is_whole = unsafe {
            each_from(attributes.as_ptr(), 0, |name, value| {
                match records.names.iter().find(|(known, _)| known.as_ptr() == name) {
                    Some((_, at)) => self.read[*at] = value,
                    None => return self.add(records, name, value),
                }
                true
            })
        };
        is_whole && self.read[..UNREAD].iter().all(|value| !value.is_null())
    }

    /// Adds an attribute of `extra`; false: it cannot be one, or its text takes other code.
    #[inline(never)]
    unsafe fn add(&mut self, records: &Records, name: *mut ffi::PyObject, value: *mut ffi::PyObject) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if ffi::Py_TYPE(name) != &raw mut ffi::PyUnicode_Type || !is_plain(value) {
                return false;
            }
            let Some(text) = name_of(&records.own, name) else {
                // An attribute of its own that an ordinary record does not have yet, as `message`.
                return ffi::PySet_Contains(records.own.as_ptr(), name) == 1
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
    unsafe fn level(&self, records: &Records) -> Option<(i64, bool)> {
        let (number, name) = (self.read[LEVEL], self.read[LEVEL_NAME]);
        let is_this = |level: &&Level| level.object.as_ptr() == number && level.name.as_ptr() == name;
        if let Some(level) = records.levels.iter().find(is_this) {
            return Some((level.number, true));
        }
        // SAFETY: the caller's promise.
        unsafe { int(number).map(|number| (number, is_own_level(number, name))) }
    }

    /// As `LogRecord.getMessage`; None: that takes other code, or fails.
    #[inline(always)]
    unsafe fn message<'t, 'py>(&self, py: Python<'py>, text: &'t mut Text) -> Option<Message<'t, 'py>> {
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
    unsafe fn push_extras(&self, py: Python<'_>, scratch: &mut Scratch) {
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
