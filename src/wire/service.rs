//! What the server tells of itself, and how it treats its clients.

use super::cookie::Secrets;

/// What answering needs to know besides names and health: it changes with the
/// server's settings, never with an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// What NSID tells (RFC 5001), [`MAX_NSID`] octets at most; none: nothing.
    pub nsid: Option<Box<[u8]>>,
    /// `version.bind` and `version.server`, class CH (RFC 4892), 255 octets at
    /// most; none: REFUSED.
    pub version: Option<Box<[u8]>>,
    /// `id.server` and `hostname.bind`, class CH, likewise.
    pub id: Option<Box<[u8]>>,
    /// None: COOKIE is an option like any unknown one.
    pub cookies: Option<Secrets>,
    /// How long a connection may be idle, in units of 100 ms, for clients that
    /// ask (RFC 7828).
    pub keepalive: u16,
}

/// Octets of an NSID at most: there is room for it in the smallest reply.
pub const MAX_NSID: usize = 128;
