//! YAML files → model, or every problem found.
//!
//! ```text
//! files ──► file (what stands where) ──► shape (which keys) ──► lower (what they mean) ──► Model
//!               └─────────────── problems, all of them ───────────────┴──► Report
//! ```
//!
//! All files are one configuration. A [`Report`] says of each problem where it
//! is, what is wrong and what to write instead; with one error nothing of the
//! configuration is taken. Lints come along with what was taken.
//!
//! Knows nothing of what runs: the caller decides what to do with a model.

mod allow;
mod file;
mod find;
mod later;
mod lower;
mod place;
mod problem;
mod reader;
mod scenario;
mod shape;
mod value;
mod words;
mod zone_file;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

pub use value::{duration, show as show_duration, weight, weight_help};
pub use words::nearest;

pub use find::look;
pub use later::Later;
pub use problem::{Also, Excerpt, Look, Problem, ProblemKind, Report, Severity};

use crate::clock;
use crate::model::{Model, RateLimit};
use crate::simulate::Script;
use crate::timing::StartUps;
use crate::wire::Secrets;
use crate::x509;
use file::Parsed;
use place::{Gather, Source, Span};

/// Files above it are not read.
const MAX_FILE: u64 = 64 << 20;

/// A configuration without errors.
#[derive(Debug)]
pub struct Loaded {
    pub settings: Settings,
    pub model: Arc<Model>,
    /// What is worth a second look.
    pub lints: Vec<Problem>,
    /// The files that were read, in the order of the paths; those of zones last.
    pub files: Vec<PathBuf>,
    /// All that they name: those of zones, certificates, keys and secrets, which
    /// may lie anywhere.
    pub named_files: Vec<Look>,
}

impl Loaded {
    /// The lints as a report, to show them.
    pub fn lint_report(&self) -> Report {
        Report { problems: self.lints.clone(), ..Report::default() }
    }
}

/// How the server itself runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// For plain DNS, over UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// For DNS over TLS.
    pub listen_tls: Vec<SocketAddr>,
    /// For DNS over HTTPS.
    pub listen_https: Vec<SocketAddr>,
    /// For DNS over QUIC.
    pub listen_quic: Vec<SocketAddr>,
    /// For DNS over HTTP/3.
    pub listen_http3: Vec<SocketAddr>,
    /// The path of queries over HTTPS.
    pub https_path: String,
    /// There if one of the encrypted lists isn't empty.
    pub identity: Option<Identity>,
    /// Who speaks for clients by the PROXY protocol.
    pub proxies: Vec<IpNet>,
    pub connections: Connections,
    /// None: one a core.
    pub udp_workers: Option<NonZeroUsize>,
    pub state_dir: Option<PathBuf>,
    /// How long a start may wait for first verdicts.
    pub startup_wait: Duration,
    /// Older verdicts of a former run are not used.
    pub state_max_age: Duration,
    /// At once. None: as the limit on open files allows.
    pub max_probes: Option<u32>,
    /// A reload that removes more than half of the names or load balancers is refused.
    pub reload_guard: bool,
    /// Monitors may run programs.
    pub allow_exec: bool,
    pub log: LogFormat,
    /// Who is asked for host names; empty: the system's.
    pub resolvers: Vec<SocketAddr>,
    /// Lints that are not told.
    pub allow_lints: BTreeSet<String>,
    /// How much of the history is kept; none: there is none.
    pub history: Option<History>,
    pub service: ServiceSettings,
    /// None: replies are not limited.
    pub rate_limit: Option<RateLimit>,
    /// Who to be once the sockets are open; none: whoever started it.
    pub user: Option<String>,
}

/// What the server tells of itself, and whose cookies it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceSettings {
    pub nsid: Option<Box<[u8]>>,
    /// Answers to `version.bind` and `version.server`.
    pub version: Option<Box<[u8]>>,
    /// Answers to `id.server` and `hostname.bind`.
    pub identity: Option<Box<[u8]>>,
    pub cookies: Cookies,
}

/// Where the secrets of server cookies come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cookies {
    Off,
    /// A secret of this server's own.
    #[default]
    Own,
    /// Secrets shared with other servers.
    Given(Secrets),
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen: vec![(Ipv4Addr::LOCALHOST, 5300).into()],
            listen_tls: Vec::new(),
            listen_https: Vec::new(),
            listen_quic: Vec::new(),
            listen_http3: Vec::new(),
            https_path: "/dns-query".into(),
            identity: None,
            proxies: Vec::new(),
            connections: Connections::default(),
            udp_workers: None,
            state_dir: None,
            startup_wait: Duration::from_secs(10),
            state_max_age: Duration::from_secs(600),
            max_probes: None,
            reload_guard: true,
            allow_exec: false,
            log: LogFormat::Auto,
            resolvers: Vec::new(),
            allow_lints: BTreeSet::new(),
            history: Some(History::default()),
            service: ServiceSettings::default(),
            rate_limit: None,
            user: None,
        }
    }
}

/// What clients over TCP may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    pub most: u32,
    /// For each network of clients.
    pub per_client: u32,
    /// Without a word.
    pub idle: Duration,
    /// From the first octet of a message to its last.
    pub message: Duration,
    /// With replies unread.
    pub write: Duration,
    pub handshake: Duration,
}

impl Default for Connections {
    fn default() -> Connections {
        Connections {
            most: 1000,
            per_client: 100,
            idle: Duration::from_secs(10),
            message: Duration::from_secs(5),
            write: Duration::from_secs(5),
            handshake: Duration::from_secs(5),
        }
    }
}

/// The server's certificate and its key: the files, and the PEM that was in
/// them.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    pub certificate: PathBuf,
    pub private_key: PathBuf,
    pub certificates: Arc<[u8]>,
    pub key: Arc<[u8]>,
}

impl Identity {
    /// Whether the other one is the same certificate and key, wherever they are.
    pub fn is_as(&self, other: &Identity) -> bool {
        (&self.certificates, &self.key) == (&other.certificates, &other.key)
    }

    /// What is wrong with the dates of the server's own certificate just now.
    pub fn complaint(&self) -> Option<String> {
        let own = CertificateDer::pem_slice_iter(&self.certificates).next()?.ok()?;
        x509::validity(&own)?.complaint(clock::unix_seconds().into())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // nothing of the key itself
        let Identity { certificate, private_key, .. } = self;
        f.debug_struct("Identity")
            .field("certificate", certificate)
            .field("private_key", private_key)
            .finish()
    }
}

/// How much of the history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// A file that grows beyond it, in octets, is followed by another.
    pub max_size: u64,
    pub max_files: usize,
    pub max_age: Duration,
}

impl Default for History {
    fn default() -> History {
        History { max_size: 16 << 20, max_files: 8, max_age: Duration::from_secs(90 * 24 * 3600) }
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people; with colours on a terminal.
    Auto,
    /// For people, without colours.
    Text,
    /// One JSON object a line.
    Json,
}

/// Reads files, and directories with all YAML files below them.
pub fn load(paths: &[PathBuf]) -> Result<Loaded, Report> {
    let gather = Gather::default();
    let files = find::read_all(paths, MAX_FILE, &gather);
    assemble(files, paths.first().map(PathBuf::as_path), gather)
}

/// As [`load`]; lints know what was seen before, too. `past` gives that, by the
/// settings that the files have.
pub fn load_knowing(paths: &[PathBuf], past: &dyn Fn(&Settings) -> StartUps) -> Result<Loaded, Report> {
    let gather = Gather::default();
    let files = find::read_all(paths, MAX_FILE, &gather);
    taken(put_together(files, paths.first().map(PathBuf::as_path), gather, past))
}

/// As [`load`], but promises that the settings can't keep refuse nothing: they
/// come beside what was loaded.
pub fn load_promising(paths: &[PathBuf]) -> Result<(Loaded, Option<Report>), Report> {
    let gather = Gather::default();
    let files = find::read_all(paths, MAX_FILE, &gather);
    let first = paths.first().map(PathBuf::as_path);
    let missed = |kind: &ProblemKind| matches!(kind, ProblemKind::SloMissed { .. });
    taken_but_for(missed, put_together(files, first, gather, &nothing))
}

/// As [`load`], but a certificate of the server's that can't be used refuses
/// nothing: what is wrong with it comes beside what was loaded, for a server that
/// has one already. Then [`Settings::identity`] is none.
pub fn load_beside_certificate(paths: &[PathBuf]) -> Result<(Loaded, Option<Report>), Report> {
    let gather = Gather::default();
    let files = find::read_all(paths, MAX_FILE, &gather);
    let first = paths.first().map(PathBuf::as_path);
    let missed = ProblemKind::is_of_server_certificate;
    taken_but_for(missed, put_together(files, first, gather, &nothing))
}

/// As [`load`], from texts; only files of certificates and zones named in them
/// are read.
pub fn load_texts(files: Vec<(PathBuf, Vec<u8>)>) -> Result<Loaded, Report> {
    let first = files.first().map(|(path, _)| path.clone());
    assemble(files, first.as_deref(), Gather::default())
}

/// Reads a scenario and the configurations it names; `given` stands in for
/// its own.
pub fn load_scenario(path: &Path, given: &[PathBuf]) -> Result<Script, Report> {
    let mut gather = Gather::default();
    if path.is_dir() {
        let kind = ProblemKind::Unreadable { why: "it is a directory".into() };
        gather.refuse_file(path, kind, Some("give the path of one YAML file".into()));
    }
    let mut files = match gather.has_problems() {
        true => Vec::new(),
        false => find::read_all(&[path.to_owned()], MAX_FILE, &gather),
    };
    let node = files.pop().and_then(|(path, octets)| {
        let file = decode(path, octets, &mut gather)?;
        file::read_whole(file, &mut gather)
    });
    let load = |paths: &[PathBuf]| load(paths).map_err(|report| report.problems);
    let made = match &node {
        Some(node) => lower::scenario::lower(&reader::shape(node, &gather), &gather, given, &load),
        None => Err(Vec::new()),
    };
    made.map_err(|elsewhere| {
        let mut problems = gather.into_problems(&BTreeSet::new());
        problems.extend(elsewhere);
        Report { problems, ..Report::default() }
    })
}

fn assemble(files: Vec<(PathBuf, Vec<u8>)>, first: Option<&Path>, gather: Gather) -> Result<Loaded, Report> {
    taken(put_together(files, first, gather, &nothing))
}

/// No past is known.
fn nothing(_: &Settings) -> StartUps {
    StartUps::new()
}

/// What was loaded if all errors are `spared` ones, which come beside it.
fn taken_but_for(
    spared: impl Fn(&ProblemKind) -> bool,
    (loaded, report): (Loaded, Report),
) -> Result<(Loaded, Option<Report>), Report> {
    let mut errors = report.problems.iter().filter(|problem| problem.severity == Severity::Error);
    match (report.has_errors(), errors.all(|problem| spared(&problem.kind))) {
        (false, _) => taken((loaded, report)).map(|loaded| (loaded, None)),
        (true, true) => Ok((loaded, Some(report))),
        (true, false) => Err(report),
    }
}

fn taken((mut loaded, report): (Loaded, Report)) -> Result<Loaded, Report> {
    if report.has_errors() {
        return Err(report);
    }
    loaded.lints = report.problems;
    Ok(loaded)
}

/// What the files say, as far as it can be read, and all that is wrong.
fn put_together(
    files: Vec<(PathBuf, Vec<u8>)>,
    first: Option<&Path>,
    mut gather: Gather,
    past: &dyn Fn(&Settings) -> StartUps,
) -> (Loaded, Report) {
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut parsed = Vec::new();
    let mut unread = gather.has_problems();
    for (path, octets) in files {
        paths.push(path.clone());
        match decode(path, octets, &mut gather) {
            Some(file) => parsed.push((file, file::read(file, &mut gather))),
            None => unread = true,
        }
    }
    let mut zone_files = zone_file::ZoneFiles::named(&parsed, &gather);
    let mut nodes = Vec::new();
    for (file, parsed) in parsed {
        let Some(parsed) = zone_files.claim(file, parsed, &gather) else { continue };
        match parsed {
            Parsed::Node(node) => nodes.push(node),
            Parsed::Empty => {
                file::refuse_empty(file, &gather);
                unread = true;
            }
            Parsed::Broken => unread = true,
        }
    }
    let shapes: Vec<reader::Field<shape::File>> =
        nodes.iter().map(|node| reader::shape(node, &gather)).collect();
    unread |= shapes.iter().any(|shape| matches!(shape, reader::Field::Broken(_)));
    unread |= !zone_files.read_all(&shapes, &mut gather);
    if unread {
        gather.set_partial();
    }
    let (settings, model) = lower::lower(&shapes, &zone_files, &gather, past);
    // What couldn't be read may hold the zone.
    let zoneless = |shape: &reader::Field<shape::File>| {
        shape.get().is_some_and(|file| {
            // A zone's keys without its name have been refused already.
            let keys = [file.zone.place(), file.zones.place(), file.ttl.place(), file.soa.place()];
            let maps = [file.records.place(), file.load_balancers.place(), file.zone_file.place()];
            keys.into_iter().chain(maps).flatten().next().is_none()
        })
    };
    let hollow = shapes.iter().filter_map(|shape| shape.get()?.zones.get()).all(|zones| zones.0.is_empty());
    if !unread
        && (shapes.iter().all(zoneless) || (model.zones.is_empty() && hollow && !gather.has_problems()))
    {
        let help = "write `zone: gslb.example.com` with its `records` and `load_balancers` into a file";
        gather.refuse_file(
            first.unwrap_or(Path::new("(no path given)")),
            ProblemKind::NoZone {},
            Some(help.into()),
        );
    }
    drop(shapes);
    drop(nodes);

    allow::unknown(&gather);
    let named_files = gather.looks();
    let problems = gather.into_problems(&settings.allow_lints);
    for path in zone_files.into_paths() {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let loaded = Loaded {
        settings,
        model: Arc::new(model),
        lints: Vec::new(),
        files: paths,
        named_files: named_files.clone(),
    };
    (loaded, Report { problems, named_files })
}

/// A file's text, its byte order mark taken off.
fn decode(path: PathBuf, octets: Vec<u8>, gather: &mut Gather) -> Option<usize> {
    if octets.len() as u64 > MAX_FILE {
        let kind = ProblemKind::TooLarge { octets: octets.len() as u64, limit: MAX_FILE };
        gather.refuse_file(&path, kind, Some("split it into several files".into()));
        return None;
    }
    let utf16 = octets.starts_with(&[0xff, 0xfe]) || octets.starts_with(&[0xfe, 0xff]);
    let text = match String::from_utf8(octets) {
        Ok(text) => text,
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let octets = error.into_bytes();
            let text = String::from_utf8_lossy(&octets[..valid]).into_owned();
            let line = text.matches('\n').count() + 1;
            let column = text.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            let why = match utf16 {
                true => "it begins like UTF-16".to_owned(),
                false => format!("the octet 0x{:02x} is none of its characters", octets[valid]),
            };
            let file = gather.add_source(Source::new(path, String::from_utf8_lossy(&octets).into_owned()));
            let span = Span { line, column, end_line: line, end_column: column + 1 };
            let help = "save the file as UTF-8".to_owned();
            gather.refuse_at(file, span, ProblemKind::NotUtf8 { why }, Some(help));
            return None;
        }
    };
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    let odd = text.find(|c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{85}'));
    let found = odd.map(|at| {
        let line = text[..at].matches('\n').count() + 1;
        let column = text[..at].rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let code = text[at..].chars().next().map_or(0, u32::from);
        (Span { line, column, end_line: line, end_column: column + 1 }, code)
    });
    let file = gather.add_source(Source::new(path, text));
    if let Some((span, code)) = found {
        let kind = ProblemKind::ControlCharacter { code: format!("U+{code:04X}") };
        let help = "take it away; in double quotes it can be written as an escape such as `\\0`".to_owned();
        gather.refuse_at(file, span, kind, Some(help));
        return None;
    }
    Some(file)
}
