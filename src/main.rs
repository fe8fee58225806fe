//! The command line.

use std::fmt::Display;
use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use haledns::app::rehearse::{Refusal, Rehearsal, rehearse};
use haledns::app::{self, StateAt, demo};
use haledns::cli::{self, CommandError, Server, Style};
use haledns::clock::Clock;
use haledns::config::{self, Loaded, LogFormat, Report, Severity};
use haledns::control::{Request, What};
use haledns::events::Kind;
use haledns::history::{self, Wanted};
use haledns::model::Name;
use haledns::{moment, state, telemetry, timing};
use tokio::runtime::Runtime;

/// An authoritative DNS server that answers only with what is healthy.
#[derive(Parser)]
#[command(name = "hale", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Probe the endpoints and answer for the zones of a configuration.
    #[command(
        after_help = "The environment variable HALE_LOG filters the log: `warn`, or `haledns=debug` for \
                            every probe. NO_COLOR switches colours off."
    )]
    Serve {
        /// Directories and files; of a directory every *.yaml and *.yml below it.
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Where to answer, UDP and TCP; may be given several times. Replaces
        /// the configuration's `server.listen`.
        #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
        listen: Vec<SocketAddr>,
        /// How log lines look; replaces the configuration's `server.log`.
        #[arg(long, value_enum, value_name = "FORMAT")]
        log: Option<Log>,
        /// Where to keep what outlives a restart; replaces the configuration's
        /// `server.state_dir`.
        #[arg(long, value_name = "PATH")]
        state_dir: Option<PathBuf>,
        /// Who to be once the sockets are open, if started as root; replaces the
        /// configuration's `server.user`.
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
    },
    /// Tell every problem of a configuration, with its place and what to write
    /// instead. Exits 0 if there is none, 1 if there is one.
    Check {
        /// Directories and files; of a directory every *.yaml and *.yml below it.
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Print the problems as JSON.
        #[arg(long)]
        json: bool,
        /// Exit 1 for warnings, too.
        #[arg(long)]
        strict: bool,
    },
    /// Tell how long until a failure, or a recovery, has reached the clients:
    /// least, typical and worst, in their parts, computed from the settings.
    Timing {
        /// One load balancer by its name, or the first labels of it if no other
        /// begins so; without it: all of them.
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// Directories and files to read the settings from.
        #[arg(long, value_name = "PATH", num_args = 1..)]
        config: Vec<PathBuf>,
        /// Print the figures as JSON, in seconds.
        #[arg(long)]
        json: bool,
    },
    /// Tell what happened: every change of an endpoint, a pool, a load balancer
    /// or a vantage, oldest first. Needs no running server.
    History {
        /// A pool with its endpoints, POOL/ENDPOINT, a load balancer or a vantage.
        #[arg(value_name = "OBJECT")]
        object: Option<String>,
        /// Where the server keeps its state; else as `hale serve` finds it when
        /// `server.state_dir` isn't set.
        #[arg(long, value_name = "PATH")]
        state_dir: Option<PathBuf>,
        /// From then on: a duration back from now (`2h`, `3d`) or a time in UTC
        /// (`2026-11-30`, `2026-11-30T04:50`, or of today `04:50`).
        #[arg(long, value_name = "TIME", value_parser = time)]
        since: Option<Duration>,
        /// Up to then.
        #[arg(long, value_name = "TIME", value_parser = time)]
        until: Option<Duration>,
        /// Only events of this kind.
        #[arg(long, value_name = "KIND", value_parser = kind)]
        kind: Option<Kind>,
        /// Leave out what was so from the beginning.
        #[arg(long)]
        changed_only: bool,
        /// Print the events as they are kept: one JSON object a line.
        #[arg(long)]
        json: bool,
        /// Tell what the newest probes saw, too.
        #[arg(long, conflicts_with = "json")]
        evidence: bool,
        /// Only the newest so many.
        #[arg(short = 'n', value_name = "NUMBER")]
        most: Option<usize>,
    },
    /// Play a scenario in virtual time and draw what happens: which pool
    /// answers when, how soon a failure is noticed, when the last client has
    /// moved. Exits 1 if something that the scenario expects isn't so.
    #[command(after_help = "COLUMNS sets the width of the text. NO_COLOR switches colours off.")]
    Simulate {
        /// The scenario, one YAML file.
        #[arg(value_name = "FILE")]
        scenario: PathBuf,
        /// Directories and files of a configuration; may be given several
        /// times. Replaces the scenario's `config`.
        #[arg(long, value_name = "PATH")]
        config: Vec<PathBuf>,
        /// Draw it into this file, too.
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// Print everything as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show it all on loopback: real endpoints to kill and revive, a real
    /// server to ask with dig. Needs no network, no root and no files.
    Demo {
        /// Where to answer, UDP and TCP.
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:5300", value_parser = address)]
        listen: SocketAddr,
        /// Bring up the sample's endpoints alone, beside `hale serve zones`.
        #[arg(long, conflicts_with = "tour")]
        endpoints_only: bool,
        /// Play the story unattended; exits 0 only if every answer was right.
        #[arg(long)]
        tour: bool,
    },
    /// Show what the running server holds: load balancers, pools, endpoints.
    Status {
        /// One pool, everything that is known of one endpoint, or a load balancer
        /// (or records that follow health) by its full name, with its pools.
        #[arg(value_name = "POOL[/ENDPOINT] | NAME")]
        of: Option<String>,
        #[command(flatten)]
        at: At,
    },
    /// Take out of the answers now; drained once no client can have the address
    /// any more. Probing goes on.
    Drain {
        #[command(flatten)]
        order: OrderArgs,
        /// Return only when it is drained.
        #[arg(long)]
        wait: bool,
    },
    /// Take a drain back.
    Undrain {
        #[command(flatten)]
        order: OrderArgs,
    },
    /// As if it were enabled in the configuration; takes back a disable or a
    /// drain.
    Enable {
        #[command(flatten)]
        order: OrderArgs,
    },
    /// As if it were disabled in the configuration, though it is probed.
    Disable {
        #[command(flatten)]
        order: OrderArgs,
    },
    /// Say that an endpoint is healthy or unhealthy, whatever probes say, or
    /// give it another weight than the configuration does.
    Override {
        #[arg(value_name = "POOL/ENDPOINT")]
        of: String,
        #[arg(value_enum)]
        what: Forced,
        /// Of `weight`: 0 to 1, in hundredths.
        #[arg(value_name = "NUMBER", value_parser = weight, allow_negative_numbers = true)]
        weight: Option<f64>,
        #[command(flatten)]
        why: Why,
        #[command(flatten)]
        at: At,
    },
    /// Send a load balancer's traffic back to its first available pools.
    Failback {
        #[arg(value_name = "LOAD_BALANCER")]
        load_balancer: String,
        #[command(flatten)]
        at: At,
    },
    /// Report that an endpoint is up or down (monitors of type `push`), or what
    /// real traffic saw of it.
    Report {
        #[arg(value_name = "POOL/ENDPOINT")]
        of: String,
        #[arg(value_enum, required_unless_present_any = ["ok", "failed"], conflicts_with_all = ["ok", "failed"])]
        state: Option<UpDown>,
        /// So many requests that went well since the last report.
        #[arg(long, value_name = "N")]
        ok: Option<u32>,
        /// So many that failed.
        #[arg(long, value_name = "N")]
        failed: Option<u32>,
        #[command(flatten)]
        at: At,
    },
    /// Probe now and show what was found; verdicts take no notice. Exits 0 if
    /// every probe passed.
    Probe {
        #[arg(value_name = "POOL[/ENDPOINT]")]
        of: String,
        /// From here, as these files say, without a server.
        #[arg(long, value_name = "PATH")]
        config: Vec<PathBuf>,
        #[command(flatten)]
        at: At,
    },
    /// Have the running server read its files again; returns when it answers from
    /// them.
    Reload {
        /// Also if more than half of the names or load balancers would be gone.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        at: At,
    },
}

/// Where the server is, and how its answer looks.
#[derive(Args)]
struct At {
    /// The server's socket.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The server's state directory, if it is not the usual one; the
    /// environment variable STATE_DIRECTORY says the same.
    #[arg(long, value_name = "PATH", conflicts_with = "socket")]
    state_dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Why, and for how long.
#[derive(Args)]
struct Why {
    /// Shown wherever the state is.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// It ends by itself after so long, such as `1h30m`.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    limit: Option<Duration>,
}

#[derive(Args)]
struct OrderArgs {
    #[arg(value_name = "POOL[/ENDPOINT]")]
    of: String,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    at: At,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Forced {
    Healthy,
    Unhealthy,
    /// Of another weight; a verdict stands beside it.
    Weight,
    /// As measured and configured again.
    Off,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum UpDown {
    Up,
    Down,
}

impl At {
    fn server(self) -> (Server, Style) {
        let out = std::io::stdout();
        let columns = out.is_terminal().then(|| crossterm::terminal::size().ok()).flatten();
        let style = Style {
            colours: colours(&out),
            columns: columns.map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0),
            json: self.json,
        };
        (Server { socket: self.socket, state_dir: self.state_dir }, style)
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Log {
    Auto,
    Text,
    Json,
}

/// An address with a port, as `--listen` takes it.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let (address, port) = match text.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => (address, 53),
            Err(_) => {
                let port = text.rsplit(':').next().and_then(|port| port.parse().ok());
                (Ipv4Addr::LOCALHOST.into(), port.unwrap_or(53))
            }
        };
        format!("it takes an address and a port, such as {}", SocketAddr::new(address, port))
    })
}

/// A length of time, as `--for` takes it.
fn duration(text: &str) -> Result<Duration, String> {
    match config::duration(text) {
        Some(time) if !time.is_zero() => Ok(time),
        _ => Err("it takes seconds or a sum such as 1h30m, more than nothing".to_owned()),
    }
}

/// A weight, as `override` takes it.
fn weight(text: &str) -> Result<f64, String> {
    match config::weight(text) {
        Some(hundredths) => Ok(f64::from(hundredths) / 100.0),
        None => Err(config::weight_help(text)),
    }
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve { paths, listen, log, state_dir, user } => serve(paths, listen, log, state_dir, user),
        Command::Check { paths, json, strict } => check(&paths, json, strict),
        Command::Timing { name, config, json } => timing(name, config, json),
        Command::History { object, state_dir, since, until, kind, changed_only, json, evidence, most } => {
            let wanted = Wanted { object, since, until, kind, changed_only, most };
            show_history(state_dir, &wanted, json, evidence)
        }
        Command::Simulate { scenario, config, svg, json } => {
            let colours = colours(&std::io::stdout());
            simulate(&Rehearsal { scenario, config, svg, json, colours })
        }
        Command::Demo { listen, endpoints_only, tour } => {
            let mode = match (endpoints_only, tour) {
                (true, _) => demo::Mode::EndpointsOnly,
                (_, true) => demo::Mode::Tour,
                _ => demo::Mode::Interactive,
            };
            match Runtime::new() {
                Ok(runtime) => run(runtime, demo::run(mode, listen)),
                Err(error) => fail(error),
            }
        }
        Command::Status { of, at } => {
            let (server, style) = at.server();
            show(cli::status(&server, of.as_deref(), style))
        }
        Command::Drain { order, wait } => drain(order, wait),
        Command::Undrain { order } => tell(What::Undrain, order),
        Command::Enable { order } => tell(What::Enable, order),
        Command::Disable { order } => tell(What::Disable, order),
        Command::Override { of, what, weight, why, at } => {
            if (what == Forced::Weight) != weight.is_some() {
                refuse_weight(&of, weight);
            }
            let what = match what {
                Forced::Healthy => What::Healthy,
                Forced::Unhealthy => What::Unhealthy,
                Forced::Weight => What::Weight,
                Forced::Off => What::Measured,
            };
            change(order_request(what, of, weight, why), at)
        }
        Command::Failback { load_balancer, at } => change(Request::Failback { load_balancer }, at),
        Command::Report { of, state: Some(state), at, .. } => {
            change(Request::Report { of, up: state == UpDown::Up }, at)
        }
        Command::Report { of, ok, failed, at, .. } => {
            let (ok, failed) = (ok.unwrap_or_default(), failed.unwrap_or_default());
            change(Request::Traffic { of, ok, failed }, at)
        }
        Command::Probe { of, config, at } => {
            let (server, style) = at.server();
            let found = match config.is_empty() {
                true => cli::probe(&server, &of, style),
                false => cli::probe_files(&config, &of, style),
            };
            match found {
                Ok(shown) if shown.passed => print(&shown.text),
                Ok(shown) => {
                    print(&shown.text);
                    shown.not_probed.iter().for_each(|why| eprintln!("hale: {why}"));
                    ExitCode::FAILURE
                }
                Err(error) => fail(error),
            }
        }
        Command::Reload { force, at } => change(Request::Reload { force }, at),
    }
}

fn drain(order: OrderArgs, wait: bool) -> ExitCode {
    let (of, why) = (order.of, order.why);
    let (server, style) = order.at.server();
    let done = show(cli::change(&server, &order_request(What::Drain, of.clone(), None, why), style));
    if !wait || done != ExitCode::SUCCESS {
        return done;
    }
    let drained = cli::wait_until_drained(&server, &of);
    // JSON is one value, and it was printed
    show(if style.json { drained.map(|_| String::new()) } else { drained })
}

fn tell(what: What, order: OrderArgs) -> ExitCode {
    change(order_request(what, order.of, None, order.why), order.at)
}

fn order_request(what: What, of: String, weight: Option<f64>, why: Why) -> Request {
    let for_ms = why.limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    Request::Order { what, of, reason: why.reason, for_ms, weight }
}

/// Ends the program: a weight without its number, or a number without `weight`.
fn refuse_weight(of: &str, weight: Option<f64>) -> ! {
    let (kind, message) = match weight {
        None => {
            let why = format!("`weight` takes a number from 0 to 1: write `hale override {of} weight 0.25`");
            (clap::error::ErrorKind::MissingRequiredArgument, why)
        }
        Some(number) => {
            let why = format!(
                "only `weight` takes a number: write `hale override {of} weight {number}`, or leave it out"
            );
            (clap::error::ErrorKind::ArgumentConflict, why)
        }
    };
    Cli::command().error(kind, message).exit()
}

fn change(request: Request, at: At) -> ExitCode {
    let (server, style) = at.server();
    show(cli::change(&server, &request, style))
}

fn show(text: Result<String, CommandError>) -> ExitCode {
    text.map_or_else(fail, |text| print(&text))
}

/// Prints what a command found.
fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // who reads no further, as `head` does, has seen enough
        Err(error) if error.kind() != ErrorKind::BrokenPipe => fail(error),
        _ => ExitCode::SUCCESS,
    }
}

fn serve(
    paths: Vec<PathBuf>,
    listen: Vec<SocketAddr>,
    log: Option<Log>,
    state_dir: Option<PathBuf>,
    user: Option<String>,
) -> ExitCode {
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return fail(error),
    };
    let watch = {
        let _inside = runtime.enter();
        app::Watch::begin(paths)
    };
    let watch = match watch {
        Ok(watch) => watch,
        Err(error) => return fail(error),
    };
    let loaded = match config::load(watch.paths()) {
        Ok(loaded) => loaded,
        Err(report) => {
            eprint!("{}{}", report.text(colours(&std::io::stderr())), error_count(&report, watch.paths()));
            return ExitCode::FAILURE;
        }
    };
    let format = match log {
        Some(Log::Auto) => LogFormat::Auto,
        Some(Log::Text) => LogFormat::Text,
        Some(Log::Json) => LogFormat::Json,
        None => loaded.settings.log,
    };
    telemetry::start_log(format == LogFormat::Json, format == LogFormat::Auto && colours(&std::io::stderr()));
    tracing::info!(paths = ?watch.paths(), "hale {} starts, pid {}", env!("CARGO_PKG_VERSION"), std::process::id());
    let lints = loaded.lint_report();
    if !lints.problems.is_empty() {
        tracing::warn!("{}", lints.text(false).trim_end());
    }
    let listen = if listen.is_empty() { loaded.settings.listen.clone() } else { listen };
    let state = StateAt::of(state_dir, &loaded.settings);
    let user = user.or_else(|| loaded.settings.user.clone());
    run(runtime, app::serve(loaded, listen, watch, state, user))
}

fn check(paths: &[PathBuf], json: bool, strict: bool) -> ExitCode {
    // a state directory that isn't there, or can't be read, has nothing to tell
    let past = |settings: &config::Settings| {
        let folder = settings.state_dir.as_deref().map(history::folder);
        folder.and_then(|folder| history::start_ups(&folder).ok()).unwrap_or_default()
    };
    let (report, summary) = match config::load_knowing(paths, &past) {
        Ok(loaded) => (loaded.lint_report(), summary(&loaded)),
        Err(report) => {
            let summary = error_count(&report, paths);
            (report, summary)
        }
    };
    let text = match json {
        true => format!("{:#}\n", report.json()),
        false => report.text(colours(&std::io::stdout())) + &summary,
    };
    let printed = print(&text);
    match report.has_errors() || (strict && !report.problems.is_empty()) {
        true => ExitCode::FAILURE,
        false => printed,
    }
}

fn timing(name: Option<String>, mut paths: Vec<PathBuf>, json: bool) -> ExitCode {
    let mut name = name;
    if paths.is_empty() {
        // a running server can't be asked yet, so that what names files means them
        match name.take().filter(|name| PathBuf::from(name).exists()) {
            Some(path) => paths.push(path.into()),
            None => {
                return fail(
                    "timing reads files: `hale timing --config PATH`, or `hale timing NAME --config PATH`",
                );
            }
        }
    }
    let refusal = |report: &Report| {
        eprint!("{}{}", report.text(colours(&std::io::stderr())), error_count(report, &paths));
        ExitCode::FAILURE
    };
    let (loaded, missed) = match config::load_promising(&paths) {
        Ok(both) => both,
        Err(report) => return refusal(&report),
    };
    let mut timings = timing::all(&loaded.model);
    timings.sort_by_cached_key(|timing| timing.name.canonical_order());
    if let Some(name) = name {
        let known: Vec<String> = timings.iter().map(|timing| timing.name.to_string()).collect();
        let full = name.parse().ok().filter(|name: &Name| timings.iter().any(|timing| timing.name == *name));
        let begins = |timing: &timing::Timing| {
            let shown = timing.name.to_string();
            shown.strip_prefix(&*name).is_some_and(|rest| rest.starts_with('.'))
        };
        let short = timings.iter().filter(|timing| begins(timing)).count() == 1;
        timings.retain(|timing| match &full {
            Some(full) => timing.name == *full,
            None => short && begins(timing),
        });
        if timings.is_empty() {
            return fail(format!("there is no load balancer `{name}`; there are: {}", known.join(", ")));
        }
    }
    let printed = print(&match json {
        true => format!("{:#}\n", app::timing::json(&timings)),
        false => app::timing::text(&timings),
    });
    missed.map_or(printed, |missed| refusal(&missed))
}

fn show_history(state_dir: Option<PathBuf>, wanted: &Wanted, json: bool, evidence: bool) -> ExitCode {
    let Some(state_dir) = state_dir.or_else(state::default_path) else {
        return fail("no state directory is known: name it with --state-dir");
    };
    let folder = history::folder(&state_dir);
    if !folder.is_dir() {
        return fail(format_args!(
            "{}: there is no history; name the server's state directory with --state-dir",
            folder.display()
        ));
    }
    let out = BufWriter::new(std::io::stdout().lock());
    let shown = match json {
        true => history_lines(&folder, wanted, out),
        false => {
            let mut rows = history::Rows::new(out, evidence);
            history::read(&folder, wanted, |event| rows.push(event)).and_then(|()| rows.finish())
        }
    };
    match shown.and_then(|count| if count == 0 { nothing_kept(&folder, wanted).map(Some) } else { Ok(None) })
    {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(why)) => {
            eprintln!("{why}");
            ExitCode::SUCCESS
        }
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

/// Writes events as lines of JSON; says how many there were.
fn history_lines(folder: &Path, wanted: &Wanted, mut out: impl Write) -> std::io::Result<u64> {
    let mut count = 0;
    history::read(folder, wanted, |event| {
        count += 1;
        out.write_all((event.line() + "\n").as_bytes())
    })?;
    out.flush()?;
    Ok(count)
}

/// Why nothing is shown, and what there may be instead.
fn nothing_kept(folder: &Path, wanted: &Wanted) -> std::io::Result<String> {
    let Some(object) = &wanted.object else {
        return Ok("no event is kept that fits what was asked for".to_owned());
    };
    let anything = Wanted { object: Some(object.clone()), most: Some(1), ..Wanted::default() };
    let mut known = false;
    history::read(folder, &anything, |_| {
        known = true;
        Ok(())
    })?;
    if known {
        return Ok(format!("no event of `{object}` is kept that fits the other options"));
    }
    let names = history::objects(folder)?;
    let near = config::nearest(object, names.iter().map(String::as_str));
    let help = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Ok(format!("no event of `{object}` is kept in {}{help}", folder.display()))
}

/// A time in UTC, of today if it has no date, or a duration back from now, as
/// Unix time.
fn time(text: &str) -> Result<Duration, String> {
    let now = Clock::start().now();
    let today = moment::utc(now.elapsed().as_secs());
    let today = today.split('T').next().unwrap_or_default();
    if let Some(time) =
        moment::parse_utc(text).or_else(|| moment::parse_utc(&format!("{today}T{}", text.trim())))
    {
        return Ok(time);
    }
    let back = config::duration(text)
        .ok_or("it takes a duration such as `2h`, or a time in UTC such as `2026-11-30T04:50` or `04:50`")?;
    Ok(now.before(back).elapsed())
}

fn kind(text: &str) -> Result<Kind, String> {
    let known = || Kind::ALL.into_iter();
    known().find(|kind| kind.as_str() == text).ok_or_else(|| {
        let words: Vec<_> = known().map(Kind::as_str).collect();
        format!("it takes one of: {}", words.join(", "))
    })
}

fn simulate(wanted: &Rehearsal) -> ExitCode {
    match rehearse(wanted) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Refusal::Files(report)) => {
            let paths = std::slice::from_ref(&wanted.scenario);
            eprint!("{}{}", report.text(colours(&std::io::stderr())), error_count(&report, paths));
            ExitCode::FAILURE
        }
        Err(Refusal::Run(why)) => fail(why),
        Err(Refusal::Write(path, error)) => fail(format!("{}: {error}", path.display())),
    }
}

/// Whether text that goes there may be coloured (no-color.org).
fn colours(to: &impl IsTerminal) -> bool {
    to.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// What a good configuration holds, in one line.
fn summary(loaded: &Loaded) -> String {
    let model = &loaded.model;
    let balancers: usize = model.zones.iter().map(|zone| zone.load_balancers.len()).sum();
    let endpoints: usize = model.pools.iter().map(|pool| pool.endpoints.len() + pool.hosts.len()).sum();
    let vantages = match model.vantages.len() {
        1 => String::new(),
        number => format!("{}, ", count(number, "vantage")),
    };
    let warnings = match loaded.lints.len() {
        0 => String::new(),
        number => format!("\n{}, ", count(number, "warning")),
    };
    format!(
        "{warnings}no errors: {}, {}, {}, {}, {vantages}{} in {}\n",
        count(model.zones.len(), "zone"),
        count(balancers, "load balancer"),
        count(model.pools.len(), "pool"),
        count(endpoints, "endpoint"),
        count(model.monitors.len(), "monitor"),
        count(loaded.files.len(), "file"),
    )
}

/// A number of things.
fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// How many errors a refused configuration has, in one line.
fn error_count(report: &Report, paths: &[PathBuf]) -> String {
    let errors = report.problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    format!("\n{} in {}\n", count(errors, "error"), paths.join(", "))
}

/// Runs a command to its end; tells its error.
fn run<E: Display>(runtime: Runtime, command: impl Future<Output = Result<(), E>>) -> ExitCode {
    let outcome = runtime.block_on(command);
    runtime.shutdown_background(); // a file that cannot be read to its end must not hold up the end
    telemetry::finish_log();
    outcome.map_or_else(fail, |()| ExitCode::SUCCESS)
}

/// Tells what ends the program.
fn fail(error: impl Display) -> ExitCode {
    eprintln!("hale: {error}");
    ExitCode::FAILURE
}
