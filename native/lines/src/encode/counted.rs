//! The requests among the lines are counted as they are encoded.

use crate::redact::Redaction;
use crate::series::Series;
use crate::series::observe::FieldObserver;

/// Take note of a request: of what redaction leaves of it, since its labels leave the listener outside of lines.
#[inline]
pub fn count(
    series: &mut Series,
    redaction: &mut Option<Redaction>,
    seen: &FieldObserver<'_, '_>,
    unix_nano: u64,
    payload: &[u8],
) {
    let (answer, tenant) = (seen.answer(), seen.tenant());
    let served = match redaction {
        None => series.served(answer, answer.route),
        Some(redaction) => series.served(answer, redaction.route(answer.route)),
    };
    match (seen.inference(payload), redaction) {
        (None, _) => series.count(seen.outcome(), seen.weight(), tenant, served),
        (Some(seen), None) => series.observe(&seen, unix_nano, tenant, served),
        (Some(seen), Some(redaction)) => {
            redaction.labels(&seen, |seen| series.observe(seen, unix_nano, tenant, served));
        }
    }
}
