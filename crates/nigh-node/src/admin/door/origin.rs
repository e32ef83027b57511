//! Whether a request may come from where it says. Pure.
//!
//! Host: a page of another site can make its name lead to 127.0.0.1 (DNS rebinding), but cannot change the header
//! `Host`. So a door on loopback answers only under names of loopback. Site: browsers send `Sec-Fetch-Site` (Fetch
//! Metadata) or `Origin` (RFC 6454) with requests that change something; a request that another site caused is rejected
//! whoever signed it, and one that a cookie signs needs the proof.

use axum::http::{HeaderMap, Method, header};

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// A page of this door, or the person at the browser.
    Own,
    /// Another site, or another port.
    Other,
    /// No header says it: no browser, or an old one.
    Unknown,
}

/// Where the request with these headers comes from.
pub(super) fn site_of(headers: &HeaderMap) -> Site {
    match (text(headers, "sec-fetch-site"), text(headers, header::ORIGIN.as_str())) {
        (Some("same-origin" | "none"), _) => Site::Own,
        (Some(_), _) => Site::Other,
        (None, Some(origin)) => match origin.split_once("://") {
            Some((_, authority)) if Some(authority) == text(headers, header::HOST.as_str()) => Site::Own,
            _ => Site::Other,
        },
        (None, None) => Site::Unknown,
    }
}

/// True if a browser sent the request.
pub(super) fn is_browser(headers: &HeaderMap) -> bool {
    headers.contains_key("sec-fetch-site") || headers.contains_key("sec-fetch-mode")
}

/// True if the method changes nothing (RFC 9110, section 9.2.1).
pub(super) fn is_safe(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD || method == Method::OPTIONS
}

/// True if a request of this method may act, from there.
pub(super) fn may_act(method: &Method, site: Site) -> bool {
    is_safe(method) || site != Site::Other
}

/// True if a cookie signs a request of this method, from there.
pub(super) fn cookie_counts(method: &Method, site: Site) -> bool {
    match site {
        Site::Own => true,
        Site::Other => false,
        Site::Unknown => is_safe(method),
    }
}

/// True if `host`, the header, is a name of loopback.
pub(super) fn is_loopback_name(host: Option<&str>) -> bool {
    let Some(host) = host else { return false };
    let name = match host.rsplit_once(':') {
        // The last colon of a bare IPv6 address is no port's, and such a header is not allowed.
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    name.eq_ignore_ascii_case("localhost")
        || name == "[::1]"
        || name.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// The text of a header, if it has one value.
pub(super) fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() { None } else { first.to_str().ok() }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        all.iter().map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn only_names_of_loopback_are_answered_on_loopback() {
        for right in
            ["127.0.0.1:9403", "127.0.0.1", "localhost:9403", "LOCALHOST", "[::1]:9403", "[::1]", "127.3.2.1:1"]
        {
            assert!(is_loopback_name(Some(right)), "{right}");
        }
        for wrong in [
            "evil.example:9403",
            "127.0.0.1.evil.example",
            "localhost.evil.example:9403",
            "10.0.0.1:9403",
            "",
            "[::2]:1",
        ] {
            assert!(!is_loopback_name(Some(wrong)), "{wrong}");
        }
        assert!(!is_loopback_name(None));
    }

    #[test]
    fn a_request_that_another_site_caused_does_not_act() {
        let host = ("host", "127.0.0.1:9403");
        let of = |more: &[(&'static str, &'static str)]| site_of(&headers(&[&[host][..], more].concat()));
        for own in [
            &[("sec-fetch-site", "same-origin")][..],
            &[("sec-fetch-site", "none")],
            &[("origin", "http://127.0.0.1:9403")],
            &[("origin", "https://127.0.0.1:9403")],
        ] {
            assert_eq!(of(own), Site::Own, "{own:?}");
        }
        for other in [
            &[("sec-fetch-site", "cross-site")][..],
            // Another port of this machine is the same site and another origin.
            &[("sec-fetch-site", "same-site")],
            &[("origin", "http://127.0.0.1:3000")],
            &[("origin", "http://evil.example")],
            &[("origin", "null")],
            &[("sec-fetch-site", "cross-site"), ("origin", "http://127.0.0.1:9403")],
        ] {
            assert_eq!(of(other), Site::Other, "{other:?}");
        }
        assert_eq!(of(&[]), Site::Unknown);
        assert!(!may_act(&Method::POST, Site::Other) && may_act(&Method::GET, Site::Other));
        assert!(may_act(&Method::POST, Site::Unknown), "curl sends neither header");
    }

    #[test]
    fn a_cookie_needs_the_proof_that_its_own_page_sent_it() {
        for (site, reads, changes) in
            [(Site::Own, true, true), (Site::Other, false, false), (Site::Unknown, true, false)]
        {
            assert_eq!(cookie_counts(&Method::GET, site), reads, "{site:?}");
            assert_eq!(cookie_counts(&Method::POST, site), changes, "{site:?}");
        }
    }

    #[test]
    fn a_header_that_comes_twice_has_no_value() {
        let mut twice = headers(&[("host", "127.0.0.1:9403")]);
        assert_eq!(text(&twice, "host"), Some("127.0.0.1:9403"));
        twice.append("host", HeaderValue::from_static("evil.example"));
        assert_eq!(text(&twice, "host"), None);
    }
}
