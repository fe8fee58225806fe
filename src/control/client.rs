//! The commands' end of the socket.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Answer, PATIENCE, Request};

/// The largest answer taken: hundreds of thousands of endpoints.
const MAX_ANSWER: u64 = 1 << 30;

/// A connection to a running server.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

/// Why a server doesn't answer.
#[derive(Debug)]
pub enum ClientError {
    /// There is no socket, or nobody behind it.
    Nobody {
        tried: Vec<PathBuf>,
    },
    /// It belongs to somebody else.
    Forbidden {
        path: PathBuf,
    },
    Failed {
        path: PathBuf,
        error: io::Error,
    },
    /// Its answer is none of this version's.
    NotUnderstood {
        path: PathBuf,
        error: serde_json::Error,
    },
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Nobody { tried } => {
                let tried: Vec<_> = tried.iter().map(|path| path.display().to_string()).collect();
                write!(
                    f,
                    "no server answers at {}; is `hale serve` running? Where its state directory is \
                     another one, say --state-dir PATH",
                    tried.join(" or ")
                )
            }
            ClientError::Forbidden { path } => write!(
                f,
                "the server at {} answers only its own user and root; run this as one of them",
                path.display()
            ),
            ClientError::Failed { path, error } if error.kind() == io::ErrorKind::WouldBlock => {
                write!(f, "the server at {} doesn't answer", path.display())
            }
            ClientError::Failed { path, error } => {
                write!(f, "the server at {} can't be talked to: {error}", path.display())
            }
            ClientError::NotUnderstood { path, error } => write!(
                f,
                "the server at {} gave an answer that this program doesn't understand: {error}; are they \
                 of one version?",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ClientError {}

impl Client {
    /// Connects to the first of these sockets behind which there is a server.
    pub fn connect(paths: &[PathBuf]) -> Result<Client, ClientError> {
        let mut forbidden = None;
        for path in paths {
            match UnixStream::connect(path) {
                Ok(stream) => return Client::over(stream, path),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    forbidden.get_or_insert_with(|| path.clone());
                }
                Err(error) if is_nobody(&error) => {}
                Err(error) => return Err(ClientError::Failed { path: path.clone(), error }),
            }
        }
        Err(match forbidden {
            Some(path) => ClientError::Forbidden { path },
            None => ClientError::Nobody { tried: paths.to_vec() },
        })
    }

    fn over(stream: UnixStream, path: &Path) -> Result<Client, ClientError> {
        let failed = |error| ClientError::Failed { path: path.to_owned(), error };
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(Duration::from_secs(10))).map_err(failed)?;
        Ok(Client { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// Asks for one thing.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        let failed = |error| ClientError::Failed { path: self.path.clone(), error };
        let line = serde_json::to_string(request).expect("plain texts and numbers") + "\n";
        let mut octets = Vec::new();
        // one that was let go has perhaps said why before
        let sent = self.stream.get_mut().write_all(line.as_bytes());
        let read = self.stream.by_ref().take(MAX_ANSWER).read_until(b'\n', &mut octets);
        if octets.is_empty() {
            sent.and(read).map_err(failed)?;
            return Err(failed(io::Error::new(io::ErrorKind::UnexpectedEof, "it has hung up")));
        }
        serde_json::from_slice(&octets)
            .map_err(|error| ClientError::NotUnderstood { path: self.path.clone(), error })
    }
}

fn is_nobody(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | ConnectionRefused | NotADirectory)
}
