//! Numbers in JSON's form.

use queue::record::append_short as put;

#[inline]
pub fn push_integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    put(out, itoa::Buffer::new().format(value).as_bytes());
}

pub fn push_float(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        put(out, ryu::Buffer::new().format_finite(value).as_bytes());
    } else if value.is_nan() {
        out.extend_from_slice(br#""NaN""#);
    } else if value > 0.0 {
        out.extend_from_slice(br#""Infinity""#);
    } else {
        out.extend_from_slice(br#""-Infinity""#);
    }
}
