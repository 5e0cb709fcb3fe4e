//! The headers that are recorded.

use request::added::Members;
use request::observer::ObserverSettings;

/// Returns those of a request's headers that the configuration names.
pub fn recorded(settings: &ObserverSettings, headers: &[(&[u8], &[u8])]) -> Members {
    let mut members = Members::default();
    headers.iter().for_each(|(name, value)| settings.recorded.take(name, value, &mut members));
    members
}
