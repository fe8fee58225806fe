//! What encrypted transports show of this server: one chain of certificates
//! and its key, which can be replaced while clients are connected.
//!
//! Every handshake asks for what is in force at that moment; connections that
//! stand go on. Sessions are resumed by tickets that the clients keep, so that
//! no memory here goes by their number; tickets of a replaced certificate open
//! nothing any more.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, ServerConfig};

/// PEM texts of a chain, the server's own certificate first, and of its key.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    pub certificates: Arc<[u8]>,
    pub key: Arc<[u8]>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity { .. }") // nothing of a key gets into a log
    }
}

/// The certificate in force.
#[derive(Debug)]
pub struct Certificates {
    provider: Arc<CryptoProvider>,
    store: Arc<Store>,
}

#[derive(Debug)]
struct Store(ArcSwap<InForce>);

#[derive(Debug)]
struct InForce {
    certified: Arc<CertifiedKey>,
    tickets: Arc<dyn ProducesTickets>,
}

impl Certificates {
    /// Begins with `identity`, or says what is wrong with it.
    pub fn new(identity: &Identity) -> Result<Certificates, String> {
        let provider = Arc::new(ring::default_provider());
        let store = Arc::new(Store(ArcSwap::from_pointee(InForce::read(identity, &provider)?)));
        Ok(Certificates { provider, store })
    }

    /// Puts another in force for handshakes from now on; what is wrong changes
    /// nothing.
    pub fn replace(&self, identity: &Identity) -> Result<(), String> {
        self.store.0.store(Arc::new(InForce::read(identity, &self.provider)?));
        Ok(())
    }

    /// How handshakes over TCP go, for TLS 1.2 and 1.3 (RFC 9325). A client that
    /// speaks of protocols must know one of `alpn`.
    pub(super) fn for_tcp(&self, alpn: &[&str]) -> Arc<ServerConfig> {
        self.config(&[&rustls::version::TLS13, &rustls::version::TLS12], alpn)
    }

    /// The same for QUIC, which has TLS 1.3 within (RFC 9001).
    pub(super) fn for_quic(&self, alpn: &[&str]) -> Arc<ServerConfig> {
        self.config(&[&rustls::version::TLS13], alpn)
    }

    fn config(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
        alpn: &[&str],
    ) -> Arc<ServerConfig> {
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(versions)
            .expect("the provider has suites for TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.store) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::clone(&self.store) as Arc<dyn ProducesTickets>;
        config.send_tls13_tickets = 1;
        Arc::new(config)
    }
}

impl InForce {
    fn read(identity: &Identity, provider: &CryptoProvider) -> Result<InForce, String> {
        let chain = CertificateDer::pem_slice_iter(&identity.certificates).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| format!("the certificate can't be read: {error}"))?;
        if chain.is_empty() {
            return Err("there is no PEM certificate".into());
        }
        let key = match PrivateKeyDer::from_pem_slice(&identity.key) {
            Err(pem::Error::NoItemsFound) => return Err("there is no PEM private key".into()),
            Err(error) => return Err(format!("the private key can't be read: {error}")),
            Ok(key) => provider.key_provider.load_private_key(key),
        };
        let key = key.map_err(|error| format!("the private key can't be used: {error}"))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(error) => return Err(format!("certificate and key don't belong together: {error}")),
        }
        let tickets = ring::Ticketer::new().map_err(|error| format!("no keys for tickets: {error}"))?;
        Ok(InForce { certified: Arc::new(certified), tickets })
    }
}

impl ResolvesServerCert for Store {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.load().certified)) // the same for every name
    }
}

impl ProducesTickets for Store {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.0.load().tickets.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.load().tickets.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.0.load().tickets.decrypt(cipher)
    }
}
