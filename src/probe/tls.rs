//! TLS sessions of probes, and what it means when there is none.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, InvalidMessage,
    OtherError, PeerIncompatible, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Failure, Phase};
use crate::health::Reason;
use crate::model::TlsCheck;

/// Client configurations, one for each way of verifying that is in use.
#[derive(Debug)]
pub(super) struct Configs {
    provider: Arc<CryptoProvider>,
    made: Mutex<Vec<Made>>,
}

#[derive(Debug)]
struct Made {
    allow_insecure: bool,
    extra_roots: Option<Arc<[u8]>>,
    config: Arc<ClientConfig>,
}

impl Default for Configs {
    fn default() -> Configs {
        Configs { provider: Arc::new(ring::default_provider()), made: Mutex::default() }
    }
}

impl Configs {
    /// Shakes hands as `name`, which is sent unless it is an address and which
    /// the certificate must hold.
    pub async fn handshake(
        &self,
        stream: TcpStream,
        rules: Option<&TlsCheck>,
        name: &str,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let name = ServerName::try_from(name)
            .map_err(|_| Failure::NotTested(Reason::OtherFailure, "invalid_server_name"))?
            .to_owned();
        let config = self.config(rules)?;
        TlsConnector::from(config).connect(name, stream).await.map_err(|error| match cause(&error) {
            Some(error) => failure(error),
            None => io_failure(&error),
        })
    }

    fn config(&self, rules: Option<&TlsCheck>) -> Result<Arc<ClientConfig>, Failure> {
        let allow_insecure = rules.is_some_and(|rules| rules.allow_insecure);
        let extra_roots = rules.and_then(|rules| rules.extra_roots.as_ref());
        let mut made = self.made.lock();
        let found = made.iter_mut().find(|made| {
            made.allow_insecure == allow_insecure && same(made.extra_roots.as_ref(), extra_roots)
        });
        if let Some(found) = found {
            found.extra_roots = extra_roots.cloned(); // after a reload: the same octets elsewhere
            return Ok(found.config.clone());
        }
        // Roots that nobody else holds any more were those of an earlier configuration.
        made.retain(|made| made.extra_roots.as_ref().is_none_or(|roots| Arc::strong_count(roots) > 1));
        let config = Arc::new(self.make(allow_insecure, extra_roots.map(|roots| &**roots))?);
        made.push(Made { allow_insecure, extra_roots: extra_roots.cloned(), config: config.clone() });
        Ok(config)
    }

    fn make(&self, allow_insecure: bool, extra_roots: Option<&[u8]>) -> Result<ClientConfig, Failure> {
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
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for TLS 1.2 and 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::disabled(); // each probe is to see a whole handshake
        Ok(config)
    }
}

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

/// Whether issuer and subject are the same name (RFC 5280 §4.1).
fn is_self_issued(certificate: &[u8]) -> bool {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let names = || {
        let (_, certificate, _) = element(certificate)?;
        let (_, fields, _) = element(certificate)?;
        let rest = match element(fields)? {
            (VERSION, _, rest) => rest,
            _ => fields,
        };
        let (_, _serial, rest) = element(rest)?;
        let (_, _algorithm, rest) = element(rest)?;
        let (SEQUENCE, issuer, rest) = element(rest)? else { return None };
        let (_, _validity, rest) = element(rest)?;
        let (SEQUENCE, subject, _) = element(rest)? else { return None };
        Some((issuer, subject))
    };
    names().is_some_and(|(issuer, subject)| issuer == subject)
}

/// Tag, contents and what follows of the first element of DER.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (octets, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (octets.iter().fold(0, |length, &octet| length << 8 | usize::from(octet)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
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
