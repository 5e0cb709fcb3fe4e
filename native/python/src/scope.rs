//! The keys of a scope that the beginning of each request reads.
//!
//! A server makes all its scopes with the same keys in the same order, so a key is first looked for where an earlier
//! scope had it: one comparison of pointers confirms it. In a scope of another order it is looked up as usual.

use super::asgi::{Keys, item, text};
use super::gil_cell::GilCell;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// The keys.
pub struct ScopeKeys {
    pub kind: ScopeKey,
    pub path: ScopeKey,
    pub root_path: ScopeKey,
    pub headers: ScopeKey,
    pub method: ScopeKey,
    pub http_version: ScopeKey,
    pub client: ScopeKey,
}

impl ScopeKeys {
    pub fn new(py: Python<'_>, keys: &Keys) -> Self {
        let key = |name: &Py<PyString>| ScopeKey { name: name.clone_ref(py), place: GilCell::new(0) };
        Self {
            kind: key(&keys.kind),
            path: key(&keys.path),
            root_path: key(&keys.root_path),
            headers: key(&keys.headers),
            method: key(&keys.method),
            http_version: key(&keys.http_version),
            client: key(&keys.client),
        }
    }

    /// Takes note of where this scope has the keys.
    #[cold]
    #[inline(never)]
    pub fn learn(&self, scope: &Bound<'_, PyDict>) {
        let Self { kind, path, root_path, headers, method, http_version, client } = self;
        let keys = [kind, path, root_path, headers, method, http_version, client];
        let mut place = 0;
        while let Some((name, _, next)) = member_at(scope, place) {
            for key in keys.iter().filter(|key| key.name.as_ptr() == name) {
                key.place.with(scope.py(), |known| *known = place);
            }
            place = next;
        }
    }
}

/// A key, and where the scopes of this server have it.
pub struct ScopeKey {
    name: Py<PyString>,
    place: GilCell<ffi::Py_ssize_t>,
}

impl ScopeKey {
    /// Borrows the value of the key, as [`item`] does.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub fn of<'a, 'py>(&self, scope: &'a Bound<'py, PyDict>) -> Option<Borrowed<'a, 'py, PyAny>> {
        match member_at(scope, self.place.with(scope.py(), |place| *place)) {
            Some((name, value, _)) if name == self.name.as_ptr() => Some(value),
            _ => item(scope, &self.name),
        }
    }
}

/// Borrows what stands at a place of a dictionary, or behind it: key, value, and the place behind them.
#[inline(always)]
fn member_at<'a, 'py>(
    dict: &'a Bound<'py, PyDict>,
    place: ffi::Py_ssize_t,
) -> Option<(*mut ffi::PyObject, Borrowed<'a, 'py, PyAny>, ffi::Py_ssize_t)> {
    let (mut next, mut key, mut value) = (place, std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: live objects, the GIL is held, any place may be asked for; the value is borrowed from the dictionary, which
    // keeps it until foreign code runs.
    unsafe {
        let is_found = ffi::PyDict_Next(dict.as_ptr(), &raw mut next, &raw mut key, &raw mut value) != 0;
        is_found.then(|| (key, Borrowed::from_ptr(dict.py(), value), next))
    }
}

/// The length of the prefix in `path` under which a proxy or a mount serves the application (`root_path`); 0: none. As
/// Starlette compares them: the prefix is whole segments of the path.
#[inline]
pub fn prefix_len(root_path: Option<Borrowed<'_, '_, PyAny>>, path: &str, empty: &Py<PyString>) -> usize {
    let Some(root) = root_path.filter(|root| root.as_ptr() != empty.as_ptr()).map(text) else { return 0 };
    let is_in_front =
        !root.is_empty() && path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if is_in_front { root.len() } else { 0 }
}
