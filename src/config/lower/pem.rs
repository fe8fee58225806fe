//! Certificates and keys in PEM files: that they are such, and belong together.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, InconsistentKeys};

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::brief;
use super::{Lower, beside};
use crate::os::read_regular;
use crate::x509;

/// The largest file of certificates or of a key that is read.
pub(super) const MAX_PEM: u64 = 1 << 20;

/// What was in a file.
type Pem = Arc<[u8]>;

/// How problems with a certificate and its key are called.
pub(super) struct Words {
    /// A path, and why its file is no good.
    pub file: fn(String, String) -> ProblemKind,
    pub other_key: ProblemKind,
}

impl Lower<'_> {
    /// The octets of a certificate's file and of its key's. Each is looked at
    /// for itself, so that both are reported.
    pub(super) fn key_pair(
        &self,
        certificate: Option<(&str, Place)>,
        key: Option<(&str, Place)>,
        words: &Words,
    ) -> Option<(Pem, Pem)> {
        let certificates = self.pem_file(certificate, "certificates", words, certificates);
        let key = self.pem_file(key, "a private key", words, |pem| {
            let key = private_key(pem)?;
            ring::default_provider().key_provider.load_private_key(key).map_err(|error| error.to_string())
        });
        let ((certificates, chain, chain_place), (key, signer, place)) = (certificates?, key?);
        match CertifiedKey::new(chain.clone(), signer).keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                let help = "name the key that the certificate was made for".to_owned();
                self.gather.refuse(Spot::Value(place), words.other_key.clone(), Some(help));
            }
            Err(error) => {
                let text = certificate.map_or("", |(text, _)| text);
                let (why, help) = unusable(&chain[0], &error);
                let path = beside(self.gather, chain_place, text).display().to_string();
                self.gather.refuse(Spot::Value(chain_place), (words.file)(path, why), Some(help.into()));
            }
        }
        Some((certificates, key))
    }

    /// The octets of a PEM file, what `read` makes of them, and where the file
    /// is named.
    fn pem_file<T>(
        &self,
        named: Option<(&str, Place)>,
        due: &str,
        words: &Words,
        read: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Option<(Arc<[u8]>, T, Place)> {
        let (text, place) = named.filter(|(text, _)| !text.is_empty())?;
        let path = beside(self.gather, place, text);
        self.gather.look_at(&path);
        let octets = read_regular(&path, MAX_PEM).map_err(|error| error.to_string());
        match octets.and_then(|pem| Ok((read(&pem)?, pem))) {
            Ok((found, pem)) => Some((pem.into(), found, place)),
            Err(why) => {
                self.not_pem_file(place, text, due, words, why);
                None
            }
        }
    }

    fn not_pem_file(&self, place: Place, text: &str, due: &str, words: &Words, why: String) {
        let path = beside(self.gather, place, text).display().to_string();
        let help = format!("name a PEM file of {due}; a relative path begins at this file's directory");
        self.gather.refuse(Spot::Value(place), (words.file)(path, why), Some(help));
    }
}

/// Why a certificate is of no use, and what to do.
fn unusable(certificate: &[u8], error: &Error) -> (String, &'static str) {
    const ANOTHER: &str = "name the file of a certificate that TLS can be spoken with";
    match (x509::version(certificate), error) {
        (Some(version), _) if version != 3 => (
            format!("the certificate is of version {version}; version 3 is needed"),
            "have it made anew with a `subjectAltName`, which makes it version 3: `openssl req -x509` does, \
             `openssl x509 -req` with `-extfile` or `-copy_extensions copy`",
        ),
        (_, Error::InvalidCertificate(CertificateError::Other(other))) => {
            (format!("the certificate can't be used: {}", other.0), ANOTHER)
        }
        (_, error) => (error.to_string(), ANOTHER),
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match found.map_err(damaged)? {
        found if found.is_empty() => Err("no PEM certificate in it".into()),
        found => Ok(found),
    }
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let has = |mark: &[u8]| pem.windows(mark.len()).any(|window| window == mark);
    match PrivateKeyDer::from_pem_slice(pem) {
        _ if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") => {
            Err("the key is encrypted, and nobody is there to type its password; `openssl pkey -in FILE` \
                 writes it without"
                .into())
        }
        Err(pem::Error::NoItemsFound) => Err("no PEM private key in it".into()),
        other => other.map_err(damaged),
    }
}

/// What is wrong with a PEM file.
pub(super) fn damaged(error: pem::Error) -> String {
    let text = |octets: &[u8]| brief(&String::from_utf8_lossy(octets));
    match &error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("it ends within a section: there is no line `-----END {}-----`", text(end_marker))
        }
        pem::Error::IllegalSectionStart { line } => format!("the line `{}` begins no section", text(line)),
        pem::Error::Base64Decode(why) => format!("what stands in it is not base64: {why}"),
        _ => error.to_string(),
    }
}
