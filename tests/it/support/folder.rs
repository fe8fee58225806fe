//! A folder of its own for a test, removed when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("folder-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path); // of a run that was killed and had the same pid
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// With one file in it.
    pub fn with(name: &str, text: &str) -> Folder {
        let folder = Folder::new();
        folder.write(name, text);
        folder
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in place.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.join(name), text).unwrap();
    }

    /// Writes a file beside and renames it over.
    pub fn replace(&self, name: &str, text: &str) {
        let beside = self.join(&format!(".{name}.new"));
        fs::write(&beside, text).unwrap();
        fs::rename(beside, self.join(name)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
