//! Any head of a request: the proxy refuses it, or passes it on as HTTP/1.1 asks for.
//!
//! The input is a request line and lines of headers; what no reader of HTTP takes is no request.
//!
//! `cargo +nightly fuzz run heads` fuzzes the proxy's treatment of heads.
#![cfg_attr(fuzzing, no_main)]

use http::header::{CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use proxy::heads::{by_http1, refusal, remove_connection_headers};

/// Checks one input.
pub fn check(bytes: &[u8]) {
    let Some(mut request) = read(bytes) else { return };
    let before = request.headers().clone();
    if let Some(status) = refusal(&request) {
        assert!([400, 501].contains(&status.as_u16()), "{status}");
        return;
    }
    remove_connection_headers(request.headers_mut());
    let (version, named) = (request.version(), request.uri().authority().cloned());
    let request = by_http1(request);
    let (headers, target) = (request.headers(), request.uri());
    assert_ne!(request.method(), Method::CONNECT);
    assert!(target.authority().is_none() && target.scheme().is_none(), "{target}");
    let hosts: Vec<&HeaderValue> = headers.get_all(HOST).iter().collect();
    assert_eq!(hosts.len(), usize::from(before.contains_key(HOST) || named.is_some()), "{version:?} {hosts:?}");
    let is_named =
        |host: &Uri| hosts.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(host.to_string().as_bytes()));
    assert!(named.is_none_or(|named| is_named(&Uri::from(named))), "{hosts:?}");
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        assert!(!headers.contains_key(&name), "{name}");
    }
    let is_option = |name: &HeaderName| name != "te" && options(&before).any(|option| name == option);
    assert_eq!(headers.keys().find(|name| is_option(name)), None, "an option of the connection passed");
    let is_lost = |name: &HeaderName| !headers.contains_key(name) && !is_of_connection(name) && !is_option(name);
    assert_eq!(before.keys().find(|name| is_lost(name)), None, "a header was lost");
    for name in ["authorization", "content-length", "cookie"] {
        assert_eq!(headers.get(name), before.get(name), "{name}");
    }
}

/// Each option that `Connection` names, as a name of a header.
fn options(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let values = headers.get_all(CONNECTION).iter().map(HeaderValue::as_bytes);
    let options = values.flat_map(|value| value.split(|byte| *byte == b','));
    options.filter_map(|option| HeaderName::from_bytes(option.trim_ascii()).ok())
}

fn is_of_connection(name: &HeaderName) -> bool {
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"].contains(&name.as_str())
}

fn read(bytes: &[u8]) -> Option<Request<()>> {
    let mut lines = bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut words = lines.next()?.splitn(3, |byte| *byte == b' ');
    let method = Method::from_bytes(words.next()?).ok()?;
    let target = Uri::try_from(words.next()?).ok()?;
    let version = match words.next()? {
        b"HTTP/1.0" => Version::HTTP_10,
        b"HTTP/1.1" => Version::HTTP_11,
        b"HTTP/2" => Version::HTTP_2,
        _ => return None,
    };
    let mut request = Request::builder().method(method).uri(target).version(version).body(()).ok()?;
    for line in lines.take_while(|line| !line.is_empty()) {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        request.headers_mut().try_append(name, value).ok()?;
    }
    Some(request)
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));
