//! Which files a list of paths means, and their octets.
//!
//! Of a directory: every `*.yaml` and `*.yml` below it, in the order of
//! names, without what begins with a dot. Links to files are followed (a
//! Kubernetes ConfigMap consists of them), and no file is read twice.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::place::Gather;
use super::problem::ProblemKind;

/// Reads everything; what cannot be read is recorded.
pub fn read_all(paths: &[PathBuf], limit: u64, gather: &Gather) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut given = BTreeSet::new();
    for path in paths.iter().filter(|path| given.insert(true_path(path))) {
        match fs::metadata(path) {
            Err(error) => {
                let help = "give the path of a YAML file, or of a directory with YAML files".to_owned();
                refuse(path, error.to_string(), Some(help), gather);
            }
            Ok(kind) if kind.is_dir() => {
                let before = found.len();
                let sound = walk(path, &mut found, gather);
                if sound && found.len() == before {
                    let help =
                        "put files with names ending in `.yaml` or `.yml` there; hidden ones are skipped";
                    gather.refuse_file(path, ProblemKind::NoYamlFiles {}, Some(help.into()));
                }
            }
            Ok(_) => found.push(path.clone()),
        }
    }
    let mut seen = BTreeSet::new();
    let mut files = Vec::new();
    for path in found {
        if !seen.insert(true_path(&path)) {
            continue;
        }
        match read(&path, limit) {
            Ok(octets) if octets.len() as u64 > limit => {
                let octets = fs::metadata(&path).map_or(0, |data| data.len()).max(limit + 1);
                let kind = ProblemKind::TooLarge { octets, limit };
                gather.refuse_file(&path, kind, Some("split it into several files".into()));
            }
            Ok(octets) => files.push((path, octets)),
            Err(error) => {
                let help = "see that the user who runs this may read it".to_owned();
                refuse(&path, error.to_string(), Some(help), gather);
            }
        }
    }
    files
}

/// What can be seen of a file without reading it: another number when it has
/// been written, replaced, removed or made.
pub fn look(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    if let Ok(data) = path.metadata() {
        (data.ino(), data.dev(), data.size()).hash(&mut hasher);
        (data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()).hash(&mut hasher);
    }
    hasher.finish()
}

/// A file's octets, and of one that is too long, or never ends, one more than
/// the limit.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = fs::File::open(path)?;
    let expected = file.metadata()?.len().min(limit);
    let mut octets = Vec::with_capacity(expected as usize + 1);
    file.take(limit + 1).read_to_end(&mut octets)?;
    Ok(octets)
}

/// The one path of a file, however it was reached.
pub(super) fn true_path(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Whether all of the directory could be looked at.
fn walk(directory: &Path, found: &mut Vec<PathBuf>, gather: &Gather) -> bool {
    let entries = fs::read_dir(directory).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let mut entries = match entries {
        Ok(entries) => entries,
        Err(error) => {
            let help = "see that the user who runs this may list it".to_owned();
            refuse(directory, error.to_string(), Some(help), gather);
            return false;
        }
    };
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut sound = true;
    for entry in entries {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        // A link to a directory may lead back up, so only links to files are followed.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            sound &= walk(&path, found, gather);
        } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
            && !path.is_dir()
        {
            match fs::metadata(&path) {
                // a pipe or a device lets its reader wait, for ever perhaps
                Ok(data) if !data.is_file() => {
                    let help = "take it out of the directory".to_owned();
                    refuse(&path, "it is no regular file".to_owned(), Some(help), gather);
                    sound = false;
                }
                _ => found.push(path),
            }
        }
    }
    sound
}

fn refuse(path: &Path, why: String, help: Option<String>, gather: &Gather) {
    gather.refuse_file(path, ProblemKind::Unreadable { why }, help);
}
