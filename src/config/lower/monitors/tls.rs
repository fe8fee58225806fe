//! What TLS of probes is like, and monitors of type tls.

use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};

use crate::config::lower::pem::{MAX_PEM, Words, damaged};
use crate::config::lower::{Lower, beside};
use crate::config::place::{Place, Spot};
use crate::config::problem::ProblemKind;
use crate::config::reader::{Field, Scalar, brief};
use crate::config::{shape, value};
use crate::model::{Check, ClientIdentity, TlsCheck, TlsSession};
use crate::os::read_regular;

impl Lower<'_> {
    pub(super) fn tls_check(&self, shape: &shape::Monitor) -> Check {
        Check::Tls(TlsSession { port: self.port(&shape.port), tls: self.tls(shape) })
    }

    /// The keys of TLS, which several types have.
    pub(super) fn tls(&self, shape: &shape::Monitor) -> TlsCheck {
        let server_name = self.text(&shape.server_name).map(|(text, place)| {
            if ServerName::try_from(text).is_err() {
                let kind = ProblemKind::NotServerName { value: brief(text) };
                let help = "write the name in the certificate, such as `www.example.com`".to_owned();
                self.gather.refuse(Spot::Value(place), kind, Some(help));
            }
            text.to_owned()
        });
        let (degraded_below, fail_below) = self.certificate_limits(shape);
        TlsCheck {
            allow_insecure: self.boolean(&shape.allow_insecure, false),
            server_name,
            extra_roots: self.extra_roots(&shape.ca_file),
            client: self.client(shape),
            degraded_below,
            fail_below,
        }
    }

    /// The roots in a file, beside the built-in ones.
    pub(in crate::config::lower) fn extra_roots(&self, field: &Field<Scalar>) -> Option<Arc<[u8]>> {
        let (text, place) = self.text(field)?;
        let refuse = |why: String| {
            let path = beside(self.gather, place, text).display().to_string();
            let help = "name a PEM file of CA certificates; a relative path begins at this file's directory";
            self.gather.refuse(Spot::Value(place), ProblemKind::CaFile { path, why }, Some(help.into()));
            None
        };
        let path = beside(self.gather, place, text);
        self.gather.look_at(&path);
        match read_regular(&path, MAX_PEM) {
            Err(error) => refuse(format!("can't be read: {error}")),
            Ok(pem) => match usable_roots(&pem) {
                Err(why) => refuse(format!("holds no trusted roots: {why}")),
                Ok(()) => Some(pem.into()),
            },
        }
    }

    /// Refuses the keys of TLS when there is none; `help` says what would make
    /// them mean something.
    pub(super) fn without_tls(&self, shape: &shape::Monitor, help: &str) {
        let keys = [
            &shape.allow_insecure,
            &shape.server_name,
            &shape.ca_file,
            &shape.client_certificate,
            &shape.client_key,
            &shape.certificate_degraded,
            &shape.certificate_fail,
        ];
        for field in keys {
            let Field::Given(place, scalar) = field else { continue };
            if !scalar.text.is_empty() && scalar.text != "false" {
                let kind = ProblemKind::WithoutTls { key: self.gather.key_of(*place) };
                self.gather.refuse(Spot::Key(*place), kind, Some(format!("take it away, or {help}")));
            }
        }
    }

    fn client(&self, shape: &shape::Monitor) -> Option<ClientIdentity> {
        let (certificate, key) = (self.text(&shape.client_certificate), self.text(&shape.client_key));
        let given =
            |found: Option<(&str, Place)>| found.filter(|(text, _)| !text.is_empty()).map(|found| found.1);
        match (given(certificate), given(key)) {
            (Some(place), None) => {
                self.missing(
                    place,
                    "`client_certificate`",
                    "client_key",
                    "name the PEM file of its private key",
                );
            }
            (None, Some(place)) => {
                let help = "name the PEM file of the certificate, those of its issuers behind it";
                self.missing(place, "`client_key`", "client_certificate", help);
            }
            _ => {}
        }
        let words = Words {
            file: |path, why| ProblemKind::ClientFile { path, why },
            other_key: ProblemKind::OtherKey {},
        };
        let (certificates, key) = self.key_pair(certificate, key, &words)?;
        Some(ClientIdentity { certificates, key })
    }

    /// With how little time left a certificate is marked degraded, and fails.
    fn certificate_limits(&self, shape: &shape::Monitor) -> (Option<Duration>, Option<Duration>) {
        let decade = Duration::from_secs(3650 * 24 * 3600);
        let limit = |field: &Field<Scalar>| {
            let given = field.get().is_some_and(|scalar| !scalar.text.is_empty());
            let least = Duration::from_secs(1);
            given.then(|| self.duration(field, least..=decade, decade))
        };
        let (degraded, fail) = (limit(&shape.certificate_degraded), limit(&shape.certificate_fail));
        if let (Some(first), Some(second)) = (degraded, fail)
            && first <= second
            && let Some((text, place)) = self.text(&shape.certificate_degraded)
        {
            let range = format!("more than `certificate_fail`, which is {}", value::show(second));
            let help = "a certificate is marked degraded before it fails".to_owned();
            self.out_of_range(place, text, range, Some(help));
        }
        (degraded, fail)
    }
}

fn usable_roots(pem: &[u8]) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(damaged)?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("no PEM certificate in it".into()) } else { Ok(()) }
}
