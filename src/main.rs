//! The command line.

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use haledns::app::rehearse::{Refusal, Rehearsal, rehearse};
use haledns::app::{self, demo};
use haledns::config::{self, Loaded, LogFormat, Report, Severity};
use haledns::telemetry;
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

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve { paths, listen, log } => serve(paths, listen, log),
        Command::Check { paths, json, strict } => check(&paths, json, strict),
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
    }
}

fn serve(paths: Vec<PathBuf>, listen: Vec<SocketAddr>, log: Option<Log>) -> ExitCode {
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
    run(runtime, app::serve(loaded, listen, watch))
}

fn check(paths: &[PathBuf], json: bool, strict: bool) -> ExitCode {
    let (report, summary) = match config::load(paths) {
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
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // who reads no further, as `head` does, has seen enough
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return fail(error),
        _ => {}
    }
    match report.has_errors() || (strict && !report.problems.is_empty()) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
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
