//! Certificates made on the spot.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate and its key, as a server presents them.
pub struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// An authority of a test.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = params(&[]);
        params.distinguished_name = common_name("Test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, key()).unwrap())
    }

    /// Its certificate, as a monitor's further roots.
    pub fn roots(&self) -> Option<Arc<[u8]>> {
        Some(self.0.pem().into_bytes().into())
    }

    /// An identity for names and addresses, valid from one year to another.
    pub fn issue(&self, names: &[&str], from: i32, until: i32) -> Identity {
        let mut params = params(names);
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = key();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Identity {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        }
    }
}

/// An identity that vouches for itself; `ca` as openssl's default makes it.
pub fn self_signed(names: &[&str], ca: bool) -> Identity {
    let mut params = params(names);
    if ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let key = key();
    let certificate = params.self_signed(&key).unwrap();
    Identity {
        chain: vec![certificate.der().clone()],
        key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = common_name("Test endpoint");
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}
