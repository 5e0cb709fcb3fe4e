//! The route of a request: the path template that frameworks leave in its scope.

use super::asgi::{Keys, item, mount_prefix, template, text_of};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use queue::record::Scratch;
use request::fields::{self, Field};

/// The route, as far as it is known.
pub struct Route<'py> {
    template: Option<Bound<'py, PyAny>>,
    outermost: Option<Bound<'py, PyAny>>,
    inner: Option<Bound<'py, PyAny>>,
}

impl<'py> Route<'py> {
    /// The values are owned, since each look-up can run foreign code that empties the scope.
    #[inline]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub fn of(scope: &Bound<'py, PyDict>, keys: &Keys) -> Self {
        let own = |key| item(scope, key).map(Borrowed::to_owned);
        let template = match own(&keys.route) {
            Some(route) => template(scope, &route, keys),
            None => own(&keys.path_template), // Litestar
        };
        match template {
            None => Self { template, outermost: None, inner: None },
            Some(_) => Self { template, outermost: own(&keys.app_root_path), inner: own(&keys.root_path) },
        }
    }

    /// Appends the route; absent if it is not known.
    pub fn push(&self, scratch: &mut Scratch) {
        fields::Route { prefix: self.prefix(), template: self.template() }.push(scratch);
    }

    #[inline]
    pub fn prefix(&self) -> &str {
        mount_prefix(&self.outermost, &self.inner)
    }

    #[inline]
    pub fn template(&self) -> &str {
        text_of(&self.template)
    }
}
