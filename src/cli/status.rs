//! `hale status`: what is held, as people read it.

use super::Style;
use super::probe::evidence;
use super::served;
use super::table::{Cell, Colour, paint, table};
use crate::control::view::{
    Balancer, Endpoint, Files, Kept, Override, Pool, Records, Sighting, Status, Test, Unresolved,
};

/// Tables of everything; with `detail` everything about the only endpoint.
pub fn text(status: &Status, detail: bool, style: Style) -> String {
    if detail
        && let [pool] = &status.pools[..]
        && let [endpoint] = &pool.endpoints[..]
    {
        return endpoint_text(pool, endpoint, style);
    }
    let mut parts = Vec::new();
    parts.extend(files(&status.files, &status.at));
    if !status.load_balancers.is_empty() {
        parts.push(balancers(status, style));
    }
    if !status.records.is_empty() {
        parts.push(records(status, style));
    }
    if !status.pools.is_empty() {
        parts.push(pools(status, style));
        parts.push(endpoints(status, style));
    }
    let suspect = status.vantages.iter().filter_map(|vantage| {
        let since = vantage.suspect_since.as_ref()?;
        Some(format!(
            "vantage {} doubts itself since {since}: what fails there is held for a while\n",
            vantage.name
        ))
    });
    let suspect: String = suspect.collect();
    if !suspect.is_empty() {
        parts.push(suspect);
    }
    parts.push(counts(status));
    parts.join("\n")
}

fn balancers(status: &Status, style: Style) -> String {
    let row = |balancer: &Balancer| {
        let from = match (balancer.serving.is_empty(), balancer.at_fallback) {
            _ if !balancer.enabled => "ordinary records".to_owned(),
            (true, _) => "nothing, only the SOA".to_owned(),
            (false, true) => format!("{} (fallback)", balancer.serving.join(", ")),
            (false, false) => balancer.serving.join(", "),
        };
        let state = if balancer.enabled { &*balancer.state } else { "disabled" };
        vec![
            Cell::plain(&*balancer.name),
            Cell::new(state, colour_of(state)),
            Cell::plain(since(&status.at, &balancer.since)),
            Cell::plain(from),
            Cell::plain(balancer.why.join("; ")),
        ]
    };
    let rows: Vec<_> = status.load_balancers.iter().map(row).collect();
    table(&["LOAD BALANCER", "STATE", "SINCE", "ANSWERS FROM", "WHY"], &rows, style.colours, style.columns)
}

fn records(status: &Status, style: Style) -> String {
    let row = |records: &Records| {
        let all = records.answered == records.members && !records.at_fallback;
        let answered = format!("{} of {}", records.answered, records.members);
        let word = if records.at_fallback { "none has what it needs; " } else { "" };
        let colour = match (all, records.at_fallback) {
            (true, _) => Colour::Good,
            (false, false) => Colour::Doubtful,
            (false, true) => Colour::Bad,
        };
        vec![
            Cell::plain(format!("{} {}", records.name, records.rtype)),
            Cell::new(answered, colour),
            Cell::plain(format!("{word}{}", records.why.join("; "))),
        ]
    };
    let rows: Vec<_> = status.records.iter().map(row).collect();
    table(&["RECORDS", "ANSWERED", "WHY"], &rows, style.colours, style.columns)
}

fn pools(status: &Status, style: Style) -> String {
    let row = |pool: &Pool| {
        vec![
            Cell::plain(&*pool.name),
            Cell::new(&*pool.state, colour_of(&pool.state)),
            Cell::plain(format!("{} of {}", pool.healthy, pool.enabled)),
            Cell::plain(pool.health_threshold.to_string()),
            Cell::plain(since(&status.at, &pool.since)),
            Cell::plain(pool_why(pool)),
        ]
    };
    let rows: Vec<_> = status.pools.iter().map(row).collect();
    table(&["POOL", "STATE", "HEALTHY", "NEEDS", "SINCE", "WHY"], &rows, style.colours, style.columns)
}

fn pool_why(pool: &Pool) -> String {
    let mut why: Vec<String> = pool.overrides.iter().map(said).collect();
    if !pool.monitored {
        why.push("no monitor".to_owned());
    }
    why.join("; ")
}

fn endpoints(status: &Status, style: Style) -> String {
    let row = |pool: &Pool, endpoint: &Endpoint| {
        let seen = endpoint.vantages.iter().filter(|seen| seen.health.as_deref() == Some("healthy")).count();
        let seen = match endpoint.vantages.len() {
            0 | 1 => String::new(),
            _ if !pool.monitored => "-".to_owned(),
            all => format!("{seen} of {all}"),
        };
        vec![
            Cell::plain(format!("{}/{}", pool.name, endpoint.name)),
            Cell::plain(endpoint.address.to_string()),
            node(pool, endpoint),
            serves(endpoint),
            Cell::plain(seen),
            Cell::plain(since(&status.at, &endpoint.since)),
            Cell::plain(why(pool, endpoint)),
        ]
    };
    let mut rows = Vec::new();
    for pool in &status.pools {
        rows.extend(pool.endpoints.iter().map(|endpoint| row(pool, endpoint)));
        rows.extend(pool.unresolved.iter().map(|missing| unresolved_row(status, pool, missing)));
    }
    let head = ["ENDPOINT", "ADDRESS", "NODE", "SERVES", "SEEN", "SINCE", "WHY"];
    table(&head, &rows, style.colours, style.columns)
}

/// An endpoint without an address.
fn unresolved_row(status: &Status, pool: &Pool, missing: &Unresolved) -> Vec<Cell> {
    let error = missing.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    vec![
        Cell::plain(format!("{}/{}", pool.name, missing.name)),
        Cell::plain(&*missing.hostname),
        Cell::new(&*missing.state, colour_of(&missing.state)),
        Cell::new("no", Colour::Bad),
        Cell::plain(""),
        Cell::plain(missing.since.as_ref().map(|time| since(&status.at, time)).unwrap_or_default()),
        Cell::plain(format!("{}{error}", missing.reason)),
    ]
}

/// What is measured.
fn node(pool: &Pool, endpoint: &Endpoint) -> Cell {
    match pool.monitored {
        true => Cell::new(&*endpoint.health, colour_of(&endpoint.health)),
        false => Cell::plain("-"),
    }
}

/// What is made of it.
fn serves(endpoint: &Endpoint) -> Cell {
    match (endpoint.serves, endpoint.percent) {
        (true, 100) => Cell::new("yes", Colour::Good),
        (true, percent) => Cell::new(format!("yes, {percent} %"), Colour::Doubtful),
        // what NODE says already
        (false, _) if endpoint.fitness == endpoint.health => Cell::new("no", Colour::Bad),
        (false, _) => {
            let word = endpoint.fitness.replace('_', " ");
            let counts = ["unhealthy", "unknown"].contains(&&*word) || word.starts_with("forced");
            Cell::new(format!("no: {word}"), if counts { Colour::Bad } else { Colour::Doubtful })
        }
    }
}

fn why(pool: &Pool, endpoint: &Endpoint) -> String {
    let mut why: Vec<String> = endpoint.overrides.iter().map(said).collect();
    why.extend(of_pool(pool, endpoint));
    let bad = pool.monitored && endpoint.health != "healthy";
    why.extend(endpoint.reason.clone().filter(|_| bad));
    why.extend(endpoint.why.iter().cloned());
    let flags = [(endpoint.stale, "stale"), (endpoint.starting, "starting"), (endpoint.flapping, "flapping")];
    why.extend(flags.iter().filter(|(holds, _)| *holds).map(|(_, word)| (*word).to_owned()));
    why.extend(endpoint.degraded.as_ref().map(|degraded| format!("degraded: {degraded}")));
    if endpoint.tests.iter().any(|test| test.blocked) {
        why.push("can't be probed".to_owned());
    }
    why.join("; ")
}

/// What of its pool as a whole keeps it out.
fn of_pool(pool: &Pool, endpoint: &Endpoint) -> Option<String> {
    let action = match &*endpoint.fitness {
        "draining" | "drained" => "drain",
        "disabled" | "pool_disabled" => "disable",
        _ => return None,
    };
    let is_it = |over: &&Override| over.action == action;
    if endpoint.overrides.iter().any(|over| is_it(&over)) {
        return None;
    }
    pool.overrides.iter().find(is_it).map(|over| format!("the pool: {}", said(over)))
}

/// An override in a few words.
fn said(over: &Override) -> String {
    let weight = over.weight.map(|weight| format!(" {weight}")).unwrap_or_default();
    let mut text = format!("{}{weight} by {}", over.action, over.by);
    if !over.reason.is_empty() {
        text += &format!(": {}", over.reason);
    }
    if let Some(until) = &over.until {
        text += &format!(" (until {until})");
    }
    text
}

fn counts(status: &Status) -> String {
    let balancers = status.load_balancers.iter().filter(|balancer| balancer.enabled);
    let states = |states: Vec<&str>| {
        let count = |word: &str| states.iter().filter(|state| **state == word).count();
        let words = ["critical", "degraded", "unknown", "disabled", "healthy"];
        let told = words.iter().map(|word| (count(word), word)).filter(|(count, _)| *count > 0);
        told.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
    };
    let all: Vec<&Endpoint> = status.pools.iter().flat_map(|pool| &pool.endpoints).collect();
    let serving = all.iter().filter(|endpoint| endpoint.serves).count();
    let mut parts = Vec::new();
    if !status.load_balancers.is_empty() {
        let states = states(balancers.map(|balancer| &*balancer.state).collect());
        parts.push(format!("{}: {states}", count(status.load_balancers.len(), "load balancer")));
    }
    if !status.pools.is_empty() {
        let states = states(status.pools.iter().map(|pool| &*pool.state).collect());
        parts.push(format!("{}: {states}", count(status.pools.len(), "pool")));
        let unresolved: usize = status.pools.iter().map(|pool| pool.unresolved.len()).sum();
        let more = if unresolved > 0 { format!(", {unresolved} unresolved") } else { String::new() };
        parts.push(format!("{}: {serving} serving{more}", count(all.len() + unresolved, "endpoint")));
    }
    parts.extend(status.served.iter().flat_map(served::lines));
    parts.extend(kept(&status.kept));
    parts.join("\n") + "\n"
}

/// What of the files isn't in force, if there is something.
fn files(files: &Files, now: &str) -> Option<String> {
    const REFUSED: &str = "a start would be refused";
    let mut lines = Vec::new();
    if files.is_refused() {
        let start = if files.start_refused { REFUSED } else { "a start would take them" };
        let since = since(now, &files.since);
        lines.push(format!(
            "the files are refused since {since}, the last good configuration stays in force; {start}"
        ));
        lines.extend(files.first_error.iter().map(|error| format!("  {error}")));
        if files.errors > 1 {
            let more = count(files.errors - 1, "more error");
            lines.push(format!("  … and {more}; `hale check` shows all"));
        }
    }
    if let Some(why) = &files.certificate_kept {
        lines.push(format!("the certificate in force is an older one than the files name; {REFUSED}"));
        lines.push(format!("  {why}"));
    }
    let waits = files.later.iter();
    lines.extend(
        waits.map(|it| format!("`{}` from {} to {} waits for the next start", it.key, it.from, it.to)),
    );
    (!lines.is_empty()).then(|| lines.join("\n") + "\n")
}

/// What is missing of what is written and sent, a line each.
fn kept(kept: &Kept) -> Vec<String> {
    let since = |number: u64, what: &str| {
        (number > 0).then(|| format!("{} since the start", count(number as usize, what)))
    };
    let now = |what: &str, error: &Option<String>| {
        error.as_ref().map(|error| format!("{what} can't be written: {error}"))
    };
    let lines = [
        now("the journal", &kept.journal_error),
        since(kept.records_left_out, "record")
            .map(|text| format!("{text} had to wait for the journal to be written anew")),
        now("the history", &kept.history_error),
        since(kept.events_lost, "event").map(|text| format!("{text} missing in the history")),
        since(kept.notices_dropped, "notice").map(|text| format!("{text} dropped")),
    ];
    lines.into_iter().flatten().collect()
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn colour_of(word: &str) -> Colour {
    match word {
        "healthy" => Colour::Good,
        "degraded" | "unknown" | "disabled" => Colour::Doubtful,
        "unhealthy" | "critical" | "unresolved" => Colour::Bad,
        _ => Colour::Plain,
    }
}

/// A time as short as can be: of today the time, else the date with it. UTC.
fn since(now: &str, time: &str) -> String {
    let parts = |text: &str| text.split_once('T').map(|(date, time)| (date.to_owned(), time.to_owned()));
    match (parts(now), parts(time)) {
        (Some((today, _)), Some((date, time))) if today == date => time.trim_end_matches('Z').to_owned(),
        (_, Some((date, time))) => format!("{date} {}", time.get(..5).unwrap_or(&time)),
        _ => time.to_owned(),
    }
}

fn endpoint_text(pool: &Pool, endpoint: &Endpoint, style: Style) -> String {
    let shown = |cell: Cell| paint(&cell.text, cell.colour, style.colours);
    let mut rows: Vec<(&str, String)> = vec![("endpoint", format!("{}/{}", pool.name, endpoint.name))];
    let address = match &endpoint.hostname {
        Some(hostname) => format!("{} ({hostname})", endpoint.address),
        None => endpoint.address.to_string(),
    };
    rows.push(("address", address));
    let reason = endpoint.reason.as_ref().filter(|_| endpoint.health != "healthy");
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    rows.push(("node", shown(node(pool, endpoint)) + &reason));
    rows.push(("serves", shown(serves(endpoint)) + &format!(", since {}", endpoint.since)));
    if !endpoint.why.is_empty() {
        rows.push(("why", endpoint.why.join("; ")));
    }
    let configured = endpoint.configured_weight.map(|weight| format!(", configured {weight}"));
    rows.push(("weight", endpoint.weight.to_string() + &configured.unwrap_or_default()));
    let pool_state = paint(&pool.state, colour_of(&pool.state), style.colours);
    rows.push((
        "pool",
        format!(
            "{pool_state}: {} of {} healthy, needs {}",
            pool.healthy, pool.enabled, pool.health_threshold
        ),
    ));
    for over in pool.overrides.iter() {
        rows.push(("", format!("{} since {}", said(over), over.since)));
    }
    for over in &endpoint.overrides {
        let drained = over.drained_at.as_ref().map(|at| format!(", drained at {at}")).unwrap_or_default();
        rows.push(("override", format!("{} since {}{drained}", said(over), over.since)));
    }
    let flags = [(endpoint.stale, "stale"), (endpoint.starting, "starting"), (endpoint.flapping, "flapping")];
    let flags: Vec<String> = flags
        .iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, word)| (*word).to_owned())
        .chain(endpoint.degraded.as_ref().map(|degraded| format!("degraded: {degraded}")))
        .collect();
    if !flags.is_empty() {
        rows.push(("also", flags.join(", ")));
    }
    if endpoint.vantages.len() > 1 {
        let each = endpoint
            .vantages
            .iter()
            .map(|seen| format!("{} {}", seen.vantage, seen.health.as_deref().unwrap_or("silent")));
        rows.push(("vantages", each.collect::<Vec<_>>().join(", ")));
    }
    let mut text: String = rows.iter().map(|(name, value)| format!("{name:<9} {value}\n")).collect();
    for test in &endpoint.tests {
        text += &test_text(test, style);
    }
    text
}

fn test_text(test: &Test, style: Style) -> String {
    let health = paint(&test.health, colour_of(&test.health), style.colours);
    let mut text = format!("\nmonitor {} from {}: {health} since {}", test.monitor, test.vantage, test.since);
    if let (Some(passed), Some(length)) = (test.last_passed, test.in_a_row) {
        let word = if passed { "passed" } else { "failed" };
        text += &format!(", {word} {length} in a row");
    }
    if !test.votes {
        text += ", doesn't vote";
    }
    if test.blocked {
        text += ", can't be probed now";
    }
    text.push('\n');
    let sighting = |name: &str, seen: &Option<Sighting>| match seen {
        Some(seen) => format!("  {name}  {}  {}\n", seen.at, evidence(seen)),
        None => format!("  {name}  none since the start\n"),
    };
    text + &sighting("last good", &test.last_good) + &sighting("last bad ", &test.last_bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::view::{Kept, Later, Probes, Seen};

    fn endpoint(name: &str, health: &str, fitness: &str) -> Endpoint {
        Endpoint {
            name: name.into(),
            address: "192.0.2.10".parse().unwrap(),
            hostname: None,
            weight: 1.0,
            configured_weight: None,
            health: health.into(),
            serves: fitness == "up",
            fitness: fitness.into(),
            percent: 100,
            stale: false,
            starting: false,
            flapping: false,
            degraded: None,
            since: "2026-11-30T07:40:11Z".into(),
            why: Vec::new(),
            reason: (health == "unhealthy").then(|| "TCP connection failed".into()),
            overrides: Vec::new(),
            vantages: vec![Seen { vantage: "local".into(), health: Some(health.into()) }],
            tests: Vec::new(),
        }
    }

    fn sample() -> Status {
        let drain = Override {
            action: "drain".into(),
            weight: None,
            reason: "new kernel".into(),
            by: "alice".into(),
            since: "2026-11-30T07:40:11Z".into(),
            until: None,
            drained_at: Some("2026-11-30T07:40:41Z".into()),
        };
        let drained = Endpoint { overrides: vec![drain], ..endpoint("eu-3", "healthy", "draining") };
        let eu = Pool {
            name: "eu".into(),
            state: "degraded".into(),
            healthy: 1,
            enabled: 2,
            health_threshold: 1,
            monitored: true,
            since: "2026-11-29T07:40:11Z".into(),
            overrides: Vec::new(),
            endpoints: vec![
                endpoint("eu-1", "healthy", "up"),
                endpoint("eu-2", "unhealthy", "unhealthy"),
                drained,
            ],
            unresolved: Vec::new(),
        };
        let www = Balancer {
            name: "www.gslb.example.com.".into(),
            enabled: true,
            state: "healthy".into(),
            serving: vec!["eu".into()],
            at_fallback: false,
            default_pools: vec!["eu".into()],
            since: "2026-11-30T07:40:12Z".into(),
            why: Vec::new(),
        };
        Status {
            at: "2026-11-30T08:00:00Z".into(),
            version: "0".into(),
            pid: 1,
            load_balancers: vec![www],
            records: Vec::new(),
            pools: vec![eu],
            vantages: Vec::new(),
            probes: Probes { started: 1, late: 0, skipped: 0 },
            kept: Kept::default(),
            served: None,
            files: Files::default(),
        }
    }

    #[test]
    fn what_of_the_files_is_not_in_force_comes_first() {
        let mut status = sample();
        status.files = Files {
            state: "refused".into(),
            since: "2026-11-30T07:59:00Z".into(),
            errors: 3,
            first_error: Some("gslb/a.yaml:3:9: error: unknown key".into()),
            certificate_kept: None,
            later: vec![Later { key: "udp_workers".into(), from: "one a core".into(), to: "3".into() }],
            start_refused: true,
        };
        let refused = "\
the files are refused since 07:59:00, the last good configuration stays in force; a start would be refused
  gslb/a.yaml:3:9: error: unknown key
  … and 2 more errors; `hale check` shows all
`udp_workers` from one a core to 3 waits for the next start

LOAD BALANCER";
        let shown = text(&status, false, Style::default());
        assert!(shown.starts_with(refused), "{shown}");
        status.files = Files {
            certificate_kept: Some("gslb/a.yaml:1:9: error: no such file".into()),
            start_refused: true,
            ..Files::default()
        };
        let kept = "\
the certificate in force is an older one than the files name; a start would be refused
  gslb/a.yaml:1:9: error: no such file

LOAD BALANCER";
        let shown = text(&status, false, Style::default());
        assert!(shown.starts_with(kept), "{shown}");
    }

    #[test]
    fn health_and_fitness_are_two_columns() {
        let text = text(&sample(), false, Style::default());
        assert_eq!(
            text,
            "\
LOAD BALANCER          STATE    SINCE     ANSWERS FROM
www.gslb.example.com.  healthy  07:40:12  eu

POOL  STATE     HEALTHY  NEEDS  SINCE
eu    degraded  1 of 2   1      2026-11-29 07:40

ENDPOINT  ADDRESS     NODE       SERVES        SINCE     WHY
eu/eu-1   192.0.2.10  healthy    yes           07:40:11
eu/eu-2   192.0.2.10  unhealthy  no            07:40:11  TCP connection failed
eu/eu-3   192.0.2.10  healthy    no: draining  07:40:11  drain by alice: new kernel

1 load balancer: 1 healthy
1 pool: 1 degraded
3 endpoints: 1 serving
"
        );
    }

    #[test]
    fn what_keeps_a_healthy_one_out_is_told() {
        let mut status = sample();
        status.load_balancers[0].why = vec!["us is critical".into()];
        let endpoints = &mut status.pools[0].endpoints;
        endpoints[0].why = vec!["maintenance: new roof (until 2026-11-30T09:00:00Z)".into()];
        let text = text(&status, false, Style::default());
        assert!(text.contains("eu            us is critical\n"), "{text}");
        assert!(text.contains("maintenance: new roof (until"), "{text}");
    }

    #[test]
    fn endpoints_of_a_pool_that_is_drained_say_so() {
        let mut status = sample();
        let pool = &mut status.pools[0];
        let drain = pool.endpoints[2].overrides[0].clone();
        pool.overrides = vec![Override { by: "bob".into(), reason: "new rack".into(), ..drain }];
        pool.endpoints[0].fitness = "drained".into();
        pool.endpoints[1].fitness = "drained".into();
        let text = text(&status, false, Style::default());
        let ends = |name: &str, why: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).expect("its line");
            assert!(line.ends_with(&format!("  {why}")), "{line}");
        };
        ends("eu/eu-1", "the pool: drain by bob: new rack");
        ends("eu/eu-2", "the pool: drain by bob: new rack; TCP connection failed");
        ends("eu/eu-3", "drain by alice: new kernel");
    }

    #[test]
    fn records_that_follow_health_have_a_table() {
        let mut status = sample();
        let mx = |name: &str, answered, at_fallback, why: &[&str]| Records {
            name: name.into(),
            rtype: "MX".into(),
            members: 2,
            answered,
            at_fallback,
            why: why.iter().map(|why| (*why).to_owned()).collect(),
        };
        status.records = vec![
            mx("example.com.", 2, false, &[]),
            mx("one.example.com.", 1, false, &["needs eu/eu-2, which is unhealthy"]),
            mx("none.example.com.", 2, true, &["needs us, which is critical"]),
        ];
        let text = text(&status, false, Style::default());
        let table = "\
RECORDS               ANSWERED  WHY
example.com. MX       2 of 2
one.example.com. MX   1 of 2    needs eu/eu-2, which is unhealthy
none.example.com. MX  2 of 2    none has what it needs; needs us, which is critical

POOL";
        assert!(text.contains(table), "{text}");
    }

    #[test]
    fn what_has_no_share_does_not_serve() {
        let mut status = sample();
        let endpoints = &mut status.pools[0].endpoints;
        endpoints[0].fitness = "weight_0".into();
        endpoints[0].serves = false;
        endpoints[0].why = vec!["weight 0 as configured".into()];
        let text = text(&status, false, Style::default());
        assert!(text.contains("no: weight 0  07:40:11  weight 0 as configured\n"), "{text}");
        assert!(text.contains("3 endpoints: 0 serving"), "{text}");
    }

    #[test]
    fn nothing_is_seen_of_what_nothing_watches() {
        let mut status = sample();
        status.pools[0].monitored = false;
        for endpoint in &mut status.pools[0].endpoints {
            let other = Seen { vantage: "other".into(), health: None };
            endpoint.vantages.push(other);
        }
        let text = text(&status, false, Style::default());
        assert!(text.contains("yes           -     07:40:11"), "{text}");
    }

    #[test]
    fn lines_fit_into_eighty_columns_on_a_terminal() {
        let style = Style { columns: Some(80), ..Style::default() };
        for line in text(&sample(), false, style).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
