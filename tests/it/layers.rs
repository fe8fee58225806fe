//! The architecture's table of modules: each uses what stands above it and
//! nothing below; shells don't use each other; pure code can't do IO or learn
//! the time.

use std::fs;
use std::path::{Path, PathBuf};

use Kind::{Pure, Seam, Shell, Top};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Values and functions: no IO, no clock, no chance of its own.
    Pure,
    /// Where the control plane hands over to the data plane.
    Seam,
    /// Does IO, and nothing else.
    Shell,
    /// Knows all.
    Top,
}

/// From the foundation up.
pub const MODULES: [(&str, Kind); 30] = [
    ("moment", Pure),
    ("x509", Pure),
    ("model", Pure),
    ("rdata", Pure),
    ("master", Pure),
    ("health", Pure),
    ("steering", Pure),
    ("authority", Pure),
    ("wire", Pure),
    ("engine", Pure),
    ("simulate", Pure),
    ("timing", Pure),
    ("events", Pure),
    ("alerts", Pure),
    ("publish", Seam),
    ("clock", Shell),
    ("os", Shell),
    ("config", Shell),
    ("state", Shell),
    ("probe", Shell),
    ("resolve", Shell),
    ("serve", Shell),
    ("control", Shell),
    ("history", Shell),
    ("notify", Shell),
    ("telemetry", Shell),
    ("app", Top),
    ("cli", Top),
    ("lib", Top),
    ("main", Top),
];

/// What pure code has no business with.
const IMPURE: [&str; 12] = [
    "std::fs",
    "std::io",
    "std::net::Tcp",
    "std::net::Udp",
    "std::thread",
    "std::env",
    "std::process",
    "tokio",
    "Instant",
    "SystemTime",
    "RandomState",
    "tracing",
];

/// Libraries that one file alone may name.
const ONE_FILE: [(&str, &str); 1] = [("serde_yaml", "config/file.rs")];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn kind_of(module: &str) -> Option<(usize, Kind)> {
    let place = MODULES.iter().position(|(name, _)| *name == module)?;
    Some((place, MODULES[place].1))
}

/// Everything wrong with one file.
fn complaints(file: &Path, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let first = file.iter().next().and_then(|part| part.to_str()).unwrap();
    let module = first.trim_end_matches(".rs");
    let Some((place, kind)) = kind_of(module) else {
        return vec![format!("{}: module `{module}` is not in the table", file.display())];
    };
    let code = text.split("#[cfg(test)]").next().unwrap(); // tests beside the code are free
    for (line, number) in code.lines().zip(1..) {
        let mut complain = |what: String| complaints.push(format!("{}:{number}: {what}", file.display()));
        let line = line.split("//").next().unwrap();
        for path in ["crate::", "haledns::"] {
            for used in line.split(path).skip(1) {
                let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
                let Some((its_place, its_kind)) = kind_of(used) else { continue };
                let allowed = match (kind, its_kind) {
                    _ if used == module => true,
                    (Top, _) => true,
                    (Shell, Shell) => ["clock", "os"].contains(&used),
                    _ => its_place < place,
                };
                if !allowed {
                    complain(format!("`{module}` may not use `{used}`"));
                }
            }
        }
        if kind == Pure
            && let Some(impure) = IMPURE.iter().find(|word| line.contains(*word))
        {
            complain(format!("`{module}` is pure and may not use `{impure}`"));
        }
        for (library, only) in ONE_FILE {
            if line.contains(&format!("{library}::")) && file != Path::new(only) {
                complain(format!("only {only} may name `{library}`"));
            }
        }
    }
    complaints
}

#[test]
fn modules_use_only_what_stands_above_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 15, "the sources are where they are looked for");
    let complaints: Vec<String> = files
        .iter()
        .flat_map(|file| complaints(file.strip_prefix(&root).unwrap(), &fs::read_to_string(file).unwrap()))
        .collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn the_layering_test_catches_each_kind_of_breach() {
    for (file, line, complaint) in [
        ("health/table.rs", "use crate::authority::Names;", "`health` may not use `authority`"),
        ("probe.rs", "use crate::serve::Server;", "`probe` may not use `serve`"),
        ("wire.rs", "use std::time::Instant;", "`wire` is pure and may not use `Instant`"),
        ("engine.rs", "let x = crate::app::start();", "`engine` may not use `app`"),
        ("config/lower.rs", "serde_yaml::from_str(x)", "only config/file.rs may name `serde_yaml`"),
        ("novelty.rs", "", "module `novelty` is not in the table"),
    ] {
        let found = complaints(Path::new(file), line);
        assert!(found.iter().any(|found| found.contains(complaint)), "{file}: {line}: {found:?}");
    }
    assert_eq!(complaints(Path::new("serve/udp.rs"), "use crate::wire::respond;"), [""; 0]);
}
