//! What the configuration refuses, word for word, and what it takes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use haledns::config::{self, Loaded, ProblemKind, Report};

const CASES: &str = "tests/config";

/// Every file and directory in `tests/config`, against the report beside it.
/// With `UPDATE_EXPECTED=1` the reports are written anew, to be read over.
#[test]
fn every_problem_is_reported_in_these_words() {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for case in cases() {
        let report = match config::load(std::slice::from_ref(&case)) {
            Ok(loaded) => loaded.lint_report(),
            Err(report) => report,
        };
        seen.extend(report.problems.iter().map(|problem| problem.kind.id()));
        let text = report.text(false).replace(&format!("{CASES}/"), "");
        let expected = case.with_extension("expected");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&expected, &text).unwrap();
        } else if std::fs::read_to_string(&expected).ok().as_deref() != Some(&text) {
            wrong.push(format!("--- {} is not what was reported:\n{text}", expected.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // These need a file that cannot be read, or one too large to keep here.
    let elsewhere = ["unreadable", "too_large"];
    let unseen: Vec<_> =
        ProblemKind::IDS.iter().filter(|id| !seen.contains(*id) && !elsewhere.contains(id)).collect();
    assert!(unseen.is_empty(), "no case reports {unseen:?}");
}

fn cases() -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = std::fs::read_dir(CASES)
        .expect("tests run in the package's directory")
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir() || path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    cases.sort();
    cases
}
