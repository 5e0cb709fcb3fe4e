//! The keys of a scope that the beginning of each request reads; and the route that frameworks leave in it, a path template.
//!
//! A server makes all its scopes with the same keys in the same order, so a key is first looked for where an earlier
//! scope had it: one comparison of pointers confirms it. In a scope of another order it is looked up as usual.

use super::asgi::{Keys, item, mount_prefix, template, text, text_of};
use super::gil_cell::GilCell;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use queue::record::Scratch;
use request::fields::{self, Field};

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

/// The route, as far as it is known.
pub struct Route<'py> {
    template: Option<Bound<'py, PyAny>>,
    outermost: Option<Bound<'py, PyAny>>,
    inner: Option<Bound<'py, PyAny>>,
    /// The mount point with names instead of values, where it has parameters.
    mounted: Option<String>,
}

impl<'py> Route<'py> {
    /// The values are owned, since each look-up can run foreign code that empties the scope.
    #[inline]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub fn of(scope: &Bound<'py, PyDict>, keys: &Keys) -> Self {
        let own = |key| item(scope, key).map(Borrowed::to_owned);
        let route = own(&keys.route);
        let template = match &route {
            Some(route) => template(scope, route, keys),
            None => own(&keys.path_template), // Litestar
        };
        let Some(_) = template else {
            return Self { template, outermost: None, inner: None, mounted: None };
        };
        let mut found =
            Self { template, outermost: own(&keys.app_root_path), inner: own(&keys.root_path), mounted: None };
        if !found.prefix().is_empty() {
            if route.is_some_and(|route| is_mount(&route)) {
                found.template = None;
            }
            let parameters = own(&keys.path_params).and_then(|parameters| parameters.cast_into::<PyDict>().ok());
            found.mounted =
                parameters.and_then(|parameters| mount_template(found.prefix(), found.template(), &parameters));
        }
        found
    }

    /// Appends the route; absent if it is not known.
    pub fn push(&self, scratch: &mut Scratch) {
        fields::Route { prefix: self.prefix(), template: self.template() }.push(scratch);
    }

    #[inline]
    pub fn prefix(&self) -> &str {
        match &self.mounted {
            Some(mounted) => mounted,
            None => mount_prefix(&self.outermost, &self.inner),
        }
    }

    #[inline]
    pub fn template(&self) -> &str {
        text_of(&self.template)
    }
}

/// Whether a route is a `Mount`, whose path is a part of the mount point: none below it took the request, or its
/// application has no routes, as `StaticFiles` has none.
fn is_mount(route: &Bound<'_, PyAny>) -> bool {
    route.hasattr(intern!(route.py(), "routes")).unwrap_or(false)
}

/// The mount point `prefix` with the names of its parameters instead of their values; None if it has none.
///
/// Starlette puts the values of a `Mount` among those of the route, and the mount point itself only as it was asked for.
/// A value that is not found there, since a converter wrote it anew, leaves the names alone: a route has no values.
#[cold]
fn mount_template(prefix: &str, template: &str, parameters: &Bound<'_, PyDict>) -> Option<String> {
    let is_mounts =
        |name: &str| !template.contains(&format!("{{{name}}}")) && !template.contains(&format!("{{{name}:"));
    // A copy: writing a value can run foreign code, which may change the dictionary.
    let parameters = parameters.items();
    let own = parameters.iter().filter_map(|parameter| {
        let (name, value) = parameter.extract::<(String, Bound<'_, PyAny>)>().ok()?;
        is_mounts(&name)
            .then(|| (name, value.str().map(|value| value.to_string_lossy().into_owned()).unwrap_or_default()))
    });
    let own: Vec<(String, String)> = own.collect();
    if own.is_empty() {
        return None;
    }
    let (mut left, mut written) = (prefix, String::new());
    for (name, value) in own.iter().rev() {
        let Some(begin) = last_part(left, value) else {
            return Some(own.iter().map(|(name, _)| format!("/{{{name}}}")).collect());
        };
        written = format!("{{{name}}}{}{written}", &left[begin + value.len()..]);
        left = &left[..begin];
    }
    Some(format!("{left}{written}"))
}

/// Where `value` stands last in `path`: as whole parts of it, or else within one.
fn last_part(path: &str, value: &str) -> Option<usize> {
    let within = path.rmatch_indices(value).filter(|_| !value.is_empty());
    let is_whole = |begin: usize| {
        path[..begin].ends_with('/')
            && (path.len() == begin + value.len() || path[begin + value.len()..].starts_with('/'))
    };
    let places: Vec<usize> = within.map(|(begin, _)| begin).collect();
    places.iter().copied().find(|&begin| is_whole(begin)).or_else(|| places.first().copied())
}
