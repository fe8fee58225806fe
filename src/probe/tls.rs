//! TLS sessions of probes, and what it means when there is none.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, InvalidMessage,
    OtherError, PeerIncompatible, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::hop::name_of;
use super::{Failure, Phase, Progress};
use crate::health::{Degraded, ProbeTask, Reason};
use crate::model::{ClientIdentity, TlsCheck};
use crate::x509::{is_self_issued, validity};

/// Client configurations, one for each way of shaking hands that is in use.
#[derive(Debug)]
pub(super) struct Configs {
    provider: Arc<CryptoProvider>,
    made: Mutex<Vec<Made>>,
}

#[derive(Debug)]
struct Made {
    allow_insecure: bool,
    extra_roots: Option<Arc<[u8]>>,
    client: Option<ClientIdentity>,
    alpn: Alpn,
    config: Arc<ClientConfig>,
}

/// What is to be spoken over TLS (RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alpn {
    /// The extension isn't sent.
    None,
    /// A server that knows no ALPN will do.
    Http1,
    /// The server must agree (RFC 9113 §3.2).
    Http2,
}

impl Default for Configs {
    fn default() -> Configs {
        Configs { provider: Arc::new(ring::default_provider()), made: Mutex::default() }
    }
}

impl Configs {
    /// Shakes hands as `name`, which is sent unless it is an address and which
    /// the certificate must hold; judges how long the certificate is still
    /// valid, whether or not it was verified.
    pub async fn handshake(
        &self,
        stream: TcpStream,
        rules: Option<&TlsCheck>,
        name: &str,
        alpn: Alpn,
        progress: &mut Progress,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let name = ServerName::try_from(name)
            .map_err(|_| Failure::NotTested(Reason::OtherFailure, "invalid_server_name"))?
            .to_owned();
        let config = self.config(rules, alpn)?;
        let stream =
            TlsConnector::from(config).connect(name, stream).await.map_err(|error| match cause(&error) {
                Some(error) => failure(error),
                None => io_failure(&error),
            })?;
        let session = stream.get_ref().1;
        if alpn == Alpn::Http2 && session.alpn_protocol() != Some(b"h2") {
            return Err(Failure::Failed(Reason::TlsHandshakeFailure, "no_application_protocol"));
        }
        let shown = session.peer_certificates().and_then(<[_]>::first);
        if let Some(until) = shown.and_then(|certificate| validity(certificate)).map(|valid| valid.until) {
            progress.evidence.certificate_until = Some(until);
            match rules.map(|rules| time_left(until, unix_seconds(), rules)) {
                Some(TimeLeft::TooLittle) => {
                    return Err(Failure::Failed(Reason::TlsCertificateExpiring, "certificate_expiring"));
                }
                Some(TimeLeft::Little) => progress.degraded = Some(Degraded::CertificateExpiring),
                Some(TimeLeft::Enough) | None => {}
            }
        }
        Ok(stream)
    }

    fn config(&self, rules: Option<&TlsCheck>, alpn: Alpn) -> Result<Arc<ClientConfig>, Failure> {
        let allow_insecure = rules.is_some_and(|rules| rules.allow_insecure);
        let extra_roots = rules.and_then(|rules| rules.extra_roots.as_ref());
        let client = rules.and_then(|rules| rules.client.as_ref());
        let mut made = self.made.lock();
        let found = made.iter_mut().find(|made| {
            (made.allow_insecure, made.alpn) == (allow_insecure, alpn)
                && same(made.extra_roots.as_ref(), extra_roots)
                && same(
                    made.client.as_ref().map(|own| &own.certificates),
                    client.map(|own| &own.certificates),
                )
                && same(made.client.as_ref().map(|own| &own.key), client.map(|own| &own.key))
        });
        if let Some(found) = found {
            // After a reload: the same octets elsewhere.
            found.extra_roots = extra_roots.cloned();
            found.client = client.cloned();
            return Ok(found.config.clone());
        }
        // What nobody else holds any more was of an earlier configuration.
        let held = |octets: Option<&Arc<[u8]>>| octets.is_none_or(|octets| Arc::strong_count(octets) > 1);
        made.retain(|made| held(made.extra_roots.as_ref()) && held(made.client.as_ref().map(|own| &own.key)));
        let config = Arc::new(self.make(allow_insecure, extra_roots.map(|roots| &**roots), client, alpn)?);
        made.push(Made {
            allow_insecure,
            extra_roots: extra_roots.cloned(),
            client: client.cloned(),
            alpn,
            config: config.clone(),
        });
        Ok(config)
    }

    fn make(
        &self,
        allow_insecure: bool,
        extra_roots: Option<&[u8]>,
        client: Option<&ClientIdentity>,
        alpn: Alpn,
    ) -> Result<ClientConfig, Failure> {
        let mut pinned = Vec::new();
        let inner = match allow_insecure {
            true => None,
            false => {
                let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
                for root in CertificateDer::pem_slice_iter(extra_roots.unwrap_or_default()) {
                    let root = root.map_err(|_| INVALID_ROOTS)?;
                    roots.add(root.clone()).map_err(|_| INVALID_ROOTS)?;
                    pinned.push(root);
                }
                let verifier =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone());
                Some(verifier.build().map_err(|_| INVALID_ROOTS)?)
            }
        };
        let verifier = Verifier { inner, pinned, provider: self.provider.clone() };
        let builder = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for TLS 1.2 and 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match client {
            None => builder.with_no_client_auth(),
            Some(client) => {
                let chain = CertificateDer::pem_slice_iter(&client.certificates)
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|_| INVALID_CLIENT)?;
                let key = PrivateKeyDer::from_pem_slice(&client.key).map_err(|_| INVALID_CLIENT)?;
                builder.with_client_auth_cert(chain, key).map_err(|_| INVALID_CLIENT)?
            }
        };
        config.alpn_protocols = match alpn {
            Alpn::None => Vec::new(),
            Alpn::Http1 => vec![b"http/1.1".to_vec()],
            Alpn::Http2 => vec![b"h2".to_vec()],
        };
        config.resumption = Resumption::disabled(); // each probe is to see a whole handshake
        Ok(config)
    }
}

/// What the certificate must hold: the monitor's `server_name`, else the name
/// in Host (the endpoint's, else `host`), else the one that the address was
/// found under, else the address.
pub(super) fn server_name(task: &ProbeTask, rules: Option<&TlsCheck>, host: Option<&str>) -> String {
    let own = rules.and_then(|rules| rules.server_name.as_deref());
    let host = task.host.as_deref().or(host).map(name_of);
    match own.or(host).or(task.hostname.as_deref()) {
        Some(name) => name.to_owned(),
        None => task.address.to_string(),
    }
}

const INVALID_CLIENT: Failure = Failure::NotTested(Reason::OtherFailure, "invalid_client_certificate");
const INVALID_ROOTS: Failure = Failure::NotTested(Reason::OtherFailure, "invalid_roots");

fn same(one: Option<&Arc<[u8]>>, other: Option<&Arc<[u8]>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
        (None, None) => true,
        _ => false,
    }
}

/// Verifies with the roots, or takes any certificate; the handshake must be
/// signed with the certificate's key in either case.
#[derive(Debug)]
struct Verifier {
    inner: Option<Arc<WebPkiServerVerifier>>,
    /// The further roots, which may be presented as they are.
    pinned: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(inner) = &self.inner else {
            return Ok(ServerCertVerified::assertion());
        };
        let error = match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        {
            // Other: an authority's certificate was presented as the server's own, which is what
            // self-signed ones mostly are. Its dates have been checked by then.
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if self.pinned.contains(end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                return Ok(ServerCertVerified::assertion());
            }
            Err(error) => error,
            verified => return verified,
        };
        let untrusted = matches!(
            error,
            Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::Other(_))
        );
        match untrusted && is_self_issued(end_entity) {
            true => Err(CertificateError::Other(OtherError(Arc::new(SelfSigned))).into()),
            false => Err(error),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The certificate vouches for itself.
#[derive(Debug)]
struct SelfSigned;

impl std::fmt::Display for SelfSigned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("self-signed certificate")
    }
}

impl std::error::Error for SelfSigned {}

/// How much time a certificate has left, by a monitor's rules.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TimeLeft {
    Enough,
    /// Less than `certificate_degraded`.
    Little,
    /// Less than `certificate_fail`.
    TooLittle,
}

fn time_left(until: i64, now: i64, rules: &TlsCheck) -> TimeLeft {
    let left = until.saturating_sub(now);
    let below = |limit: Option<Duration>| {
        limit.is_some_and(|limit| left < i64::try_from(limit.as_secs()).unwrap_or(i64::MAX))
    };
    match (below(rules.fail_below), below(rules.degraded_below)) {
        (true, _) => TimeLeft::TooLittle,
        (false, true) => TimeLeft::Little,
        (false, false) => TimeLeft::Enough,
    }
}

fn unix_seconds() -> i64 {
    UnixTime::now().as_secs().try_into().unwrap_or(i64::MAX)
}

/// The TLS error inside an IO error.
pub(super) fn cause(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// What a TLS error means.
pub(super) fn failure(error: &Error) -> Failure {
    let (reason, detail) = match error {
        Error::InvalidCertificate(error) => certificate(error),
        Error::AlertReceived(alert) => alert_received(*alert),
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge
            | InvalidMessage::InvalidEmptyPayload,
        ) => (Reason::TlsProtocol, "not_tls"),
        Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. } => (Reason::TlsProtocol, "malformed_message"),
        Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => (Reason::TlsProtocol, "protocol_version"),
        Error::PeerIncompatible(_) => (Reason::TlsHandshakeFailure, "incompatible"),
        Error::NoCertificatesPresented => (Reason::TlsUntrustedCertificate, "no_certificate"),
        Error::NoApplicationProtocol => (Reason::TlsHandshakeFailure, "no_application_protocol"),
        Error::FailedToGetCurrentTime | Error::FailedToGetRandomBytes => {
            return Failure::NotTested(Reason::OtherFailure, "tls_unavailable");
        }
        _ => (Reason::TlsHandshakeFailure, "handshake_failed"),
    };
    Failure::Failed(reason, detail)
}

fn certificate(error: &CertificateError) -> (Reason, &'static str) {
    use CertificateError::*;
    match error {
        NotValidForName | NotValidForNameContext { .. } => (Reason::TlsNameMismatch, "name_mismatch"),
        Expired | ExpiredContext { .. } => (Reason::TlsUntrustedCertificate, "certificate_expired"),
        NotValidYet | NotValidYetContext { .. } => {
            (Reason::TlsUntrustedCertificate, "certificate_not_yet_valid")
        }
        UnknownIssuer => (Reason::TlsUntrustedCertificate, "unknown_issuer"),
        Other(OtherError(error)) if error.is::<SelfSigned>() => {
            (Reason::TlsUntrustedCertificate, "self_signed")
        }
        Revoked => (Reason::TlsUntrustedCertificate, "certificate_revoked"),
        BadSignature => (Reason::TlsUntrustedCertificate, "bad_signature"),
        InvalidPurpose | InvalidPurposeContext { .. } => (Reason::TlsUntrustedCertificate, "wrong_purpose"),
        BadEncoding => (Reason::TlsUntrustedCertificate, "malformed_certificate"),
        _ => (Reason::TlsUntrustedCertificate, "certificate_invalid"),
    }
}

fn alert_received(alert: AlertDescription) -> (Reason, &'static str) {
    match alert {
        AlertDescription::UnrecognisedName => (Reason::TlsUnrecognizedName, "unrecognized_name"),
        AlertDescription::ProtocolVersion => (Reason::TlsProtocol, "protocol_version"),
        AlertDescription::HandshakeFailure => (Reason::TlsHandshakeFailure, "handshake_failure"),
        AlertDescription::CertificateRequired => (Reason::TlsHandshakeFailure, "certificate_required"),
        AlertDescription::BadCertificate => (Reason::TlsHandshakeFailure, "bad_certificate"),
        AlertDescription::AccessDenied => (Reason::TlsHandshakeFailure, "access_denied"),
        AlertDescription::InternalError => (Reason::TlsHandshakeFailure, "internal_error"),
        AlertDescription::InsufficientSecurity => (Reason::TlsHandshakeFailure, "insufficient_security"),
        AlertDescription::NoApplicationProtocol => (Reason::TlsHandshakeFailure, "no_application_protocol"),
        _ => (Reason::TlsHandshakeFailure, "alert_received"),
    }
}

/// What an IO error in the middle of a handshake means.
fn io_failure(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Failure::Failed(Reason::TlsHandshakeFailure, "closed_early"),
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
            Failure::Failed(Reason::ConnectionReset, "connection_reset")
        }
        io::ErrorKind::TimedOut => Failure::TimedOut(Phase::Tls),
        _ => Failure::Failed(Reason::TlsHandshakeFailure, "io_error"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_time_than_a_limit_is_told() {
        let limits = |degraded: Option<u64>, fail: Option<u64>| TlsCheck {
            degraded_below: degraded.map(Duration::from_secs),
            fail_below: fail.map(Duration::from_secs),
            ..TlsCheck::default()
        };
        for (until, rules, expected) in [
            (100, limits(None, None), TimeLeft::Enough),
            (100, limits(Some(100), None), TimeLeft::Enough),
            (99, limits(Some(100), None), TimeLeft::Little),
            (99, limits(Some(100), Some(99)), TimeLeft::Little),
            (98, limits(Some(100), Some(99)), TimeLeft::TooLittle),
            (-5, limits(None, Some(1)), TimeLeft::TooLittle),
            (-5, limits(None, None), TimeLeft::Enough),
        ] {
            assert_eq!(time_left(1000 + until, 1000, &rules), expected, "{until} {rules:?}");
        }
    }
}
