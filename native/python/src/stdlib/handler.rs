//! `inference_logging.Handler`: what a `LogRecord` says, read from its dictionary in one pass.
//!
//! What would run other code (an exception's text, the text of an object) is left to the handler's Python code.

use super::Ended;
use super::attributes::{Attributes, Key, int};
use super::extra::is_plain;
use super::format::Text;
use super::handling;
use super::library::{Additions, Address, Entry, HandlerClass, dictionary};
use super::record::{Head, Message, is_own_level, severity_of};
use crate::emit;
use crate::foreign::ACTIVE_SPAN;
use crate::held::Held;
use crate::request_ids::trace_of_record;
use crate::value;
use crate::{FunctionDef, python_bool, raised};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};
use queue::record::Scratch;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

pub static PUT_RECORD: FunctionDef = FunctionDef::fast(
    c"put_record",
    put_record,
    c"Put a handler's record into the queue; return whether that is done.",
);

pub static HANDLE_RECORD: FunctionDef = FunctionDef::fast(
    c"handle_record",
    handle_record,
    c"As put_record, for a handler of our own class without filters or changes; any other one is left to Python.",
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

static RECORDS: PyOnceLock<Records> = PyOnceLock::new();

/// The standard library's class of records, and how its records are laid out.
struct Records {
    class: Address,
    get_message: Entry,
    /// The names of an ordinary record's attributes in their order, and the position in [`READ`].
    names: Vec<(Py<PyString>, Option<usize>)>,
    /// The names that no `extra` may have.
    own: Py<PyAny>,
    context: Held,
    handler: HandlerClass,
    filters: Key,
    /// The methods between a handler's `handle` and the queue.
    methods: [Entry; 4],
    additions: [Additions; 2],
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
                && self.methods.iter().all(|method| method.is_unchanged(py))
                && self.additions.iter().all(|class| class.are_harmless(py));
            Some(is_plain)
        }
    }
}

/// Prepares `put_record`: `kind` is the class of records, `names` are the attributes of an ordinary record in their order, `own` all that a record can
/// have of its own, `context` reads the request under way, and `handler` is an ordinary handler.
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
    let methods = dictionary(&handler.get_type())?;
    let records = Records {
        class: Address::of(kind),
        get_message: Entry::of(&dictionary(kind)?, "getMessage")?,
        names: names.iter().map(|name| (name.clone().unbind(), position(name))).collect(),
        own: own.clone().unbind(),
        context: Held::new(context.clone().unbind()),
        handler: HandlerClass::of(handler)?,
        filters: Key::new(py, "filters"),
        methods: [
            Entry::of(&methods, "emit")?,
            Entry::of(&methods, "_emit")?,
            Entry::of(&methods, "_put")?,
            Entry::of(&dictionary(&class("Filterer")?)?, "filter")?,
        ],
        additions: [Additions::of(&handler.get_type(), &["filter"])?, Additions::of(&class("Handler")?, &["filter"])?],
    };
    RECORDS.get_or_init(py, || records);
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
        match put(py, *arguments, *arguments.add(1)) {
            Some(Ended::Raised) => null_mut(),
            ended => python_bool(ended.is_some()),
        }
    }
}

/// # Safety
/// Called by the interpreter only: `arguments` holds `count` live objects.
unsafe extern "C" fn handle_record(
    this: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL; the number is checked.
    unsafe {
        let py = Python::assume_attached();
        if count == 2 && RECORDS.get(py).and_then(|records| records.is_plain(py, *arguments)) != Some(true) {
            return python_bool(false);
        }
        put_record(this, arguments, count)
    }
}

/// Puts a record into the queue; None: nothing is done, and Python code has to do it.
#[inline(always)]
unsafe fn put(py: Python<'_>, handler: *mut ffi::PyObject, record: *mut ffi::PyObject) -> Option<Ended> {
    // SAFETY: the caller's promise.
    unsafe {
        let records = RECORDS.get(py)?;
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
        let content = Content::of(records, Attributes::of(record)?)?;
        let number = int(content.read[LEVEL])?;
        let severity = severity_of(number);
        let service = emit::open_service()?;
        if severity < emit::least_of_others(service) {
            return Some(Ended::Done);
        }
        let mut text = Text::new();
        let message = content.message(py, &mut text)?;
        let is_own_level = is_own_level(number, content.read[LEVEL_NAME]);
        let has_place = ffi::PyObject_IsTrue(content.read[LINE]) == 1;
        let count = content.extras as u32 + u32::from(!is_own_level) + if has_place { super::place::FIELDS } else { 0 };
        let head = Head { service, severity, name: content.read[NAME] };
        let ended = head.put(py, (trace.as_ref(), context.as_ref()), &message, count, |scratch| {
            content.push_extras(py, scratch);
            if !is_own_level {
                content.push(py, scratch, "levelname", LEVEL_NAME);
            }
            if has_place {
                content.push(py, scratch, "code.file.path", PATH);
                content.push(py, scratch, "code.line.number", LINE);
                content.push(py, scratch, "code.function.name", FUNCTION);
            }
        });
        Some(ended)
    }
}

/// What a record says; borrowed from its dictionary.
struct Content<'a> {
    read: [*mut ffi::PyObject; READ.len()],
    extra: [MaybeUninit<(&'a str, *mut ffi::PyObject)>; MOST_EXTRAS],
    /// How many of these are there.
    extras: usize,
}

impl Content<'_> {
    /// Reads a record; None: it has another form, or something whose text takes other code.
    #[inline(always)]
    unsafe fn of(records: &Records, attributes: Attributes) -> Option<Self> {
        let mut content =
            Self { read: [null_mut(); READ.len()], extra: [const { MaybeUninit::uninit() }; MOST_EXTRAS], extras: 0 };
        let (mut place, mut in_order) = (0, 0);
        // SAFETY: the caller's promise.
        let is_whole = unsafe {
            attributes.each(|name, value| {
                let mut known = records.names.get(place).filter(|(known, _)| known.as_ptr() == name);
                place += 1;
                if known.is_some() {
                    in_order += 1;
                } else if in_order < records.names.len() {
                    known = records.names.iter().find(|(known, _)| known.as_ptr() == name);
                }
                match known {
                    Some((_, Some(at))) => content.read[*at] = value,
                    Some((_, None)) => (),
                    None => return content.add(records, name, value),
                }
                true
            })
        };
        // SAFETY: as above.
        unsafe {
            let is_text = |at: usize| ffi::Py_TYPE(content.read[at]) == &raw mut ffi::PyUnicode_Type;
            let is_usable = is_whole
                && content.read.iter().all(|value| !value.is_null())
                && [NAME, MSG, LEVEL_NAME].into_iter().all(is_text)
                && [PATH, LINE, FUNCTION].into_iter().all(|at| is_plain(content.read[at]))
                && [EXCEPTION, STACK].into_iter().all(|at| content.read[at] == ffi::Py_None());
            is_usable.then_some(content)
        }
    }

    /// Adds an attribute of `extra`; false: it cannot be one, or its text takes other code.
    #[inline(always)]
    unsafe fn add(&mut self, records: &Records, name: *mut ffi::PyObject, value: *mut ffi::PyObject) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if ffi::Py_TYPE(name) != &raw mut ffi::PyUnicode_Type || !is_plain(value) {
                return false;
            }
            let Some(text) = value::utf8(name).filter(|text| !text.starts_with("code.")) else { return false };
            match ffi::PySet_Contains(records.own.as_ptr(), name) {
                0 => {
                    let Some(place) = self.extra.get_mut(self.extras) else { return false };
                    place.write((text, value));
                    self.extras += 1;
                    true
                }
                // An attribute of its own that an ordinary record does not have yet, as `message`.
                found => found == 1 && !READ.contains(&text),
            }
        }
    }

    /// As `LogRecord.getMessage`; None: that takes other code, or fails.
    #[inline(always)]
    unsafe fn message<'a, 'py>(&self, py: Python<'py>, text: &'a mut Text) -> Option<Message<'a, 'py>> {
        // SAFETY: the caller's promise.
        unsafe {
            let (message, arguments) = (self.read[MSG], self.read[ARGS]);
            let kind = ffi::Py_TYPE(arguments);
            if arguments == ffi::Py_None() || ffi::PyObject_IsTrue(arguments) == 0 && kind == &raw mut ffi::PyTuple_Type
            {
                return Some(Message::Object(Bound::from_borrowed_ptr(py, message)));
            }
            if kind != &raw mut ffi::PyTuple_Type {
                return None;
            }
            let count = ffi::PyTuple_Size(arguments) as usize;
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
        for extra in &self.extra[..self.extras] {
            // SAFETY: the caller's promise, and `add` has written these.
            unsafe {
                let (name, value) = extra.assume_init();
                scratch.push_map_key(name);
                value::push(py, scratch, value);
            }
        }
    }

    #[inline(always)]
    unsafe fn push(&self, py: Python<'_>, scratch: &mut Scratch, name: &str, at: usize) {
        scratch.push_map_key(name);
        // SAFETY: the caller's promise.
        unsafe { value::push(py, scratch, self.read[at]) };
    }
}
