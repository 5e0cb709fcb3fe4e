//! The route of a request: the path template that frameworks leave in its scope.

use super::asgi::{Keys, item, mount_prefix, template, text_of};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use queue::record::Scratch;
use request::fields::{self, Field};

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
