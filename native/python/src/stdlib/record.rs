//! The record of a call, with the content that `inference_logging.Handler` gives it.

use super::attributes::{Attributes, int, item};
use super::chain;
use super::extra::{self, Extra, is_plain};
use super::format::Text;
use super::handling;
use super::level::{is_own_level, severity_of};
use super::library::Library;
use super::place::{self, Encoded};
use super::{Call, Ended};
use crate::emit;
use crate::foreign::ACTIVE_SPAN;
use crate::keywords;
use crate::request_ids::{PyRequestIds, trace_of_record};
use crate::value;
use listen::service::Service;
use pyo3::ffi;
use pyo3::prelude::*;
use queue::record::{Scratch, Trace};
use request::budget::{self, CallSite};

/// What is known of a record before any other code may run.
struct Prepared<'a, 'py> {
    service: &'static Service,
    severity: u8,
    /// The name of a level that is not one of the standard library's own.
    level_name: Option<Bound<'py, PyAny>>,
    name: Bound<'py, PyAny>,
    place: Encoded,
    call: Call,
    extra: Extra<'a>,
    library: &'a Library,
}

/// Puts the record of an enabled call into the queue; None: the standard library has to make it.
///
/// # Safety
/// The GIL is held, no exception is set; the call is the interpreter's with at least one argument, which is the message;
/// `logger` holds the attributes of its logger, `level` is that of the method.
#[inline(always)]
pub unsafe fn put(
    py: Python<'_>,
    library: &Library,
    (method, level): (usize, *mut ffi::PyObject),
    logger: Attributes,
    call: Call,
) -> Option<Ended> {
    // SAFETY: the caller's promise; what runs other code comes last, when nothing borrowed is in use.
    unsafe {
        if !library.handles(py) || !handling::is_idle(py) {
            return None;
        }
        let number = Library::number(method).or_else(|| int(level))?;
        let handler = chain::only_handler(py, library, logger, number)?;
        let mut values = keywords::no_values();
        let extra = extra::of_call(py, library, call, &mut values)?;
        let level_name = if library.has_own_name(py, method) { None } else { level_name(py, library, level, number)? };
        let severity = severity_of(number);
        let service = match emit::open_service() {
            Some(service) if severity >= emit::least_of_others(service) => service,
            Some(_) => return Some(Ended::Done),
            None => return None,
        };
        let name =
            logger.get(py, &library.keys.name).filter(|name| ffi::Py_TYPE(*name) == &raw mut ffi::PyUnicode_Type)?;
        let name = Bound::from_borrowed_ptr(py, name);
        let place = place::of_call(py, library)?;
        let prepared = Prepared { service, severity, level_name, name, place, call, extra, library };
        if prepared.runs_no_code() {
            return prepared.put(py);
        }
        prepared.put_with_other_code(py, &handler)
    }
}

/// Where a record goes, and which logger makes it.
pub struct Head {
    pub service: &'static Service,
    pub severity: u8,
    /// A live `str`.
    pub name: *mut ffi::PyObject,
}

/// The trace of a record, and the request under way.
pub type Context<'a> = (Option<&'a (Trace, Option<u64>)>, Option<&'a Bound<'a, PyRequestIds>>);

impl Head {
    /// Puts a record into the queue; `push` appends its attributes, `count` of them.
    ///
    /// # Safety
    /// The GIL is held, no exception is set, and nothing here or in `push` runs Python code.
    #[inline(always)]
    pub unsafe fn put(
        &self,
        py: Python<'_>,
        (trace, context): Context<'_>,
        message: &Message<'_, '_>,
        count: u32,
        push: impl FnOnce(&mut Scratch),
    ) -> Ended {
        // SAFETY: the caller's promise.
        unsafe {
            let site = || {
                let origin = budget::origin(value::utf8(self.name).unwrap_or(""), self.severity);
                Some(CallSite::text(origin, message.as_str().as_bytes()))
            };
            let Some(weight) = emit::weight(self.service, self.severity, trace, site) else {
                return Ended::Done;
            };
            let mut scratch = Scratch::new();
            match trace {
                Some((trace, _)) => scratch.push_trace(trace),
                None => scratch.push_absent(),
            }
            value::push_text(&mut scratch, self.name);
            match message {
                Message::Text(text) => scratch.push_str(text),
                Message::Object(text) => value::push_text(&mut scratch, text.as_ptr()),
            }
            match context {
                Some(ids) => ids.get().with(py, |ids| ids.push_request_id(&mut scratch)),
                None => scratch.push_absent(),
            }
            if count == 0 {
                scratch.push_absent();
            } else {
                scratch.push_map_begin(count);
                push(&mut scratch);
            }
            emit::push_weight(&mut scratch, weight);
            let accepted = emit::offer(py, self.service, queue::event::LOG, self.severity, &scratch);
            if accepted.is_null() {
                return Ended::Raised;
            }
            ffi::Py_DECREF(accepted);
            Ended::Done
        }
    }
}

/// The text of a record.
pub enum Message<'a, 'py> {
    Text(&'a str),
    /// A `str`.
    Object(Bound<'py, PyAny>),
}

impl Message<'_, '_> {
    unsafe fn as_str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            // SAFETY: the GIL is held (callers); the object is live.
            Self::Object(text) => unsafe { value::utf8(text.as_ptr()).unwrap_or("") },
        }
    }
}

impl Prepared<'_, '_> {
    /// Whether the record can be made without running any Python code.
    #[inline(always)]
    unsafe fn runs_no_code(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let Call { arguments, count, .. } = self.call;
            ffi::Py_TYPE(*arguments) == &raw mut ffi::PyUnicode_Type
                && (1..count).all(|at| is_plain(*arguments.add(at)))
                && self.extra.has_plain_values()
                && ACTIVE_SPAN.is_missing()
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn put_with_other_code(mut self, py: Python<'_>, handler: &Bound<'_, PyAny>) -> Option<Ended> {
        // SAFETY: the caller's promise.
        unsafe {
            let given = self.extra.dictionary;
            let copy = if given.is_null() { None } else { Some(extra::copy(py, given)?) };
            self.extra = Extra { dictionary: copy.as_ref().map_or(given, Bound::as_ptr), known: None };
            handling::handle(handler, || self.put(py))?
        }
    }

    #[inline(always)]
    unsafe fn put(&self, py: Python<'_>) -> Option<Ended> {
        // SAFETY: the caller's promise.
        unsafe {
            let context = emit::request(py, &self.library.context);
            let trace = trace_of_record(py, context.as_ref().map(Bound::get));
            let mut text = Text::new();
            let message = match self.message(py, &mut text) {
                Ok(message) => message?,
                Err(ended) => return Some(ended),
            };
            let given = self.extra.dictionary;
            let extras = if given.is_null() { 0 } else { ffi::PyDict_Size(given) as u32 };
            let head = Head { service: self.service, severity: self.severity, name: self.name.as_ptr() };
            let count = extras + u32::from(self.level_name.is_some()) + place::FIELDS;
            let ended = head.put(py, (trace.as_ref(), context.as_ref()), &message, count, |scratch| {
                self.extra.push(py, scratch);
                if let Some(name) = &self.level_name {
                    scratch.push_map_key("levelname");
                    value::push_text(scratch, name.as_ptr());
                }
                scratch.push_values(&self.place);
            });
            Some(ended)
        }
    }

    /// The message with its arguments; None: the standard library has to report it.
    #[inline(always)]
    unsafe fn message<'a, 'py>(&self, py: Python<'py>, text: &'a mut Text) -> Result<Option<Message<'a, 'py>>, Ended> {
        // SAFETY: the caller's promise.
        unsafe {
            let Call { arguments, count, .. } = self.call;
            if ffi::Py_TYPE(*arguments) == &raw mut ffi::PyUnicode_Type {
                if count == 1 {
                    return Ok(Some(Message::Object(Bound::from_borrowed_ptr(py, *arguments))));
                }
                let format = value::utf8(*arguments);
                if format.and_then(|format| text.format(format, arguments.add(1), count - 1)).is_some() {
                    return Ok(Some(Message::Text(text.as_str())));
                }
            }
            let formatted = self.formatted(py);
            if formatted.is_some() || ffi::PyErr_Occurred().is_null() {
                return Ok(formatted.filter(|text| ffi::PyUnicode_Check(text.as_ptr()) != 0).map(Message::Object));
            }
            if ffi::PyErr_ExceptionMatches(ffi::PyExc_Exception) != 0 {
                ffi::PyErr_Clear();
                return Ok(None);
            }
            Err(Ended::Raised)
        }
    }

    /// As `LogRecord.getMessage`; None: an exception is set, or only the standard library can do it.
    #[inline(always)]
    unsafe fn formatted<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        // SAFETY: the caller's promise; each new reference is owned.
        unsafe {
            let Call { arguments, count, .. } = self.call;
            let message = *arguments;
            let message = if ffi::Py_TYPE(message) == &raw mut ffi::PyUnicode_Type {
                Bound::from_borrowed_ptr(py, message)
            } else {
                Bound::from_owned_ptr_or_opt(py, ffi::PyObject_Str(message))?
            };
            if count == 1 {
                return Some(message);
            }
            let values = if count == 2 && is_mapping(self.library, *arguments.add(1))? {
                Bound::from_borrowed_ptr(py, *arguments.add(1))
            } else {
                let values = Bound::from_owned_ptr_or_opt(py, ffi::PyTuple_New(count as ffi::Py_ssize_t - 1))?;
                for at in 1..count {
                    let value = *arguments.add(at);
                    ffi::Py_INCREF(value);
                    ffi::PyTuple_SetItem(values.as_ptr(), at as ffi::Py_ssize_t - 1, value);
                }
                values
            };
            Bound::from_owned_ptr_or_opt(py, ffi::PyNumber_Remainder(message.as_ptr(), values.as_ptr()))
        }
    }
}

/// Whether the only argument is what the message takes its values from by name; None: as [`Prepared::formatted`].
unsafe fn is_mapping(library: &Library, value: *mut ffi::PyObject) -> Option<bool> {
    // SAFETY: the caller's promise.
    unsafe {
        if ffi::Py_TYPE(value) == &raw mut ffi::PyDict_Type {
            return Some(ffi::PyDict_Size(value) > 0);
        }
        if is_plain(value) {
            return Some(false);
        }
        // What another mapping is made of, only its own code knows.
        (ffi::PyObject_IsInstance(value, library.mapping.as_ptr()) == 0).then_some(false)
    }
}

/// The name of a level, if it is not the standard library's; None: the level has no name.
#[inline(never)]
unsafe fn level_name<'py>(
    py: Python<'py>,
    library: &Library,
    level: *mut ffi::PyObject,
    number: i64,
) -> Option<Option<Bound<'py, PyAny>>> {
    // SAFETY: the caller passes a live `int`.
    unsafe {
        let name = item(library.level_names.as_ptr(), level)?;
        if ffi::Py_TYPE(name) != &raw mut ffi::PyUnicode_Type {
            return None;
        }
        Some(if is_own_level(number, name) { None } else { Some(Bound::from_borrowed_ptr(py, name)) })
    }
}
