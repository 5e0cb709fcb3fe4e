//! `inference_logging.Handler`: its records go into the queue without Python code between the standard library and it.
//!
//! What would run other code (an exception's text, the text of an object, a filter) is left to the handler's Python code.

use super::Ended;
use super::attributes::{Attributes, Key};
use super::format::Text;
use super::handling;
use super::layout::{Content, Layout};
use super::level::severity_of;
use super::library::{Additions, Address, Entry, HandlerClass, dictionary};
use super::record::Head;
use crate::calling::call_with_keywords;
use crate::emit;
use crate::foreign::ACTIVE_SPAN;
use crate::held::Held;
use crate::keywords;
use crate::request_ids::trace_of_record;
use crate::value;
use crate::{FunctionDef, python_bool, raised};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};
use pyo3::{ffi, intern};
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

static RECORDS: PyOnceLock<Records> = PyOnceLock::new();

/// The standard library's class of records, how its records are laid out, and what handles them.
struct Records {
    class: Address,
    get_message: Entry,
    layout: Layout,
    context: Held,
    handler: HandlerClass,
    filters: Key,
    /// The methods between a handler's `handle` and the queue.
    methods: [Entry; 2],
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
    let class = |name: &str| -> PyResult<Bound<'_, PyType>> { Ok(py.import("logging")?.getattr(name)?.cast_into()?) };
    HANDLE.add_to(&handler.get_type())?;
    let methods = dictionary(&handler.get_type())?;
    let records = Records {
        class: Address::of(kind),
        get_message: Entry::of(&dictionary(kind)?, "getMessage")?,
        layout: Layout::of(py, &names, own)?,
        context: Held::new(context.clone().unbind()),
        handler: HandlerClass::of(handler)?,
        filters: Key::new(py, "filters"),
        methods: [Entry::of(&methods, "emit")?, Entry::of(&dictionary(&class("Filterer")?)?, "filter")?],
        additions: [Additions::of(&handler.get_type(), &["filter"])?, Additions::of(&class("Handler")?, &["filter"])?],
    };
    // Where one is missing, the library is another: then every record is left to Python.
    if records.layout.is_whole() {
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
        content.read(py, &records.layout, Attributes::of(record)?, &mut values)?;
        let (number, is_own_level) = content.level(&records.layout)?;
        let severity = severity_of(number);
        let service = emit::open_service()?;
        if severity < emit::least_of_others(service) {
            return Some(Ended::Done);
        }
        let mut text = Text::new();
        let message = content.message(py, &mut text)?;
        let has_place = content.has_place()?;
        let count = content.extras as u32 + u32::from(!is_own_level) + if has_place { super::place::FIELDS } else { 0 };
        let head = Head { service, severity, name: content.name() };
        let ended = head.put(py, (trace.as_ref(), context.as_ref()), &message, count, |scratch| {
            content.push_extras(py, scratch);
            if !is_own_level {
                scratch.push_map_key("levelname");
                value::push_text(scratch, content.level_name());
            }
            if has_place {
                content.push_place(py, scratch, &records.layout);
            }
        });
        Some(ended)
    }
}
