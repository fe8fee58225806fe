//! Certificates made on the spot.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use haledns::model::ClientIdentity;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa,
    KeyPair, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate and its key, as a server presents them.
pub struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    /// The certificate as a file holds it.
    pub pem: String,
    /// The key likewise.
    pub key_pem: String,
}

impl Identity {
    fn new(certificate: &Certificate, key: &KeyPair) -> Identity {
        let octets = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Identity {
            chain: vec![certificate.der().clone()],
            key: octets,
            pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    /// As what a probe shows of itself.
    pub fn client(&self) -> ClientIdentity {
        ClientIdentity {
            certificates: self.pem.clone().into_bytes().into(),
            key: self.key_pem.clone().into_bytes().into(),
        }
    }
}

/// An authority of a test.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// One with a name of its own.
    pub fn new() -> Authority {
        static NUMBER: AtomicUsize = AtomicUsize::new(1);
        let mut params = params(&[]);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name = common_name(&format!("Test authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, key()).unwrap())
    }

    /// Its certificate, as a monitor's further roots.
    pub fn roots(&self) -> Option<Arc<[u8]>> {
        Some(self.0.pem().into_bytes().into())
    }

    /// What trusts it and nobody else.
    pub fn store(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }

    /// An identity for names and addresses, valid for so long from now.
    pub fn issue_for(&self, names: &[&str], left: Duration) -> Identity {
        let mut params = params(names);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = (SystemTime::now() + left).into();
        let key = key();
        Identity::new(&params.signed_by(&key, &self.0).unwrap(), &key)
    }

    /// An identity whose subject is called so, for these names.
    pub fn issue_called(&self, common: &str, names: &[&str]) -> Identity {
        let mut params = params(names);
        params.distinguished_name = common_name(common);
        let key = key();
        Identity::new(&params.signed_by(&key, &self.0).unwrap(), &key)
    }

    /// An identity for names and addresses, valid from one year to another.
    pub fn issue(&self, names: &[&str], from: i32, until: i32) -> Identity {
        let mut params = params(names);
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = key();
        Identity::new(&params.signed_by(&key, &self.0).unwrap(), &key)
    }
}

/// An identity that vouches for itself; `ca` as openssl's default makes it.
pub fn self_signed(names: &[&str], ca: bool) -> Identity {
    self_signed_during(names, ca, 2020, 2100)
}

/// The same, valid from one year to another.
pub fn self_signed_during(names: &[&str], ca: bool, from: i32, until: i32) -> Identity {
    let mut params = params(names);
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    if ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let key = key();
    Identity::new(&params.self_signed(&key).unwrap(), &key)
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
