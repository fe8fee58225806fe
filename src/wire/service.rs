//! What the server tells of itself, and how it treats its clients.

/// What answering needs to know besides names and health: it changes with the
/// server's settings and with time, never with an endpoint.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// What NSID tells (RFC 5001); none: nothing.
    pub nsid: Option<Box<[u8]>>,
    /// `version.bind` and `version.server`, class CH (RFC 4892); none: REFUSED.
    pub version: Option<Box<str>>,
    /// `id.server` and `hostname.bind`, class CH; none: REFUSED.
    pub id: Option<Box<str>>,
}
