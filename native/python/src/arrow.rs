//! Columns as Arrow's C data interface has them: <https://arrow.apache.org/docs/format/CDataInterface.html>.
//!
//! Each structure keeps the batch that its pointers lead into, and lets go of it when it is released.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyCapsule;
use segments::rows::{Column, Kind, Rows, Shape, Values};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

#[repr(C)]
struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut Schema,
    dictionary: *mut Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private: *mut c_void,
}

#[repr(C)]
struct Array {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Array,
    dictionary: *mut Array,
    release: Option<unsafe extern "C" fn(*mut Array)>,
    private: *mut c_void,
}

/// A stream of one batch.
#[repr(C)]
pub struct Stream {
    get_schema: unsafe extern "C" fn(*mut Stream, *mut Schema) -> c_int,
    get_next: unsafe extern "C" fn(*mut Stream, *mut Array) -> c_int,
    get_last_error: unsafe extern "C" fn(*mut Stream) -> *const c_char,
    release: Option<unsafe extern "C" fn(*mut Stream)>,
    private: *mut c_void,
}

/// Columns in Arrow's form.
pub struct Batch {
    fields: Vec<(CString, &'static CStr)>,
    columns: Vec<(Vec<u8>, Values, Vec<u8>)>,
    len: usize,
}

impl Batch {
    /// Make one of columns that are equally long.
    pub fn new(fields: &[(String, Kind)], columns: Vec<Column>) -> Self {
        let field = |(name, kind): &(String, Kind)| (CString::new(&**name).unwrap_or_default(), format(*kind));
        let len = columns.first().map_or(0, |column| column.present.len());
        let packed = |column: Column| {
            let bools = if let Values::Bools(bools) = &column.values { bits(bools) } else { Vec::new() };
            (bits(&column.present), column.values, bools)
        };
        Self { fields: fields.iter().map(field).collect(), columns: columns.into_iter().map(packed).collect(), len }
    }
}

fn format(kind: Kind) -> &'static CStr {
    match kind {
        Kind::Text => c"u",
        Kind::Signed => c"l",
        Kind::Unsigned => c"L",
        Kind::Float => c"g",
        Kind::Bool => c"b",
        Kind::Time => c"tsn:",
    }
}

fn bits(all: &[bool]) -> Vec<u8> {
    all.chunks(8).map(|eight| eight.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit))).collect()
}

/// What a structure owns: the batch, its list of buffers, and its children.
struct Held<T> {
    _batch: Arc<Batch>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut T>,
}

impl<T> Held<T> {
    fn new(batch: &Arc<Batch>, buffers: Vec<*const c_void>, children: Vec<T>) -> Box<Self> {
        let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
        Box::new(Self { _batch: batch.clone(), buffers, children })
    }
}

impl Schema {
    fn new(batch: &Arc<Batch>, format: &'static CStr, name: &CStr, children: Vec<Self>) -> Self {
        let mut held = Held::new(batch, Vec::new(), children);
        Self {
            format: format.as_ptr(),
            name: name.as_ptr(),
            metadata: null(),
            flags: 2, // values may be missing
            n_children: held.children.len() as i64,
            children: held.children.as_mut_ptr(),
            dictionary: null_mut(),
            release: Some(release_schema),
            private: Box::into_raw(held).cast(),
        }
    }

    fn of(batch: &Arc<Batch>) -> Self {
        let children = batch.fields.iter().map(|(name, format)| Self::new(batch, format, name, Vec::new())).collect();
        Self::new(batch, c"+s", c"", children)
    }
}

impl Array {
    fn new(batch: &Arc<Batch>, buffers: Vec<*const c_void>, children: Vec<Self>) -> Self {
        let mut held = Held::new(batch, buffers, children);
        Self {
            length: batch.len as i64,
            null_count: if held.children.is_empty() { -1 } else { 0 },
            offset: 0,
            n_buffers: held.buffers.len() as i64,
            n_children: held.children.len() as i64,
            buffers: held.buffers.as_mut_ptr(),
            children: held.children.as_mut_ptr(),
            dictionary: null_mut(),
            release: Some(release_array),
            private: Box::into_raw(held).cast(),
        }
    }

    fn of(batch: &Arc<Batch>) -> Self {
        let child = |(present, values, bools): &(Vec<u8>, Values, Vec<u8>)| {
            let mut buffers: Vec<*const c_void> = vec![present.as_ptr().cast()];
            match values {
                Values::Texts(ends, text) => buffers.extend([ends.as_ptr().cast(), text.as_ptr().cast::<c_void>()]),
                Values::Words(words) => buffers.push(words.as_ptr().cast()),
                Values::Bools(_) => buffers.push(bools.as_ptr().cast()),
            }
            Self::new(batch, buffers, Vec::new())
        };
        Self::new(batch, vec![null()], batch.columns.iter().map(child).collect())
    }
}

/// Defines the release of a structure: its children first, as far as nobody moved them away.
macro_rules! release {
    ($name:ident, $type:ty) => {
        unsafe extern "C" fn $name(this: *mut $type) {
            // SAFETY: the interface calls it once for a live structure that `new` made; children were boxed there.
            unsafe {
                let held = Box::from_raw((*this).private.cast::<Held<$type>>());
                for child in &held.children {
                    if let Some(release) = (**child).release {
                        release(*child);
                    }
                    drop(Box::from_raw(*child));
                }
                (*this).release = None;
            }
        }
    };
}

release!(release_schema, Schema);
release!(release_array, Array);

// SAFETY: it owns all that its pointer leads to, which any thread may use.
unsafe impl Send for Stream {}

impl Stream {
    pub fn new(batch: Arc<Batch>) -> Self {
        let private = Box::into_raw(Box::new((batch, false))).cast();
        Self { get_schema, get_next, get_last_error, release: Some(release_stream), private }
    }
}

impl Drop for Stream {
    /// Releases what nobody has moved away.
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: it was not released.
            unsafe { release(self) };
        }
    }
}

/// The batch of a stream, and whether it was given.
///
/// # Safety
/// The stream is live, and nobody else uses it.
unsafe fn inside<'a>(stream: *mut Stream) -> &'a mut (Arc<Batch>, bool) {
    // SAFETY: the caller's promise; `Stream::new` made it.
    unsafe { &mut *(*stream).private.cast() }
}

unsafe extern "C" fn get_schema(stream: *mut Stream, out: *mut Schema) -> c_int {
    // SAFETY: the interface gives a live stream and room for a schema.
    unsafe { out.write(Schema::of(&inside(stream).0)) };
    0
}

unsafe extern "C" fn get_next(stream: *mut Stream, out: *mut Array) -> c_int {
    // SAFETY: the interface gives a live stream and room for an array; one that is released ends the stream.
    unsafe {
        let (batch, given) = inside(stream);
        out.write(Array::of(batch));
        if std::mem::replace(given, true)
            && let Some(release) = (*out).release
        {
            release(out);
        }
    }
    0
}

unsafe extern "C" fn get_last_error(_: *mut Stream) -> *const c_char {
    null()
}

unsafe extern "C" fn release_stream(stream: *mut Stream) {
    // SAFETY: the interface calls it once for a live stream, which `Stream::new` made.
    unsafe {
        drop(Box::from_raw((*stream).private.cast::<(Arc<Batch>, bool)>()));
        (*stream).release = None;
    }
}

/// Reads lines as rows.
#[pyclass(frozen)]
pub struct RowReader(Shape);

#[pymethods]
impl RowReader {
    /// `columns`: name and SQL type of each. `texts`: members that must be texts in a plain line; `refused`: those that
    /// none has. Raises ValueError.
    #[new]
    fn new(columns: Vec<(String, String)>, texts: Vec<String>, refused: Vec<String>) -> PyResult<Self> {
        let shape = Shape::new(&columns, texts, refused);
        shape.map(Self).ok_or_else(|| PyValueError::new_err("columns: of unknown types, or without timestamp or pid"))
    }

    /// Return the rows of the records among lines, given the offset of each and the time of the record before.
    ///
    /// `judge` returns the text of the time of a record which is not plain, and None for a line that has no row. Raises
    /// what it does.
    fn read(
        &self,
        py: Python<'_>,
        lines: Vec<PyBackedBytes>,
        offsets: Vec<u64>,
        last_ns: u64,
        judge: Py<PyAny>,
    ) -> PyResult<PyRows> {
        py.detach(|| {
            let mut rows = Rows::new(&self.0, last_ns);
            for (line, offset) in lines.iter().zip(offsets) {
                if rows.take(line, offset) {
                    continue;
                }
                let time: Option<String> = Python::attach(|py| judge.call1(py, (line,))?.extract(py))?;
                if let Some(time) = time {
                    rows.take_odd(&time, line.len(), offset);
                }
            }
            let (len, odd, times, last_ns) = (rows.len, rows.odd, rows.times, rows.last_ns);
            let batch = Arc::new(Batch::new(self.0.columns(), rows.finish()));
            Ok(PyRows { rows: len, odd, times, last_ns, batch })
        })
    }
}

/// Rows of some lines, with their number.
#[pyclass(frozen, name = "Rows")]
pub struct PyRows {
    #[pyo3(get)]
    rows: usize,
    #[pyo3(get)]
    odd: usize,
    /// The earliest and the latest, in nanoseconds since the Unix epoch.
    #[pyo3(get)]
    times: Option<(u64, u64)>,
    #[pyo3(get)]
    last_ns: u64,
    batch: Arc<Batch>,
}

#[pymethods]
impl PyRows {
    /// Return a stream of the rows, as Arrow has it.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema; // a wish, which need not be granted
        PyCapsule::new_with_value(py, Stream::new(self.batch.clone()), c"arrow_array_stream")
    }
}
