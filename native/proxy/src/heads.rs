//! Heads of requests that HTTP does not allow, or that ask for what a proxy in front of one server does not do.

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, HeaderMap,
    HeaderName, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Method, Request, StatusCode, Uri, Version};

/// Headers for every recipient: as an option of one connection, they would be lost on the way (RFC 9110, section 7.6.1).
const FOR_ALL: [HeaderName; 10] = [
    AUTHORIZATION,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    COOKIE,
    HOST,
    // These are added before, if the configuration says so.
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("x-request-id"),
];
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
/// Headers of one connection (RFC 9110, section 7.6.1). `te` and `trailer` go on, as gRPC needs them.
const OF_CONNECTION: [HeaderName; 5] = [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, TRANSFER_ENCODING, UPGRADE];

/// The status with which a request is refused; None: it goes on.
pub fn refusal<B>(request: &Request<B>) -> Option<StatusCode> {
    let (headers, version) = (request.headers(), request.version());
    if request.method() == Method::CONNECT || !is_chunked_or_plain(headers) {
        return Some(StatusCode::NOT_IMPLEMENTED); // RFC 9110, section 9.3.6; RFC 9112, section 6.1
    }
    let is_wrong = names_those_for_all(headers) || !has_one_host(headers, version, request.uri().authority());
    is_wrong.then_some(StatusCode::BAD_REQUEST)
}

/// Whether the body has no other coding than `chunked`, which hyper has undone.
fn is_chunked_or_plain(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let only = |coding: &HeaderValue| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    codings.next().is_none_or(only) && codings.next().is_none()
}

/// What the client names as an option of its connection.
fn options(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(CONNECTION).iter().map(HeaderValue::as_bytes);
    values.flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

fn names_those_for_all(headers: &HeaderMap) -> bool {
    let is_for_all = |option: &[u8]| FOR_ALL.iter().any(|one| one.as_str().as_bytes().eq_ignore_ascii_case(option));
    options(headers).any(is_for_all)
}

/// Whether the host is named once, or by header and target alike (RFC 9112, section 3.2; RFC 9113, section 8.3.1).
fn has_one_host(headers: &HeaderMap, version: Version, target: Option<&Authority>) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (host, another) = (hosts.next(), hosts.next());
    let named = match host.map(|host| host.to_str()) {
        None => return another.is_none() && (version != Version::HTTP_11 || target.is_some()),
        Some(Ok(host)) => host.trim(),
        Some(Err(_)) => return false,
    };
    let is_valid = named.is_empty() || (!named.contains('@') && named.parse::<Authority>().is_ok());
    another.is_none() && is_valid && target.is_none_or(|target| target.as_str().eq_ignore_ascii_case(named))
}

/// Removes what belongs to one connection and not to the message.
pub fn remove_connection_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = options(headers).filter_map(|name| HeaderName::from_bytes(name).ok()).collect();
    for name in named.iter().chain(&OF_CONNECTION).filter(|name| **name != TE) {
        headers.remove(name);
    }
}

/// The request as a server gets it by HTTP/1.1: the target is a path, and the host is named in a header.
pub fn by_http1<B>(request: Request<B>) -> Request<B> {
    let (mut parts, body) = request.into_parts();
    let (path, host) = path_of(&mut parts.uri);
    if !parts.headers.contains_key(HOST)
        && let Some(host) = host.and_then(|host| HeaderValue::from_str(host.as_str()).ok())
    {
        // A client over HTTP/2 names the host beside the headers.
        parts.headers.insert(HOST, host);
    }
    parts.uri = path.into();
    parts.version = Version::HTTP_11;
    Request::from_parts(parts, body)
}

/// Takes the path, and the host if there is one, out of an URI.
pub fn path_of(uri: &mut Uri) -> (PathAndQuery, Option<Authority>) {
    let asked = std::mem::take(uri).into_parts();
    (asked.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/")), asked.authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(version: Version, target: &str, headers: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::builder().method("POST").uri(target).version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        refusal(&request.body(()).unwrap()).map(|status| status.as_u16())
    }

    #[test]
    fn a_host_is_named_once() {
        let one = refused(Version::HTTP_11, "/", &[("host", "a:80")]);
        let none = refused(Version::HTTP_11, "/", &[]);
        let two = refused(Version::HTTP_11, "/", &[("host", "a"), ("host", "a")]);
        let wrong = refused(Version::HTTP_11, "/", &[("host", "user@a")]);
        assert_eq!([one, none, two, wrong], [None, Some(400), Some(400), Some(400)]);
        assert_eq!(refused(Version::HTTP_10, "/", &[]), None);
    }

    #[test]
    fn target_and_header_name_one_host() {
        assert_eq!(refused(Version::HTTP_11, "http://a/x", &[("host", "A")]), None);
        assert_eq!(refused(Version::HTTP_11, "http://a/x", &[("host", "b")]), Some(400));
        assert_eq!(refused(Version::HTTP_2, "http://a/x", &[]), None);
        assert_eq!(refused(Version::HTTP_2, "http://a/x", &[("host", "b")]), Some(400));
    }

    #[test]
    fn no_header_for_all_is_an_option_of_the_connection() {
        let with = |options| refused(Version::HTTP_11, "/", &[("host", "a"), ("connection", options)]);
        assert_eq!([with("keep-alive, x-own"), with("close"), with("Host, authorization")], [None, None, Some(400)]);
    }

    #[test]
    fn a_byte_that_is_no_text_hides_no_option() {
        let mut request = Request::builder().uri("/").header("host", "a").header("x-own", "1").body(()).unwrap();
        let headers = request.headers_mut();
        headers.insert("connection", HeaderValue::from_bytes(b"x-own, \xff").unwrap());
        remove_connection_headers(headers);
        assert_eq!(headers.keys().collect::<Vec<_>>(), ["host"]);
        request.headers_mut().insert("connection", HeaderValue::from_bytes(b"\xff, authorization").unwrap());
        assert_eq!(refusal(&request), Some(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn only_chunked_is_undone() {
        let with = |coding| refused(Version::HTTP_11, "/", &[("host", "a"), ("transfer-encoding", coding)]);
        assert_eq!([with("chunked"), with("Chunked"), with("gzip, chunked")], [None, None, Some(501)]);
    }

    #[test]
    fn a_tunnel_is_not_implemented() {
        let request = Request::builder().method("CONNECT").uri("a:443").header("host", "a:443").body(()).unwrap();
        assert_eq!(refusal(&request), Some(StatusCode::NOT_IMPLEMENTED));
    }
}
