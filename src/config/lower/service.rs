//! What the server tells of itself, and the secrets of its cookies.

use std::path::Path;

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::{Field, Scalar, brief};
use super::super::{Cookies, ServiceSettings, shape};
use super::{Lower, Switch};
use crate::os::read_regular;
use crate::wire::{MAX_NSID, Secret, Secrets};

/// A file of secrets is smaller.
const MAX_SECRETS: u64 = 4096;

impl Lower<'_> {
    pub(super) fn service(&self, server: &shape::Server) -> ServiceSettings {
        ServiceSettings {
            nsid: self.own_words(&server.nsid, MAX_NSID),
            version: self.own_words(&server.version, 255),
            identity: self.own_words(&server.identity, 255),
            cookies: self.cookies(server),
        }
    }

    /// A text that clients get as it is, of `most` octets at most.
    fn own_words(&self, field: &Field<Scalar>, most: usize) -> Option<Box<[u8]>> {
        let (text, place) = self.text(field)?;
        if text.is_empty() {
            self.empty_text(place, "a text for clients");
            return None;
        }
        if text.len() > most {
            let why = format!("it has {} octets, {most} are the most", text.len());
            let kind = ProblemKind::OwnWords { value: brief(text), why };
            self.gather.refuse(Spot::Value(place), kind, Some("write a shorter text".into()));
            return None;
        }
        Some(text.as_bytes().into())
    }

    fn cookies(&self, server: &shape::Server) -> Cookies {
        let on = match self.switch(&server.cookies) {
            Switch::Absent | Switch::On => true,
            Switch::Off => false,
            Switch::Other(text, place) => {
                self.unknown_value(place, text, &["on", "off"]);
                true
            }
        };
        let Some((name, place)) = self.text(&server.cookie_secret_file) else {
            return if on { Cookies::Own } else { Cookies::Off };
        };
        let path = self.gather.directory(place).join(name);
        match self.secrets(&path, place) {
            Some(secrets) if on => Cookies::Given(Secrets::Given(secrets)),
            _ => Cookies::Off,
        }
    }

    /// One secret a line; empty lines and those that begin with `#` are skipped.
    fn secrets(&self, path: &Path, place: Place) -> Option<Vec<Secret>> {
        let refuse_with = |why: String, help: &str| {
            let kind = ProblemKind::SecretFile { path: path.display().to_string(), why };
            self.gather.refuse(Spot::Value(place), kind, Some(help.into()));
            None
        };
        let refuse = |why: String| {
            refuse_with(
                why,
                "write lines of 32 hexadecimal digits: the first makes cookies, the others are still taken",
            )
        };
        self.gather.look_at(path);
        let octets = match read_regular(path, MAX_SECRETS) {
            Ok(octets) => octets,
            Err(error) => {
                let help = "name a file that this server may read, `openssl rand -hex 16` writes its one line; \
                            a relative path begins at this file's directory";
                return refuse_with(format!("can't be read: {error}"), help);
            }
        };
        let Ok(text) = String::from_utf8(octets) else { return refuse("is no text".into()) };
        let mut secrets = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // the line itself is not shown: it may be a secret with a slip
            match u128::from_str_radix(line, 16) {
                Ok(secret) if line.len() == 32 => secrets.push(secret.to_be_bytes()),
                _ => return refuse(format!("has a line {} that is no secret", number + 1)),
            }
        }
        if secrets.is_empty() { refuse("has no secret in it".into()) } else { Some(secrets) }
    }
}
