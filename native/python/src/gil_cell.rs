//! State that the GIL guards, without a lock or a borrow flag.

use pyo3::Python;
use std::cell::UnsafeCell;

/// State that is only touched with the GIL held, and without Python code in between.
pub struct GilCell<T>(UnsafeCell<T>);

// SAFETY: `with` is called with the GIL held (the stable ABI knows no build without one), so there is one thread, and
// its closures run no Python code, so there is one borrow.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    pub const fn new(state: T) -> Self {
        Self(UnsafeCell::new(state))
    }

    /// Calls `work`, which may change the state and must not run Python code.
    #[inline]
    pub fn with<R>(&self, _py: Python<'_>, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: see above.
        work(unsafe { &mut *self.0.get() })
    }

    /// The state for the garbage collector, which passes no `Python`.
    ///
    /// # Safety
    /// The GIL is held, and not within [`GilCell::with`].
    pub unsafe fn peek(&self) -> &T {
        // SAFETY: the caller promises that the state does not change while it is borrowed.
        unsafe { &*self.0.get() }
    }
}
