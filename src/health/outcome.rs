//! What one probe found.

use std::fmt;
use std::time::Duration;

use crate::model::Check;

/// What one probe found, with its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub result: ProbeResult,
    pub reason: Reason,
    /// What exactly happened, as a stable code such as `connect_refused` or
    /// `certificate_expired`; empty after a pass that was not inverted.
    pub detail: &'static str,
    /// The HTTP status code, where an answer came that far.
    pub status: Option<u16>,
    /// From the start of the probe to its end, retries included.
    pub took: Duration,
    /// Why a pass is no good one.
    pub degraded: Option<Degraded>,
    /// What an agent said of its endpoint.
    pub agent: Option<AgentReport>,
    pub evidence: Evidence,
}

impl Outcome {
    /// One with nothing but its result.
    pub fn new(result: ProbeResult, reason: Reason, detail: &'static str) -> Outcome {
        Outcome {
            result,
            reason,
            detail,
            status: None,
            took: Duration::ZERO,
            degraded: None,
            agent: None,
            evidence: Evidence::default(),
        }
    }
}

/// A pass that is worth a look all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Degraded {
    /// It took longer than `degraded_above`.
    Slow,
    /// The certificate has less time left than `certificate_degraded`.
    CertificateExpiring,
}

impl fmt::Display for Degraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Degraded::Slow => "slow",
            Degraded::CertificateExpiring => "certificate_expiring",
        })
    }
}

/// What HAProxy's agent text says beside up and down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentReport {
    /// `drain`, `maint` and `ready`; none: it says nothing about that.
    pub wish: Option<AgentWish>,
    /// The share of its weight that the endpoint wants, in hundredths.
    pub percent: Option<u8>,
}

/// Whether an agent wants traffic for its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentWish {
    Ready,
    Drain,
    Maint,
}

/// What the last attempt of a probe saw on its way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// When each phase was over, since the attempt began; none: not come to.
    pub resolved: Option<Duration>,
    pub connected: Option<Duration>,
    pub tls: Option<Duration>,
    pub first_byte: Option<Duration>,
    /// How many attempts were made.
    pub attempts: u8,
    /// What came first from the endpoint, at most [`Evidence::SAID`] octets: of
    /// HTTP the body, elsewhere the protocol's own words.
    pub said: Box<[u8]>,
    /// The end of the certificate's validity, in Unix seconds.
    pub certificate_until: Option<i64>,
}

impl Evidence {
    /// So many octets are kept of what an endpoint said.
    pub const SAID: usize = 128;
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
    IcmpTimeout,
    UdpPortUnreachable,
    SmtpTimeout,
    SmtpInvalidResponse,
    DnsTimeout,
    DnsResponseMismatch,
    GrpcTimeout,
    GrpcNotServing,
    AgentTimeout,
    AgentDown,
    AgentInvalidResponse,
    TcpResponseMismatch,
    TlsCertificateExpiring,
    LatencyAboveLimit,
    CommandTimeout,
    CommandFailed,
    MetricOutOfBounds,
    ReportOverdue,
    ReportedDown,
    Inverted,
    OtherFailure,
}

impl Reason {
    /// That of a probe that ran into its timeout.
    pub fn of_timeout(check: &Check) -> Reason {
        match check {
            Check::Http(_) | Check::Prometheus(_) => Reason::HttpTimeout,
            Check::Icmp | Check::Udp(_) => Reason::IcmpTimeout,
            Check::Smtp(_) => Reason::SmtpTimeout,
            Check::Dns(_) => Reason::DnsTimeout,
            Check::Grpc(_) => Reason::GrpcTimeout,
            Check::Agent(_) => Reason::AgentTimeout,
            Check::Exec(_) => Reason::CommandTimeout,
            Check::Tcp(_) | Check::Tls(_) | Check::Push | Check::Static(_) => Reason::TcpTimeout,
        }
    }

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
            Reason::IcmpTimeout => "ICMP timeout occurred",
            Reason::UdpPortUnreachable => "UDP port unreachable error",
            Reason::SmtpTimeout => "SMTP timeout occurred",
            Reason::SmtpInvalidResponse => "SMTP Invalid Response",
            Reason::DnsTimeout => "DNS timeout occurred",
            Reason::DnsResponseMismatch => "DNS response mismatch error",
            Reason::GrpcTimeout => "gRPC timeout occurred",
            Reason::GrpcNotServing => "gRPC not serving error",
            Reason::AgentTimeout => "Agent timeout occurred",
            Reason::AgentDown => "Agent reported down",
            Reason::AgentInvalidResponse => "Agent Invalid Response",
            Reason::TcpResponseMismatch => "TCP response mismatch error",
            Reason::TlsCertificateExpiring => "TLS certificate expiring error",
            Reason::LatencyAboveLimit => "Latency above limit error",
            Reason::CommandTimeout => "Command timeout occurred",
            Reason::CommandFailed => "Command failed",
            Reason::MetricOutOfBounds => "Metric out of bounds error",
            Reason::ReportOverdue => "Report overdue",
            Reason::ReportedDown => "Endpoint reported down",
            Reason::Inverted => "Inverted pass",
            Reason::OtherFailure => "Other Failure",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
