//! The documentation against the code: its YAML loads, its links lead
//! somewhere, and what it lists is what there is.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use haledns::model::{Model, Name};
use haledns::{config, rdata, simulate, telemetry};

use crate::layers::{self, Kind};
use crate::support::folder::Folder;

const CONFIGURATION: &str = "docs/reference/configuration.md";
/// Where files of certificates in the pages stand in for those of a machine.
const CERTIFICATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/accepted/tls/");

const LINTS: &str = "docs/reference/lints.md";
const HEALTH: &str = "docs/reference/health.md";

/// Plain blocks are whole configurations. `yaml fragment=…` wants the rest of
/// [`FRAME`] around it, in which nothing needs to be used; `yaml refused` must
/// be refused; `yaml scenario` is none. Blocks with `file=NAME` are files that
/// lie beside.
#[test]
fn every_yaml_block_says_what_the_program_takes() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        let beside = Folder::new();
        for block in blocks(&read(&page)) {
            if let Some((_, name)) = block.info.split_once("file=") {
                beside.write(name, &block.text);
            }
        }
        for block in blocks(&read(&page)).filter(|block| block.info.starts_with("yaml")) {
            if block.info.contains("scenario") {
                continue;
            }
            count += 1;
            let fragment = block.info.contains("fragment=");
            let text = if fragment { framed(&block.text) } else { block.text.clone() };
            let text = text.replace("/etc/hale/tls/", CERTIFICATES);
            let loaded = config::load_texts(vec![(beside.join("page.yaml"), text.into_bytes())]);
            let place = format!("{}:{}", page.display(), block.line);
            match (loaded, block.info.contains("refused")) {
                (Ok(_), true) => wrong.push(format!("{place}: is taken, not refused")),
                (Err(report), false) => wrong.push(format!("{place}: is refused:\n{report}")),
                (Ok(mut loaded), false) => {
                    loaded.lints.retain(|lint| !fragment || !lint.kind.id().starts_with("unused_"));
                    if !loaded.lints.is_empty() {
                        wrong.push(format!("{place}: has lints:\n{}", loaded.lint_report()));
                    }
                }
                (Err(_), true) => {}
            }
        }
    }
    assert!(count > 8, "the blocks are where they are looked for");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Scenarios are about the sample, and what they expect is so. Below one that
/// is `shown` stands what `hale simulate` prints, with `UPDATE_EXPECTED=1` anew.
#[test]
fn every_scenario_plays_as_it_says() {
    let mut count = 0;
    for page in pages() {
        let text = read(&page);
        let mut blocks = blocks(&text).peekable();
        while let Some(block) = blocks.next() {
            if !block.info.contains("scenario") {
                continue;
            }
            count += 1;
            let place = format!("{}:{}", page.display(), block.line);
            let folder = Folder::with("rehearsal.yaml", &block.text);
            let script = config::load_scenario(&folder.join("rehearsal.yaml"), &["zones".into()]);
            let script = script.unwrap_or_else(|report| panic!("{place}: is refused:\n{report}"));
            let timeline = simulate::play(&script, 100_000, telemetry::headline).unwrap();
            let wrong: Vec<_> = timeline.checks.iter().filter(|check| !check.holds()).collect();
            assert!(wrong.is_empty(), "{place}: {wrong:#?}");
            if block.info.contains("shown") {
                let shown = blocks.next().expect("what it prints").text;
                let prints = simulate::draw::text(&timeline, 100, false);
                let prints = format!("$ hale simulate rehearsal.yaml\n{prints}");
                if std::env::var_os("UPDATE_EXPECTED").is_some() {
                    let (before, after) = (format!("```text\n{shown}```"), format!("```text\n{prints}```"));
                    fs::write(&page, text.replace(&before, &after)).unwrap();
                } else {
                    assert_eq!(shown, prints, "{place}: it prints\n{prints}");
                }
            }
        }
    }
    assert!(count > 3, "the scenarios are where they are looked for");
}

/// Every key of a scenario and of a step has a row.
#[test]
fn the_page_about_scenarios_has_every_key() {
    let page = read(Path::new("docs/reference/simulate.md"));
    for (shape, keys) in shapes_of("src/config/scenario.rs") {
        let section = section(&page, if shape == "Step" { "## Steps" } else { "## The file" });
        for key in keys {
            let row = |line: &&str| line.starts_with("| `") && line.contains(&format!("`{key}`"));
            assert!(section.lines().any(|line| row(&line)), "no row for `{key}` of {shape}");
        }
    }
}

/// Every type that has a layout, but the SOA, stands in a table or in the list
/// below it; every type with keys of its own in the example.
#[test]
fn the_page_about_records_has_every_type() {
    let page = read(Path::new(CONFIGURATION));
    let section = section(&page, "### Types and their values");
    for code in rdata::known_types().filter(|code| *code != rdata::rtype::SOA) {
        let name = rdata::type_name(code);
        assert!(section.contains(&format!("`{name}`")), "no word of {name}");
    }
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let types = line.split('|').nth(1).unwrap();
        for name in types.split(',').map(|name| name.trim().trim_matches('`')) {
            assert!(section.contains(&format!("type: {name}")), "no example of {name}");
        }
    }
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = without_blocks(&read(&page));
        for (line, number) in text.lines().zip(1..) {
            for target in links(line).filter(|target| !target.contains("://")) {
                let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
                let found = match file {
                    "" => page.clone(),
                    file => page.parent().expect("a page lies somewhere").join(file),
                };
                let place = || format!("{}:{number}: {target}", page.display());
                if !found.exists() {
                    wrong.push(format!("{}: no such file", place()));
                } else if !anchor.is_empty() && !anchors(&read(&found)).contains(anchor) {
                    wrong.push(format!("{}: no such heading", place()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Every key of a shape has a row in its own section's table.
#[test]
fn the_reference_has_every_key() {
    let sections = [
        ("File", "## Top level"),
        ("Zone", "## zones"),
        ("Server", "## server"),
        ("Site", "### Site"),
        ("RateLimit", "### Rate limit"),
        ("Vantage", "## vantages"),
        ("Maintenance", "## maintenance"),
        ("MonitorGroup", "## monitor_groups"),
        ("Member", "### Members of a monitor group"),
        ("Ejection", "### Ejection"),
        ("History", "### History"),
        ("Alert", "## alerts"),
        ("Monitor", "## monitors"),
        ("Pool", "## pools"),
        ("FamilyThreshold", "### Family threshold"),
        ("Endpoint", "## endpoints"),
        ("Steering", "### Endpoint steering"),
        ("LoadBalancer", "## load_balancers"),
        ("RandomSteering", "### Random steering"),
        ("Slo", "### Promises"),
        ("Soa", "## soa"),
        ("Record", "## records"),
    ];
    let reference = read(Path::new(CONFIGURATION));
    let shapes = shapes();
    let named: BTreeSet<&str> = sections.iter().map(|(shape, _)| *shape).collect();
    for (shape, _) in &shapes {
        assert!(named.contains(shape.as_str()), "no section is named for the keys of `{shape}`");
    }
    for (shape, heading) in sections {
        let keys = &shapes.iter().find(|(name, _)| name == shape).expect("a shape of shape.rs").1;
        let section = section(&reference, heading);
        let rows: BTreeSet<&str> =
            section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        for key in keys {
            assert!(rows.contains(key.as_str()), "{CONFIGURATION}: `{heading}` has no row for `{key}`");
        }
    }
}

/// Keys that are ignored, or refused by name.
#[test]
fn the_reference_names_every_key_without_effect() {
    let words = read(Path::new("src/config/words.rs"));
    let tables = words.split("static FILE").nth(1).expect("the tables of words.rs");
    let tables = tables.split("pub fn of").next().expect("the tables end somewhere");
    let reference = read(Path::new(CONFIGURATION));
    let keys: Vec<&str> = literals(tables).filter(|word| is_code(word)).collect();
    assert!(keys.len() > 60, "the keys are where they are looked for: {keys:?}");
    for key in keys.into_iter().filter(|key| !["a", "b"].contains(key)) {
        assert!(reference.contains(&format!("`{key}`")), "{CONFIGURATION} doesn't name `{key}`");
    }
}

#[test]
fn the_reference_names_every_lint() {
    let problems = read(Path::new("src/config/problem.rs"));
    let lints = problems.split("// Lints.").nth(1).expect("the lints come last").split("\n}").next();
    let reference = read(Path::new(LINTS));
    for line in lints.expect("lints").lines().filter(|line| line.contains("=>")) {
        let id = line.trim().split(':').next().expect("an id");
        assert!(reference.contains(&format!("| `{id}` |")), "{LINTS}: no row for the lint `{id}`");
    }
}

#[test]
fn the_page_about_health_has_every_reason_and_detail() {
    let page = read(Path::new(HEALTH));
    let outcome = read(Path::new("src/health/outcome.rs"));
    let reasons: Vec<&str> = outcome
        .lines()
        .filter(|line| line.trim().starts_with("Reason::"))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    let mut details = BTreeSet::from(["probe_aborted".to_owned()]);
    for file in sources("src/probe") {
        let text = read(&file);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        details.extend(details_in(code));
    }
    assert!(reasons.len() > 15 && details.len() > 40, "{reasons:?} {details:?}");
    for word in reasons.into_iter().map(str::to_owned).chain(details) {
        assert!(page.contains(&format!("`{word}`")), "{HEALTH} doesn't name `{word}`");
    }
}

#[test]
fn the_architecture_has_the_modules_of_the_layers_test() {
    let page = read(Path::new("docs/architecture.md"));
    let rows: Vec<(String, String)> = section(&page, "## Modules")
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
            Some((cells.next()?.trim_end_matches('`').to_owned(), cells.next()?.to_owned()))
        })
        .collect();
    let word = |kind| match kind {
        Kind::Pure => "pure",
        Kind::Seam => "seam",
        Kind::Shell => "shell",
        Kind::Top => "top",
    };
    let modules: Vec<(String, String)> =
        layers::MODULES.iter().map(|(name, kind)| ((*name).to_owned(), word(*kind).to_owned())).collect();
    assert_eq!(rows, modules);
}

#[test]
fn the_decision_about_dependencies_has_them_all() {
    let manifest = read(Path::new("Cargo.toml"));
    let mut crates = Vec::new();
    for part in manifest.split("\n[").filter(|part| part.contains("dependencies]\n")) {
        crates.extend(part.lines().skip(1).filter_map(|line| line.split_once(" = ")).map(|(name, _)| name));
    }
    let page = read(Path::new("docs/decisions/0010-dependencies.md"));
    let rows: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(rows, crates);
}

/// Answers shown in the README are those of the sample.
#[test]
fn the_readme_shows_answers_of_the_sample() {
    let loaded = config::load(&["zones".into()]).expect("the sample is good");
    let known = sample(&loaded.model);
    let text = read(Path::new("README.md"));
    let answers: Vec<Vec<&str>> = (text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()))
        .filter(|fields| matches!(fields[..], [_, _, "IN", "A", _]))
        .collect();
    assert!(answers.len() >= 4, "the answers are where they are looked for");
    for fields in answers {
        let shown = (fields[0].to_owned(), fields[1].to_owned(), fields[4].to_owned());
        assert!(known.contains(&shown), "README.md: {shown:?} is no answer of zones/");
    }
    let apex: Name = loaded.model.zones[0].apex.clone();
    for line in text.lines().filter(|line| line.contains("\tSOA\t")) {
        assert!(line.starts_with(&apex.to_string()), "README.md: {line}");
    }
}

/// Owner, TTL and address of all answers that load balancers may give.
fn sample(model: &Model) -> BTreeSet<(String, String, String)> {
    let addresses = || model.pools.iter().flat_map(|pool| &pool.endpoints).map(|end| end.address.to_string());
    let balancers = model.zones.iter().flat_map(|zone| &zone.load_balancers);
    balancers
        .flat_map(|balancer| addresses().map(|a| (balancer.name.to_string(), balancer.ttl.to_string(), a)))
        .collect()
}

// ---- the pages ----------------------------------------------------------------------------------

/// The README and everything below `docs/`.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![PathBuf::from("README.md")];
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("tests run in the package's directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A fenced block.
struct Block {
    info: String,
    text: String,
    /// Where its fence stands.
    line: usize,
}

fn blocks(page: &str) -> impl Iterator<Item = Block> {
    let mut lines = page.lines().zip(1..);
    std::iter::from_fn(move || {
        let (fence, line) = lines.find(|(line, _)| line.starts_with("```"))?;
        let body = lines.by_ref().map(|(line, _)| line).take_while(|line| !line.starts_with("```"));
        let text: String = body.flat_map(|line| [line, "\n"]).collect();
        Some(Block { info: fence.trim_start_matches('`').to_owned(), text, line })
    })
}

fn without_blocks(page: &str) -> String {
    let mut inside = false;
    let keep = |line: &str| {
        let fence = line.starts_with("```");
        inside ^= fence;
        if inside || fence { "\n".to_owned() } else { format!("{line}\n") }
    };
    page.lines().map(keep).collect()
}

/// What a fragment needs around it, by top-level key.
const FRAME: [(&str, &str); 4] = [
    ("monitors", "monitors: { web: { type: tcp, port: 5432 }, tcp: { type: tcp, port: 1 } }\n"),
    (
        "pools",
        "pools:\n  eu: { endpoints: [ { name: a, address: 192.0.2.1 } ] }\n  \
         us: { endpoints: [ { name: a, address: 192.0.2.2 } ] }\n  \
         sorry: { endpoints: [ { name: a, address: 192.0.2.3 } ] }\n",
    ),
    ("zone", "zone: example.com\n"),
    ("records", "records: { '': { type: NS, value: ns1.example.net. } }\n"),
];

fn framed(fragment: &str) -> String {
    let has = |key: &str| fragment.lines().any(|line| line.starts_with(&format!("{key}:")));
    let missing = FRAME.iter().filter(|(key, _)| !has(key)).map(|(_, text)| *text);
    missing.collect::<String>() + fragment
}

/// What stands below a heading, up to the next one.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let start = page.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no heading `{heading}`"));
    let rest = &page[start + heading.len() + 2..];
    rest.find("\n#").map_or(rest, |end| &rest[..end])
}

/// The targets of a line's links.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// The anchors of a page's headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let anchor = |heading: &str| {
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    };
    let page = without_blocks(page);
    page.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| anchor(line.trim_start_matches('#')))
        .collect()
}

// ---- the code -----------------------------------------------------------------------------------

/// The structs of `shape.rs` and their keys.
fn shapes() -> Vec<(String, Vec<String>)> {
    shapes_of("src/config/shape.rs")
}

/// The structs of a file and their keys.
fn shapes_of(file: &str) -> Vec<(String, Vec<String>)> {
    let mut shapes: Vec<(String, Vec<String>)> = Vec::new();
    for line in read(Path::new(file)).lines() {
        if let Some(name) = line.strip_prefix("pub struct ") {
            shapes.push((name.trim_end_matches(" {").to_owned(), Vec::new()));
        } else if let Some((key, _)) =
            line.strip_prefix("    pub ").and_then(|rest| rest.split_once(": Field<"))
            && let Some((_, keys)) = shapes.last_mut()
        {
            keys.push(key.trim_start_matches("r#").to_owned());
        }
    }
    shapes
}

/// `NAME.rs` and everything in the folder beside it.
fn sources(module: &str) -> Vec<PathBuf> {
    let mut files = vec![PathBuf::from(format!("{module}.rs"))];
    let mut folders = vec![PathBuf::from(module)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

/// The detail codes of a file: literals after a reason, or with `_` in them.
fn details_in(code: &str) -> impl Iterator<Item = String> {
    let parts: Vec<&str> = code.split('"').collect();
    (1..parts.len()).step_by(2).filter_map(move |n| {
        let after_reason = parts[n - 1]
            .trim_end_matches(", ")
            .rsplit("Reason::")
            .next()
            .is_some_and(|word| word.chars().all(char::is_alphanumeric) && parts[n - 1].ends_with(", "));
        let word = parts[n];
        (is_code(word) && (after_reason || word.contains('_'))).then(|| word.to_owned())
    })
}

/// Whether a text consists of small letters, digits and `_`.
fn is_code(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The texts in double quotes.
fn literals(code: &str) -> impl Iterator<Item = &str> {
    code.split('"').skip(1).step_by(2)
}
