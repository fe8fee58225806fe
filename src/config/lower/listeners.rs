//! Where the server answers, what is spoken there, and what it shows of itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use ipnet::IpNet;

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::{Field, OneOrMany, Scalar, brief};
use super::super::{Connections, Identity, shape};
use super::pem::Words;
use super::{Lower, beside};

/// How long something over TCP may take.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

/// What the lists of addresses say.
pub(super) struct Listeners {
    pub listen: Option<Vec<SocketAddr>>,
    pub tls: Vec<SocketAddr>,
    pub https: Vec<SocketAddr>,
    pub quic: Vec<SocketAddr>,
    pub http3: Vec<SocketAddr>,
}

/// One of the lists.
#[derive(Clone, Copy, PartialEq)]
struct Sort {
    udp: bool,
    tcp: bool,
    /// Where it is usual.
    port: u16,
    /// The one of examples.
    example: u16,
}

const DNS: Sort = Sort { udp: true, tcp: true, port: 53, example: 5300 };
const TLS: Sort = Sort { udp: false, tcp: true, port: 853, example: 853 };
const HTTPS: Sort = Sort { port: 443, example: 443, ..TLS };
const QUIC: Sort = Sort { udp: true, tcp: false, ..TLS };
const HTTP3: Sort = Sort { udp: true, tcp: false, ..HTTPS };

/// What has been listed so far, in any of the lists.
type Seen = Vec<(SocketAddr, Sort, Place)>;

impl Lower<'_> {
    pub(super) fn listeners(&self, server: &shape::Server) -> Listeners {
        let mut seen = Seen::new();
        let mut list = |field, sort| self.addresses(field, sort, &mut seen);
        let listen = list(&server.listen, DNS);
        let tls = list(&server.listen_tls, TLS).unwrap_or_default();
        let https = list(&server.listen_https, HTTPS).unwrap_or_default();
        let quic = list(&server.listen_quic, QUIC).unwrap_or_default();
        let http3 = list(&server.listen_http3, HTTP3).unwrap_or_default();
        Listeners { listen, tls, https, quic, http3 }
    }

    fn addresses(
        &self,
        field: &Field<OneOrMany<Scalar>>,
        sort: Sort,
        seen: &mut Seen,
    ) -> Option<Vec<SocketAddr>> {
        let Field::Given(place, list) = field else { return None };
        let example = sort.example;
        if list.0.is_empty() {
            self.empty_list(
                *place,
                &format!("write an address to listen on, such as `[127.0.0.1:{example}]`"),
            );
        }
        let mut addresses = Vec::new();
        for item in &list.0 {
            let Some((text, place)) = self.text(item) else { continue };
            let Ok(address) = text.parse::<SocketAddr>() else {
                let help = match listen_meant(text, sort.port) {
                    Some(SocketAddr::V4(address)) => format!("write `{address}`"),
                    Some(SocketAddr::V6(address)) => format!("write `\"{address}\"`"),
                    None => format!(
                        "write an address and a port, such as `127.0.0.1:{example}` or `\"[::1]:{example}\"`"
                    ),
                };
                let kind = ProblemKind::NotListen { value: brief(text) };
                self.gather.refuse(Spot::Value(place), kind, Some(help));
                continue;
            };
            let shares = |other: &Sort| sort.udp && other.udp || sort.tcp && other.tcp;
            match seen.iter().find(|(other, of, _)| shares(of) && overlap(*other, address)) {
                Some((other, of, first)) if (*other, *of) == (address, sort) => {
                    self.listed_twice(place, *first, &format!("`{address}`"));
                }
                Some((other, _, first)) => self.gather.refuse_with(
                    Spot::Value(place),
                    ProblemKind::ListenOverlap { one: other.to_string(), other: address.to_string() },
                    Some(match *other == address {
                        true => "give each its own port".into(),
                        false => "list either the wildcard or single addresses".to_owned(),
                    }),
                    (Spot::Value(*first), "the other one is here"),
                ),
                None => {
                    seen.push((address, sort, place));
                    addresses.push(address);
                }
            }
        }
        Some(addresses)
    }

    /// What encrypted transports show, which they can't do without.
    pub(super) fn server_identity(&self, server: &shape::Server) -> Option<Identity> {
        let lists = [&server.listen_tls, &server.listen_https, &server.listen_quic, &server.listen_http3];
        let wanted_by = lists.into_iter().find_map(Field::place);
        for (field, key, what) in [
            (&server.certificate, "certificate", "the certificate, those of its issuers behind it"),
            (&server.private_key, "private_key", "the certificate's private key"),
        ] {
            let other_way = server.certificate.place().or(server.private_key.place());
            if let (true, Some(place)) = (field.is_absent(), wanted_by.or(other_way)) {
                let of = format!("`{}`", self.gather.key_of(place));
                self.missing(place, &of, key, &format!("name the PEM file of {what}"));
            }
        }
        let (certificate, key) = (self.text(&server.certificate), self.text(&server.private_key));
        let words = Words {
            file: |path, why| ProblemKind::CertificateFile { path, why },
            other_key: ProblemKind::OtherPrivateKey {},
        };
        let (certificates, secret) = self.key_pair(certificate, key, &words)?;
        let path = |(text, place)| beside(self.gather, place, text);
        let identity =
            Identity { certificate: path(certificate?), private_key: path(key?), certificates, key: secret };
        if let Some(why) = identity.complaint() {
            let path = identity.certificate.display().to_string();
            let help = "clients refuse it: have it renewed, or set the clock".to_owned();
            let place = Spot::Value(certificate?.1);
            self.gather.warn(place, ProblemKind::CertificateTime { path, why }, Some(help), None);
        }
        Some(identity)
    }

    /// Networks, or addresses that stand for themselves.
    pub(super) fn networks(&self, field: &Field<OneOrMany<Scalar>>) -> Vec<IpNet> {
        let Field::Given(place, list) = field else { return Vec::new() };
        if list.0.is_empty() {
            self.empty_list(*place, "write an address or a network, or take the key away");
        }
        let mut seen: Vec<(IpNet, Place)> = Vec::new();
        for item in &list.0 {
            let Some((text, place)) = self.text(item) else { continue };
            let single = text.parse::<IpAddr>().map(IpNet::from);
            let Ok(network) = single.or_else(|_| text.parse::<IpNet>()) else {
                let help = "write an address or a network, such as `192.0.2.7`, `192.0.2.0/24` or \
                            `\"2001:db8::/32\"`";
                let kind = ProblemKind::NotNetwork { value: brief(text) };
                self.gather.refuse(Spot::Value(place), kind, Some(help.into()));
                continue;
            };
            if network.trunc() != network {
                let kind = ProblemKind::NotNetwork { value: brief(text) };
                let help = format!("bits after the prefix are set: write `{}`", network.trunc());
                self.gather.refuse(Spot::Value(place), kind, Some(help));
                continue;
            }
            match seen.iter().find(|(other, _)| *other == network) {
                Some((_, first)) => self.listed_twice(place, *first, &format!("`{network}`")),
                None => seen.push((network, place)),
            }
        }
        seen.into_iter().map(|(network, _)| network).collect()
    }

    /// What connections over TCP may take.
    pub(super) fn connections(&self, server: &shape::Server) -> Connections {
        let defaults = Connections::default();
        let limit = |field, default| self.duration(field, TIMEOUTS, default);
        let most = self.number(&server.tcp_connections, 1..=1_000_000, defaults.most.into()) as u32;
        let each = self.optional_number(&server.tcp_connections_per_client, 1..=1_000_000);
        Connections {
            most,
            per_client: each.map_or(defaults.per_client, |each| each as u32),
            idle: limit(&server.tcp_idle_timeout, defaults.idle),
            message: limit(&server.tcp_message_timeout, defaults.message),
            write: limit(&server.tcp_write_timeout, defaults.write),
            handshake: limit(&server.tls_handshake_timeout, defaults.handshake),
        }
    }

    /// The path of queries over HTTPS.
    pub(super) fn https_path(&self, field: &Field<Scalar>, default: String) -> String {
        let Some((text, place)) = self.text(field) else { return default };
        let plain = |c: char| ('!'..='~').contains(&c) && !"?#{}\"<>\\^`|".contains(c);
        let (why, help) = match text.find(['?', '{', '#']) {
            Some(0) | None if !text.starts_with('/') => {
                ("it begins with `/`", "write for example `/dns-query`".to_owned())
            }
            Some(end) => ("clients add the query by themselves", format!("write `{}`", brief(&text[..end]))),
            None if !text.chars().all(plain) => {
                ("it has a character in it that no path has", "write for example `/dns-query`".to_owned())
            }
            None => return text.to_owned(),
        };
        let kind = ProblemKind::NotPath { value: brief(text), why: why.into() };
        self.gather.refuse(Spot::Value(place), kind, Some(help));
        default
    }
}

/// Whether two addresses to listen on would get the same queries; each family
/// has sockets of its own, and port 0 is a new port each time.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one == other && one.port() != 0
        || one.port() == other.port() && one.port() != 0 && any && one.is_ipv4() == other.is_ipv4()
}

/// The address with a port that a text without brackets or without a port
/// means.
fn listen_meant(text: &str, usual: u16) -> Option<SocketAddr> {
    let bare = |text: &str| -> Option<SocketAddr> {
        let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        Some(SocketAddr::new(inner.unwrap_or(text).parse().ok()?, usual))
    };
    let Some((before, port)) = text.rsplit_once(':') else { return bare(text) };
    let address = match before {
        "" | "*" => Some(Ipv4Addr::UNSPECIFIED.into()),
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        _ => before.parse::<Ipv6Addr>().ok().map(IpAddr::from),
    };
    match (address, port.parse().ok().filter(|port: &u16| *port != 0)) {
        (Some(address), Some(port)) => Some(SocketAddr::new(address, port)),
        _ => bare(text),
    }
}
