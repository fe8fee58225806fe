//! Where one request goes, and where a redirect leads from there.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::health::ProbeTask;

/// One request's place: the first is the monitor's, further ones come from redirects.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hop<'a> {
    pub tls: bool,
    pub port: u16,
    /// The Host header: a name or literal, and a port where there is one.
    pub host: Cow<'a, str>,
    /// The origin-form request target.
    pub path: Cow<'a, str>,
}

/// A Location that leads nowhere we can go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BadLocation;

impl<'a> Hop<'a> {
    /// The Host header without port and brackets.
    pub fn name(&self) -> &str {
        name_of(&self.host)
    }

    /// Where `location` leads (RFC 3986 §5.2), its fragment dropped.
    ///
    /// A relative reference keeps the Host as it is written; an absolute one
    /// brings its own, even if it names the same host.
    pub fn follow(&self, location: &str) -> Result<Hop<'a>, BadLocation> {
        let reference = location.split('#').next().unwrap_or_default().trim_ascii();
        let (tls, rest) = match scheme(reference) {
            Some((name, rest)) if name.eq_ignore_ascii_case("http") => (false, rest),
            Some((name, rest)) if name.eq_ignore_ascii_case("https") => (true, rest),
            Some(_) => return Err(BadLocation),
            None => (self.tls, reference),
        };
        let Some(rest) = rest.strip_prefix("//") else {
            return match rest.len() == reference.len() {
                true => Ok(Hop { path: Cow::Owned(self.resolve(reference)), ..self.clone() }),
                false => Err(BadLocation), // "http:path"
            };
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let authority = authority.rsplit('@').next().unwrap_or_default(); // userinfo is not ours to send
        let (name, port) = split_authority(authority);
        let port = match port {
            Some("") | None => default_port(tls),
            Some(digits) => digits.parse().ok().filter(|port| *port != 0).ok_or(BadLocation)?,
        };
        if name.is_empty() || name.bytes().any(|byte| byte <= b' ' || byte >= 0x7f) {
            return Err(BadLocation);
        }
        let path = match path.starts_with('/') {
            true => tidy(path),
            false => tidy(&format!("/{path}")),
        };
        Ok(Hop { tls, port, host: Cow::Owned(host_header(name, port, tls)), path: Cow::Owned(path) })
    }

    fn resolve(&self, reference: &str) -> String {
        let base = self.path.split('?').next().unwrap_or_default();
        match reference.as_bytes().first() {
            None => self.path.clone().into_owned(),
            Some(b'/') => tidy(reference),
            Some(b'?') => tidy(&format!("{base}{reference}")),
            Some(_) => {
                let directory = base.rfind('/').map_or("/", |slash| &base[..=slash]);
                tidy(&format!("{directory}{reference}"))
            }
        }
    }
}

/// The Host header that nobody has set: an endpoint given by name is called by
/// it, whatever its address is just now.
pub(super) fn usual_host(task: &ProbeTask, tls: bool) -> String {
    match &task.hostname {
        Some(name) => host_header(name, task.port, tls),
        None => host_header(&task.address.to_string(), task.port, tls),
    }
}

/// A Host header without port and brackets.
pub(super) fn name_of(host: &str) -> &str {
    split_authority(host).0
}

/// Whether two names, as [`Hop::name`] gives them, are the same host.
pub(super) fn same_host(one: &str, other: &str) -> bool {
    match (one.parse::<IpAddr>(), other.parse::<IpAddr>()) {
        (Ok(one), Ok(other)) => one == other,
        (Err(_), Err(_)) => undotted(one).eq_ignore_ascii_case(undotted(other)),
        _ => false,
    }
}

/// A Host header: IPv6 in brackets, the port unless it is the scheme's own.
pub(super) fn host_header(name: &str, port: u16, tls: bool) -> String {
    let bracketed = name.contains(':');
    let (open, close) = if bracketed { ("[", "]") } else { ("", "") };
    match port == default_port(tls) {
        true => format!("{open}{name}{close}"),
        false => format!("{open}{name}{close}:{port}"),
    }
}

fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

fn undotted(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Name and port of `name`, `name:port`, `[literal]` or `[literal]:port`.
fn split_authority(authority: &str) -> (&str, Option<&str>) {
    if let Some((literal, rest)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (literal, rest.strip_prefix(':'));
    }
    match authority.split_once(':') {
        // More than one colon: a literal whose brackets were forgotten.
        Some((_, port)) if port.contains(':') => (authority, None),
        Some((name, port)) => (name, Some(port)),
        None => (authority, None),
    }
}

/// Scheme and the rest after its colon, if `reference` begins with a scheme.
fn scheme(reference: &str) -> Option<(&str, &str)> {
    let (name, rest) = reference.split_once(':')?;
    let mut letters = name.bytes();
    let valid = letters.next()?.is_ascii_alphabetic()
        && letters.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    valid.then_some((name, rest))
}

/// Without dot segments (RFC 3986 §5.2.4), and with what a request target may not hold encoded.
fn tidy(target: &str) -> String {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let mut segments: Vec<&str> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    segments.pop();
                }
                if last {
                    segments.push("");
                }
            }
            _ => segments.push(part),
        }
    }
    let mut tidied = String::with_capacity(target.len() + 1);
    for segment in &segments {
        tidied.push('/');
        encode(segment, &mut tidied);
    }
    if segments.is_empty() {
        tidied.push('/');
    }
    if let Some(query) = query {
        tidied.push('?');
        encode(query, &mut tidied);
    }
    tidied
}

fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte <= b' ' || byte >= 0x7f || b"\"<>\\^`{|}".contains(&byte) {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            out.push('%');
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        } else {
            out.push(char::from(byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Hop<'static> {
        Hop { tls: false, port: 8080, host: "app.example.com".into(), path: "/a/b/c?q=1".into() }
    }

    #[test]
    fn a_location_is_resolved_against_the_request() {
        for (location, url) in [
            ("/login", "http 8080 app.example.com /login"),
            ("/login#top", "http 8080 app.example.com /login"),
            ("d", "http 8080 app.example.com /a/b/d"),
            ("d?x=y", "http 8080 app.example.com /a/b/d?x=y"),
            ("./d/", "http 8080 app.example.com /a/b/d/"),
            ("../d", "http 8080 app.example.com /a/d"),
            ("../../../d", "http 8080 app.example.com /d"),
            ("..", "http 8080 app.example.com /a/"),
            ("?x", "http 8080 app.example.com /a/b/c?x"),
            ("", "http 8080 app.example.com /a/b/c?q=1"),
            ("#top", "http 8080 app.example.com /a/b/c?q=1"),
            ("d:e/f", "no"),
            ("./d:e", "http 8080 app.example.com /a/b/d:e"),
            ("/a b\u{e9}", "http 8080 app.example.com /a%20b%C3%A9"),
            ("/x//y", "http 8080 app.example.com /x//y"),
            ("//www.example.com", "http 80 www.example.com /"),
            ("//www.example.com/x/../y", "http 80 www.example.com /y"),
            ("https://app.example.com", "https 443 app.example.com /"),
            ("HTTPS://app.example.com?x", "https 443 app.example.com /?x"),
            ("https://app.example.com:443/x", "https 443 app.example.com /x"),
            ("https://app.example.com:/x", "https 443 app.example.com /x"),
            ("http://app.example.com:8443/x", "http 8443 app.example.com:8443 /x"),
            ("https://user:secret@app.example.com/x", "https 443 app.example.com /x"),
            ("http://[2001:db8::11]:8080/", "http 8080 [2001:db8::11]:8080 /"),
            ("http://[2001:db8::11]/", "http 80 [2001:db8::11] /"),
            ("ftp://app.example.com/", "no"),
            ("mailto:a@example.com", "no"),
            ("https:/x", "no"),
            ("https://", "no"),
            ("https://:443/", "no"),
            ("https://app.example.com:99999/", "no"),
            ("https://app.example.com:0/", "no"),
            ("https://app example.com/", "no"),
        ] {
            let found = match base().follow(location) {
                Ok(hop) => {
                    let scheme = if hop.tls { "https" } else { "http" };
                    format!("{scheme} {} {} {}", hop.port, hop.host, hop.path)
                }
                Err(BadLocation) => "no".to_owned(),
            };
            assert_eq!(found, url, "{location}");
        }
    }

    #[test]
    fn a_name_is_the_host_without_port_and_brackets() {
        for (host, name) in [
            ("app.example.com", "app.example.com"),
            ("app.example.com:8080", "app.example.com"),
            ("192.0.2.11:8080", "192.0.2.11"),
            ("[2001:db8::11]:8080", "2001:db8::11"),
            ("[2001:db8::11]", "2001:db8::11"),
            ("2001:db8::11", "2001:db8::11"),
        ] {
            assert_eq!(Hop { host: host.into(), ..base() }.name(), name);
        }
    }

    #[test]
    fn hosts_are_compared_as_names_and_as_addresses() {
        for (one, other, same) in [
            ("app.example.com", "APP.example.com.", true),
            ("app.example.com", "www.example.com", false),
            ("2001:db8::11", "2001:DB8:0::11", true),
            ("192.0.2.11", "192.0.2.12", false),
            ("192.0.2.11", "app.example.com", false),
        ] {
            assert_eq!(same_host(one, other), same, "{one} {other}");
        }
    }

    #[test]
    fn b01_b02_a_default_host_brackets_ipv6_and_carries_a_port_that_is_not_the_schemes() {
        for (name, port, tls, host) in [
            ("192.0.2.11", 80, false, "192.0.2.11"),
            ("192.0.2.11", 443, false, "192.0.2.11:443"),
            ("192.0.2.11", 443, true, "192.0.2.11"),
            ("2001:db8::11", 8080, false, "[2001:db8::11]:8080"),
            ("2001:db8::11", 80, false, "[2001:db8::11]"),
        ] {
            assert_eq!(host_header(name, port, tls), host);
        }
    }
}
