//! The Python face: all code that uses PyO3 or the C API is here and in the files below.
//!
//! Hot paths (`emit`, `log`, `send`) are plain C functions with the fast calling convention: no argument tuple, no
//! borrow flag. Everything else is ordinary PyO3. The stable ABI (3.10) is enough for all of it; a build for one version
//! reads objects in place (`content`).

#[cfg(Py_GIL_DISABLED)]
compile_error!("inferlog needs an interpreter with the GIL: its core relies on it, and has not been tried without");

mod answer;
mod answer_reader;
mod arrow;
mod asgi;
mod attributes;
mod audit;
mod calling;
mod commands;
mod comparison;
mod content;
mod context_variable;
mod emit;
mod engine;
mod factory;
mod foreign;
mod gil_cell;
mod headers;
mod held;
mod hot_path;
mod keywords;
mod metrics;
mod middleware;
mod request_ids;
mod sampler;
mod scope;
mod service;
mod set_fields;
mod settings;
mod shared;
mod status;
mod stdlib;
mod terminal;
mod timed_send;
mod triton;
mod value;
mod waiting;
mod websocket;

use lines::catalogue::{self, Entry};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use std::ffi::CStr;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    calling::find();
    context_variable::find(module.py())?;
    stdlib::find(module.py());
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("platform", queue::platform::NAME)?;
    module.add_class::<service::PyService>()?;
    module.add_class::<emit::Event>()?;
    module.add_class::<value::BoundFields>()?;
    module.add_class::<attributes::LeastSeverity>()?;
    module.add_class::<audit::AuditQueue>()?;
    module.add_class::<audit::CommitWatch>()?;
    module.add_class::<audit::LineChain>()?;
    module.add_class::<request_ids::PyRequestIds>()?;
    request_ids::SET.add_to(&module.py().get_type::<request_ids::PyRequestIds>())?;
    module.add_class::<middleware::RequestObserver>()?;
    module.add_class::<engine::EngineReader>()?;
    module.add_class::<shared::RequestFactory>()?;
    module.add_class::<triton::ModelLog>()?;
    module.add_class::<triton::ModelRequest>()?;
    module.add_class::<sampler::PySampler>()?;
    module.add_function(wrap_pyfunction!(sampler::sampling_threshold, module)?)?;
    module.add_class::<settings::PySettings>()?;
    module.add_class::<value::Json>()?;
    module.add_class::<status::HealthReason>()?;
    module.add_class::<status::PyHealth>()?;
    module.add_class::<status::PyHealthWatch>()?;
    module.add_class::<status::PyMetrics>()?;
    module.add_class::<status::DirectoryWatch>()?;
    module.add_class::<comparison::PyComparison>()?;
    module.add_class::<answer_reader::AnswerReader>()?;
    module.add_class::<arrow::RowReader>()?;
    module.add_class::<arrow::PyRows>()?;
    module.add("received", bind(&middleware::RECEIVED, module.as_any())?)?;
    module.add("handled", bind(&stdlib::HANDLED, module.as_any())?)?;
    module.add("put_record", bind(&stdlib::PUT_RECORD, module.as_any())?)?;
    module.add("finish", bind(&middleware::FINISH, module.as_any())?)?;
    module.add_function(wrap_pyfunction!(commands::run_listener, module)?)?;
    module.add_function(wrap_pyfunction!(settings::configuration_fingerprint, module)?)?;
    module.add_function(wrap_pyfunction!(settings::configuration_of, module)?)?;
    module.add_function(wrap_pyfunction!(settings::configuration_differences, module)?)?;
    module.add_function(wrap_pyfunction!(settings::queues_of, module)?)?;
    module.add_function(wrap_pyfunction!(settings::queue_directory, module)?)?;
    module.add_function(wrap_pyfunction!(settings::queue_directories, module)?)?;
    module.add_function(wrap_pyfunction!(waiting::waiting_records, module)?)?;
    module.add_function(wrap_pyfunction!(waiting::forget_inherited_records, module)?)?;
    module.add_function(wrap_pyfunction!(waiting::leave_waiting_records_to_parent, module)?)?;
    module.add_function(wrap_pyfunction!(emit::switch_off, module)?)?;
    module.add_function(wrap_pyfunction!(stdlib::add_logger_methods, module)?)?;
    module.add_function(wrap_pyfunction!(stdlib::forget_handled_records, module)?)?;
    module.add_function(wrap_pyfunction!(stdlib::prepare_records, module)?)?;
    module.add_function(wrap_pyfunction!(terminal::terminal_line, module)?)?;
    module.add_function(wrap_pyfunction!(terminal::terminal_has_colours, module)?)?;
    module.add_function(wrap_pyfunction!(terminal::terminal_is_word, module)?)?;
    module.add_function(wrap_pyfunction!(terminal::terminal_safe, module)?)?;
    module.add_function(wrap_pyfunction!(fields, module)?)?;
    Ok(())
}

/// The catalogue: name, source, SQL type, unit, meaning of each field, and whether its values are few.
#[pyfunction]
fn fields() -> Vec<(&'static str, &'static str, &'static str, &'static str, &'static str, bool)> {
    let of = |entry: Entry| {
        (entry.name, entry.source.name(), entry.column, entry.unit(), entry.meaning, entry.has_few_values)
    };
    catalogue::fields().into_iter().map(of).collect()
}

/// A C function with `METH_FASTCALL`, bound to `this`.
///
/// `definition` must be static, since the function object keeps its address.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
fn bind(definition: &'static FunctionDef, this: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    // SAFETY: the definition lives forever and is only read; `this` is a live object, which the function keeps alive.
    unsafe {
        let function =
            ffi::PyCFunction_NewEx((&raw const definition.0).cast_mut(), this.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(this.py(), function).map(Bound::unbind)
    }
}

/// A method definition in static memory.
struct FunctionDef(ffi::PyMethodDef);

// SAFETY: never written; the pointers in it are to static text and functions.
unsafe impl Sync for FunctionDef {}

impl FunctionDef {
    /// Adds the method to a class.
    fn add_to(&'static self, class: &Bound<'_, PyType>) -> PyResult<()> {
        // SAFETY: the definition lives forever and is only read; the class is live.
        let descriptor = unsafe {
            let definition = (&raw const self.0).cast_mut();
            Bound::from_owned_ptr_or_err(class.py(), ffi::PyDescr_NewMethod(class.as_type_ptr(), definition))?
        };
        class.setattr(descriptor.getattr("__name__")?.cast::<PyString>()?, descriptor)
    }

    const fn fast(name: &'static CStr, function: ffi::PyCFunctionFast, doc: &'static CStr) -> Self {
        Self::of(name, ffi::PyMethodDefPointer { PyCFunctionFast: function }, ffi::METH_FASTCALL, doc)
    }

    const fn fast_with_keywords(
        name: &'static CStr,
        function: ffi::PyCFunctionFastWithKeywords,
        doc: &'static CStr,
    ) -> Self {
        let method = ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: function };
        Self::of(name, method, ffi::METH_FASTCALL | ffi::METH_KEYWORDS, doc)
    }

    const fn one_argument(name: &'static CStr, function: ffi::PyCFunction, doc: &'static CStr) -> Self {
        Self::of(name, ffi::PyMethodDefPointer { PyCFunction: function }, ffi::METH_O, doc)
    }

    const fn no_argument(name: &'static CStr, function: ffi::PyCFunction, doc: &'static CStr) -> Self {
        Self::of(name, ffi::PyMethodDefPointer { PyCFunction: function }, ffi::METH_NOARGS, doc)
    }

    const fn of(name: &'static CStr, method: ffi::PyMethodDefPointer, flags: i32, doc: &'static CStr) -> Self {
        Self(ffi::PyMethodDef { ml_name: name.as_ptr(), ml_meth: method, ml_flags: flags, ml_doc: doc.as_ptr() })
    }
}

/// Sets an exception, and returns what tells the interpreter of it.
#[cold]
fn raised(py: Python<'_>, error: PyErr) -> *mut ffi::PyObject {
    error.restore(py);
    std::ptr::null_mut()
}

/// Returns a new reference to True or False.
///
/// # Safety
/// The GIL is held.
unsafe fn python_bool(value: bool) -> *mut ffi::PyObject {
    // SAFETY: the caller holds the GIL; both are immortal or get their reference here.
    unsafe {
        let object = if value { ffi::Py_True() } else { ffi::Py_False() };
        ffi::Py_INCREF(object);
        object
    }
}
