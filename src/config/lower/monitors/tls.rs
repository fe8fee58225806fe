//! What TLS of probes is like, and monitors of type tls.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};

use crate::config::lower::{Lower, beside};
use crate::config::place::Spot;
use crate::config::problem::ProblemKind;
use crate::config::reader::{Field, Scalar, brief};
use crate::config::shape;
use crate::model::{Check, TlsCheck, TlsSession};

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
        TlsCheck {
            allow_insecure: self.boolean(&shape.allow_insecure, false),
            server_name,
            extra_roots: self.extra_roots(&shape.ca_file),
            ..TlsCheck::default()
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
        match std::fs::read(beside(self.gather, place, text)) {
            Err(error) => refuse(error.to_string()),
            Ok(pem) => match usable_roots(&pem) {
                Err(why) => refuse(why),
                Ok(()) => Some(pem.into()),
            },
        }
    }
}

fn usable_roots(pem: &[u8]) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("no PEM certificate in it".into()) } else { Ok(()) }
}
