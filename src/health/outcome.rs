//! What one probe found.

use std::fmt;
use std::time::Duration;

/// What one probe found, with its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub result: ProbeResult,
    pub reason: Reason,
    /// What exactly happened, as a stable code such as `connect_refused` or
    /// `certificate_expired`; empty after a pass.
    pub detail: &'static str,
    /// The HTTP status code, where an answer came that far.
    pub status: Option<u16>,
    /// From the start of the probe to its end, retries included.
    pub took: Duration,
}

/// Whether the endpoint did what the monitor asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    Pass,
    Fail,
    /// The probe couldn't be made, for a cause on this side: says nothing
    /// about the endpoint.
    Error,
}

/// Why a probe failed, in the words of Cloudflare's list of health check errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    NoFailures,
    TcpConnectionFailed,
    TcpTimeout,
    HttpTimeout,
    HttpInvalidResponse,
    ResponseCodeMismatch,
    ResponseBodyMismatch,
    TlsUntrustedCertificate,
    TlsNameMismatch,
    TlsProtocol,
    TlsUnrecognizedName,
    TlsHandshakeFailure,
    NoRouteToHost,
    NetworkUnreachable,
    ConnectionReset,
    DnsUnknownHost,
    OtherFailure,
}

impl Reason {
    /// The reason as people read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::NoFailures => "No failures",
            Reason::TcpConnectionFailed => "TCP connection failed",
            Reason::TcpTimeout => "TCP Timeout",
            Reason::HttpTimeout => "HTTP timeout occurred",
            Reason::HttpInvalidResponse => "HTTP Invalid Response",
            Reason::ResponseCodeMismatch => "Response code mismatch error",
            Reason::ResponseBodyMismatch => "Response body mismatch error",
            Reason::TlsUntrustedCertificate => "TLS untrusted certificate error",
            Reason::TlsNameMismatch => "TLS name mismatch error",
            Reason::TlsProtocol => "TLS protocol error",
            Reason::TlsUnrecognizedName => "TLS unrecognized name error",
            Reason::TlsHandshakeFailure => "TLS Handshake Failure",
            Reason::NoRouteToHost => "No route to host error",
            Reason::NetworkUnreachable => "Network Unreachable",
            Reason::ConnectionReset => "Connection Reset by Peer",
            Reason::DnsUnknownHost => "DNS Unknown Host",
            Reason::OtherFailure => "Other Failure",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
