//! What a request says of the client in front of the proxy: `X-Forwarded-For`, `X-Forwarded-Proto` and `Forwarded`.

use http::HeaderValue;
use http::header::{FORWARDED, HeaderMap, HeaderName};
use std::net::IpAddr;
use std::str::FromStr;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const PREFIX: &str = "x-forwarded-";
const REAL: HeaderName = HeaderName::from_static("x-real-ip");

/// What becomes of these headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    /// The client's are removed, and the proxy writes its own: nobody in front of it is believed.
    Replace,
    /// The client's address is added behind those that are there: what is in front of the proxy is believed.
    Append,
    /// They pass unchanged.
    Keep,
}

impl FromStr for Forwarded {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "replace" => Ok(Self::Replace),
            "append" => Ok(Self::Append),
            "keep" => Ok(Self::Keep),
            _ => Err(format!("'{name}' is not one of 'replace', 'append', 'keep'.")),
        }
    }
}

impl Forwarded {
    /// Changes the headers of a request of `client`.
    pub fn apply(self, headers: &mut HeaderMap, client: IpAddr) {
        match self {
            Self::Keep => return,
            Self::Replace => {
                let is_said =
                    |name: &&HeaderName| name.as_str().starts_with(PREFIX) || [FORWARDED, REAL].contains(name);
                let said: Vec<HeaderName> = headers.keys().filter(is_said).cloned().collect();
                for name in said {
                    headers.remove(name);
                }
            }
            Self::Append => {}
        }
        if headers.contains_key(FORWARDED) {
            // An address of IPv6 is in brackets and quotes (RFC 7239, section 6).
            let node = if client.is_ipv6() { format!("for=\"[{client}]\"") } else { format!("for={client}") };
            append(headers, FORWARDED, &node);
        }
        append(headers, FOR, &client.to_string());
        headers.entry(PROTO).or_insert(HeaderValue::from_static("http"));
    }
}

/// Adds to the list in a header; several lines become one.
fn append(headers: &mut HeaderMap, name: HeaderName, last: &str) {
    let mut list: Vec<u8> = Vec::new();
    for one in headers.get_all(&name) {
        list.extend_from_slice(one.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(last.as_bytes());
    if let Ok(list) = HeaderValue::from_bytes(&list) {
        headers.insert(name, list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(what: Forwarded, before: &[(&'static str, &'static str)]) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        for (name, value) in before {
            headers.append(*name, HeaderValue::from_static(value));
        }
        what.apply(&mut headers, IpAddr::from([192, 0, 2, 1]));
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let mut found: Vec<_> = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        found.sort();
        found
    }

    fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
        of.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    const SENT: [(&str, &str); 5] = [
        ("forwarded", "for=10.0.0.1"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-for", "10.0.0.2"),
        ("x-forwarded-prefix", "/a"),
        ("x-forwarded-proto", "https"),
    ];

    #[test]
    fn what_clients_say_is_replaced_added_to_or_kept() {
        let own = pairs(&[("x-forwarded-for", "192.0.2.1"), ("x-forwarded-proto", "http")]);
        assert_eq!(after(Forwarded::Replace, &SENT), own);
        assert_eq!(after(Forwarded::Append, &[]), own);
        let added = [
            ("forwarded", "for=10.0.0.1, for=192.0.2.1"),
            ("x-forwarded-for", "10.0.0.1, 10.0.0.2, 192.0.2.1"),
            ("x-forwarded-prefix", "/a"),
            ("x-forwarded-proto", "https"),
        ];
        assert_eq!(after(Forwarded::Append, &SENT), pairs(&added));
        assert_eq!(after(Forwarded::Keep, &SENT), pairs(&SENT));
    }
}
