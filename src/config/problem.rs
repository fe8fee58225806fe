//! What is wrong in the files, said so that it can be put right.
//!
//! Every kind of problem is one row of [`ProblemKind`]: a stable id, its
//! values, its words. A [`Report`] shows problems as text with the source
//! line and a caret, or as JSON.
//!
//! Knows nothing of YAML and of the model.

use std::fmt::{self, Write as _};
use std::path::PathBuf;

use annotate_snippets::renderer::DEFAULT_TERM_WIDTH;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// One thing wrong in the files, or worth a second look.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub severity: Severity,
    pub file: PathBuf,
    /// From 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// In characters, from 1; 0 when the file as a whole is meant.
    pub column: usize,
    /// The path of keys, e.g. `pools.eu.endpoints[2].address`.
    pub place: String,
    pub kind: ProblemKind,
    /// What to write instead.
    pub help: Option<String>,
    /// A second place that has part in it.
    pub also: Option<Also>,
    pub excerpt: Option<Excerpt>,
}

/// Whether the configuration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    /// A lint: the configuration is taken.
    Warning,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// The second place of a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Also {
    pub file: PathBuf,
    pub line: usize,
    pub column: usize,
    /// What is there, such as `first defined here`.
    pub label: &'static str,
    pub excerpt: Option<Excerpt>,
}

/// A source line, or the part of a very long one, and what is meant in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    pub text: String,
    /// Octets of `text`.
    pub span: std::ops::Range<usize>,
}

/// Everything wrong in one set of files, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub problems: Vec<Problem>,
    /// Files that the configuration names, which may lie anywhere: with another
    /// one, things may be in order.
    pub named_files: Vec<Look>,
}

/// A file, and what could be seen of it just before it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    pub path: PathBuf,
    pub seen: u64,
}

macro_rules! kinds {
    (
        $( $id:ident: $name:ident { $($field:ident: $type:ty),* } => $text:literal; )*
        @lints
        $( $lint:ident: $lint_name:ident { $($lint_field:ident: $lint_type:ty),* } => $lint_text:literal; )*
    ) => {
        kinds! {
            $( $id: $name { $($field: $type),* } => $text; )*
            $( $lint: $lint_name { $($lint_field: $lint_type),* } => $lint_text; )*
        }

        impl ProblemKind {
            /// The ids of lints.
            pub const LINTS: &[&str] = &[$(stringify!($lint)),*];
        }
    };
    ($( $id:ident: $name:ident { $($field:ident: $type:ty),* } => $text:literal; )*) => {
        /// What is wrong; `Display` says it in plain words.
        #[derive(Clone, Debug, PartialEq)]
        pub enum ProblemKind { $( $name { $($field: $type),* } ),* }

        impl ProblemKind {
            /// The ids of all kinds.
            pub const IDS: &[&str] = &[$(stringify!($id)),*];

            /// A stable word for programs and for `warning[…]`.
            pub fn id(&self) -> &'static str {
                match self { $( ProblemKind::$name { .. } => stringify!($id) ),* }
            }
        }

        impl fmt::Display for ProblemKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $( ProblemKind::$name { $($field),* } => write!(f, $text) ),* }
            }
        }
    };
}

kinds! {
    // Files.
    unreadable: Unreadable { why: String } => "cannot be read: {why}";
    no_yaml_files: NoYamlFiles {} => "no YAML file in this directory";
    too_large: TooLarge { octets: u64, limit: u64 } => "the file has {octets} octets; at most {limit} are read";
    not_utf8: NotUtf8 { why: String } => "not UTF-8: {why}";
    control_character: ControlCharacter { code: String } => "the control character {code} stands here";
    empty_file: EmptyFile {} => "the file is empty";
    no_zone: NoZone {} => "no zone is configured";
    // YAML.
    syntax: Syntax { what: String } => "not YAML: {what}";
    tab_indentation: TabIndentation {} => "a tab indents this line; YAML indents with spaces";
    second_document: SecondDocument {} => "a second YAML document begins here";
    too_deep: TooDeep { limit: usize } => "nested more than {limit} levels deep";
    alias_bomb: AliasBomb { limit: usize } => "the aliases unfold into more than {limit} values";
    tag: Tag { tag: String } => "the YAML tag `{tag}` has no meaning here";
    merge_key: MergeKey {} => "the merge key `<<` is not part of YAML 1.2";
    odd_key: OddKey { found: String } => "{found} is not a key: keys are texts";
    duplicate_key: DuplicateKey { key: String } => "the key `{key}` stands twice";
    // Shape.
    wrong_shape: WrongShape { found: String, expected: String } => "{found} stands where {expected} is due";
    null_value: NullValue { key: String } => "`{key}` has no value";
    unknown_key: UnknownKey { of: String, key: String } => "{of} has no key `{key}`";
    later_key: LaterKey { key: String } => "`{key}` is not supported by this version";
    proxied_key: ProxiedKey { key: String } => "`{key}` is a feature of proxied load balancing; Hale answers DNS only";
    missing_key: MissingKey { of: String, key: String } => "{of} needs `{key}`";
    both_keys: BothKeys { first: String, second: String } => "`{first}` and `{second}` exclude each other";
    no_zone_beside: NoZoneBeside { key: String } => "`{key}` belongs to a zone, but no `zone: NAME` stands beside it";
    other_name: OtherName { key: String, name: String } => "`name: {name}` stands under the key `{key}`";
    defined_twice: DefinedTwice { what: String, name: String } => "the {what} `{name}` is defined twice";
    // Single values.
    unquoted: Unquoted { value: String } => "`{value}` is a boolean, not a text";
    not_boolean: NotBoolean { value: String } => "{value} is neither `true` nor `false`";
    not_number: NotNumber { value: String } => "{value} is not a whole number";
    out_of_range: OutOfRange { value: String, range: String } => "{value} is out of range: {range}";
    not_duration: NotDuration { value: String } => "`{value}` is not a duration";
    not_whole_seconds: NotWholeSeconds { value: String } => "`{value}` is not a whole number of seconds";
    unknown_value: UnknownValue { value: String, expected: String } => "`{value}` is not known here; known: {expected}";
    later_value: LaterValue { key: String, value: String } => "`{key}: {value}` is not supported by this version";
    proxied_value: ProxiedValue { key: String, value: String } => "`{key}: {value}` is a feature of proxied load balancing; Hale answers DNS only";
    empty_list: EmptyList { key: String } => "`{key}` is empty";
    listed_twice: ListedTwice { value: String } => "{value} is listed twice";
    // The server.
    not_listen: NotListen { value: String } => "`{value}` is not an address with a port";
    listen_overlap: ListenOverlap { one: String, other: String } => "`{one}` and `{other}` would get the same queries";
    certificate_file: CertificateFile { path: String, why: String } => "`{path}` cannot be used by this server: {why}";
    other_private_key: OtherPrivateKey {} => "`private_key` is not the key of `certificate`";
    not_network: NotNetwork { value: String } => "`{value}` is not a network";
    // Monitors.
    not_for_type: NotForType { key: String, check: String } => "`{key}` means nothing to a monitor of type {check}";
    not_method: NotMethod { value: String } => "`{value}` is not an HTTP method";
    not_path: NotPath { value: String, why: String } => "`{value}` is not a request path: {why}";
    not_header: NotHeader { name: String, why: String } => "the header `{name}` cannot be sent: {why}";
    not_codes: NotCodes { value: String } => "`{value}` is not a status code";
    body_of_head: BodyOfHead { key: String } => "`{key}` can never match: the answer to HEAD has no body";
    body_above_limit: BodyAboveLimit { octets: usize, limit: usize } => "`expected_body` has {octets} octets, but `body_limit` lets {limit} be searched";
    not_pattern: NotPattern { value: String, why: String } => "`{value}` is not a regular expression: {why}";
    not_pointer: NotPointer { value: String, why: String } => "`{value}` is not a JSON pointer: {why}";
    not_header_name: NotHeaderName { name: String } => "`{name}` is not the name of a header";
    not_url: NotUrl { value: String, why: String } => "`{value}` is not where Prometheus can be asked: {why}";
    not_decimal: NotDecimal { value: String } => "{value} is not a number";
    not_size: NotSize { value: String } => "`{value}` is not a size in octets";
    not_server_name: NotServerName { value: String } => "`{value}` is not a host name";
    ca_file: CaFile { path: String, why: String } => "`{path}` {why}";
    own_words: OwnWords { value: String, why: String } => "`{value}` can't be told to clients: {why}";
    hint_follows_nothing: HintFollowsNothing { owner: String, why: String } => "the hints at {owner} follow no load balancer: {why}";
    secret_file: SecretFile { path: String, why: String } => "`{path}` {why}";
    without_tls: WithoutTls { key: String } => "`{key}` means nothing without TLS";
    not_hello: NotHello { value: String } => "`{value}` is neither a host name nor an address literal";
    not_query_type: NotQueryType { value: String } => "`{value}` is not a type of records";
    not_rcode: NotRcode { value: String } => "`{value}` is not a response code of DNS";
    exec_not_allowed: ExecNotAllowed {} => "a monitor of type exec runs a program, which this server does not allow";
    client_file: ClientFile { path: String, why: String } => "`{path}` cannot be shown to servers: {why}";
    other_key: OtherKey {} => "`client_key` is not the key of `client_certificate`";
    several_sources: SeveralSources {} => "`source` has two addresses of one family";
    no_port: NoPort { pool: String, monitor: String, check: String } => "the monitor `{monitor}` of pool `{pool}` is of type {check}, and neither it nor this endpoint has a `port`";
    no_such_group: NoSuchGroup { name: String } => "there is no monitor group `{name}`";
    // Vantages.
    not_region: NotRegion { value: String } => "`{value}` is not a region";
    no_such_region: NoSuchRegion { name: String } => "no vantage is in the region `{name}`";
    not_namespace: NotNamespace { value: String, why: String } => "`{value}` is not a network namespace: {why}";
    several_local: SeveralLocal {} => "two vantages cannot both be this server's own";
    not_health_sources: NotHealthSources { value: String } => "`health_sources: {value}` is no order of sources";
    source_needs: SourceNeeds { source: String, needs: String } => "the health source `{source}` needs {needs}";
    // Time.
    not_time: NotTime { value: String } => "`{value}` is not a time";
    not_weekly: NotWeekly { value: String } => "`{value}` is not a day of the week and a time";
    window_backwards: WindowBackwards {} => "the window ends before it begins";
    // Pools.
    not_simple_name: NotSimpleName { what: String, name: String } => "`{name}` cannot name a {what}: its letters are a-z, A-Z, 0-9, `-` and `_`";
    not_endpoint_name: NotEndpointName { name: String } => "`{name}` cannot name an endpoint: it is 1 to 128 octets without spaces and `/`";
    no_such_monitor: NoSuchMonitor { name: String } => "there is no monitor `{name}`";
    no_such_pool: NoSuchPool { name: String } => "there is no pool `{name}`";
    no_such_endpoint: NoSuchEndpoint { pool: String, name: String } => "the pool `{pool}` has no endpoint `{name}`";
    needs_itself: NeedsItself { of: String, value: String } => "{of} cannot depend on `{value}`: one is the other, or a part of it";
    needs_circle: NeedsCircle { path: String } => "these depend on each other in a circle: {path}";
    threshold_above_size: ThresholdAboveSize { key: String, threshold: u64, size: String } => "`{key}` is {threshold}, but the pool has {size}";
    not_address: NotAddress { value: String, why: String } => "`{value}` is not an address: {why}";
    unfit_address: UnfitAddress { value: String, why: String } => "`{value}` cannot be an endpoint: {why}";
    not_host_name: NotHostName { value: String, why: String } => "`{value}` cannot be looked up as a host name: {why}";
    own_balancer: OwnBalancer { value: String, owner: String } => "`{value}` is answered by the load balancer {owner}: the endpoint would be what it is to be an endpoint of";
    not_weight: NotWeight { value: String } => "`{value}` is not a weight";
    // Zones.
    not_name: NotName { value: String, why: String } => "`{value}`: {why}";
    address_as_name: AddressAsName { value: String } => "`{value}` is an address; a domain name is due";
    outside_zone: OutsideZone { name: String, zone: String } => "`{name}` lies outside the zone {zone}";
    no_apex_ns: NoApexNs { zone: String } => "the zone {zone} has no NS records at its apex";
    mailbox: Mailbox { value: String } => "`{value}`: a mailbox is written as a domain name";
    record_type: RecordType { rtype: String } => "records of type `{rtype}` are not supported by this version";
    provider_type: ProviderType { rtype: String } => "`{rtype}` is not a DNS record type, some DNS providers act on it";
    not_rdata: NotRdata { value: String, rtype: String, why: String } => "`{value}` in a record of type {rtype}: {why}";
    cannot_follow: CannotFollow { rtype: String } => "a value of type {rtype} can't depend on anything: it is always answered";
    several_values: SeveralValues { rtype: String, count: usize } => "a {rtype} has one value, these are {count}";
    rrset_too_large: RrsetTooLarge { owner: String, rtype: String, octets: usize, limit: usize } => "the {rtype} records of {owner} take {octets} octets of one answer, and at most {limit} fit";
    same_type_twice: SameTypeTwice { owner: String, rtype: String } => "{owner} has its {rtype} records in two places";
    cname_at_apex: CnameAtApex { zone: String } => "a CNAME cannot stand at the apex of a zone ({zone}): SOA and NS are there";
    cname_beside: CnameBeside { owner: String, rtype: String } => "{owner} has a CNAME and {rtype} records; a CNAME stands alone";
    below_cut: BelowCut { what: String, owner: String, cut: String } => "{what} at {owner} is never answered: {cut} is delegated by its NS records";
    below_dname: BelowDname { what: String, owner: String, dname: String } => "{what} at {owner} is never answered: the DNAME at {dname} leads everything below it elsewhere";
    wildcard_cut: WildcardCut { rtype: String, owner: String } => "{rtype} records at the wildcard {owner} have no meaning";
    ds_without_cut: DsWithoutCut { owner: String } => "the DS records at {owner} stand at no zone cut";
    in_child_zone: InChildZone { what: String, owner: String, zone: String } => "{what} at {owner} is never answered: {zone} is a zone of its own";
    no_fallback: NoFallback { name: String } => "the load balancer `{name}` has no `fallback_pool`";
    slo_missed: SloMissed { limit: String, worst: String, parts: String } => "a failure may take {worst} to reach all clients, and the promise is {limit}: {parts}";
    // Files of zones.
    zone_file: ZoneFile { path: String, why: String } => "the zone file `{path}` cannot be read: {why}";
    format_alone: FormatAlone {} => "`format` says how a `zone_file` is written, and there is none";
    not_closed: NotClosed { what: String } => "{what} is never closed";
    not_master: NotMaster { what: String } => "not a master file: {what}";
    no_owner: NoOwner {} => "the record has no owner name, and none stands before it";
    not_ttl: NotTtl { value: String, why: String } => "`{value}` is not a TTL: {why}";
    other_class: OtherClass { value: String } => "`{value}` is another class than IN, which is all that is served";
    not_record_type: NotRecordType { value: String } => "`{value}` is not a record type";
    query_type: QueryType { value: String } => "`{value}` is not a type that a zone holds";
    not_directive: NotDirective { value: String } => "`{value}` is not a directive";
    include: Include { why: String } => "the file is not included: {why}";
    generate: Generate { why: String } => "`$GENERATE`: {why}";
    no_soa: NoSoa { zone: String } => "the zone file has no SOA record, and the zone {zone} no `soa`";
    second_soa: SecondSoa {} => "a second SOA record, and other than the first";
    soa_below_apex: SoaBelowApex { owner: String } => "an SOA record at {owner}, which is not the apex";
    too_many_problems: TooManyProblems { limit: usize } => "after {limit} problems the zone file is not read further";
    // Alerts.
    not_for_alert: NotForAlert { key: String, kind: String } => "`{key}` means nothing to alerts of type {kind}";
    not_receiver: NotReceiver {} => "this is not an address of HTTP";
    not_secret: NotSecret {} => "a secret consists of visible ASCII characters";
    no_such_load_balancer: NoSuchLoadBalancer { name: String } => "there is no load balancer `{name}`";
    // Scenarios.
    not_manner: NotManner { value: String } => "`{value}` is nothing that an endpoint does";
    not_subject: NotSubject { value: String } => "`{value}` does not say which endpoints are meant";
    not_want: NotWant { value: String } => "`{value}` is nothing that can be looked at";
    no_such_vantage: NoSuchVantage { name: String } => "there is no vantage `{name}`";
    no_such_host: NoSuchHost { name: String } => "no endpoint is given by the host name `{name}`";
    host_unsaid: HostUnsaid { name: String } => "nothing says where the host name `{name}` leads";
    steps_backwards: StepsBackwards { at: String, before: String } => "this step is at {at}, and the one before at {before}";
    empty_step: EmptyStep {} => "nothing happens in this step";
    // Lints.
    @lints
    certificate_time: CertificateTime { path: String, why: String } => "the certificate in `{path}` {why}";
    long_ttl: LongTtl { ttl: u32 } => "answers are kept for {ttl} s, so clients follow a failure that late";
    records_hidden: RecordsHidden { owner: String, rtype: String } => "the load balancer hides the {rtype} records of {owner}";
    zone_repeated: ZoneRepeated { name: String, owner: String } => "`{name}` is relative and becomes {owner}";
    probes_late: ProbesLate { targets: usize, probes: u64, limit: u32 } => "when no endpoint answers, {targets} tests of endpoints need {probes} probes at once, and `max_probes` is {limit}: probes will be late";
    probe_longer: ProbeLonger { worst: String, interval: String } => "one probe may last {worst}, longer than the interval of {interval}: then the next one is left out";
    all_weights_zero: AllWeightsZero { of: String } => "every weight of {of} is 0, so steering never chooses it";
    unused_weight: UnusedWeight { pool: String } => "the pool `{pool}` is not among `default_pools`, so its weight is unused";
    no_ns_address: NoNsAddress { target: String } => "the name server {target} lies in this zone and has no address";
    no_such_target: NoSuchTarget { rtype: String, target: String } => "the {rtype} record points to {target}, which lies in this zone and doesn't exist";
    no_target_address: NoTargetAddress { rtype: String, target: String } => "the {rtype} record points to {target}, which lies in this zone and has no address";
    unused_monitor: UnusedMonitor { name: String } => "no pool uses the monitor `{name}`";
    unused_monitor_group: UnusedMonitorGroup { name: String } => "no pool uses the monitor group `{name}`";
    unused_vantage: UnusedVantage { name: String } => "no pool is probed from the vantage `{name}`";
    remote_vantage: RemoteVantage { name: String } => "nothing can report for the vantage `{name}`: reports from other machines need a later version, and until then it is silent";
    no_voter: NoVoter { name: String } => "no member of the monitor group `{name}` has a vote, so its pools count as not monitored";
    canaries_silent: CanariesSilent { pool: String, why: String } => "the pool `{pool}` tells nothing as canaries: {why}";
    never_ejects: NeverEjects {} => "`consecutive_failures` and `failure_percentage` are both off, so nothing is ever ejected";
    window_over: WindowOver { until: String } => "the window was over at {until}";
    own_zone: OwnZone { value: String, zone: String } => "`{value}` lies in the zone {zone}, which this server answers itself";
    unused_pool: UnusedPool { name: String } => "no load balancer uses the pool `{name}`";
    weights_without_random: WeightsWithoutRandom { name: String } => "the load balancer `{name}` is not steered at random, so `random_steering` is unused";
    threshold_unreachable: ThresholdUnreachable { pool: String, why: String } => "the pool `{pool}` is never available: {why}";
    star_inside_name: StarInsideName { name: String } => "the `*` in `{name}` is no wildcard: only a whole first label is one";
    single_failure: SingleFailure { name: String } => "a single failed probe of `{name}` takes an endpoint out: one lost packet is enough";
    ttl_above_detection: TtlAboveDetection { ttl: String, detection: String } => "answers are kept for {ttl}, longer than a failure takes to be seen ({detection} at most): most of the time until clients have moved is the TTL";
    tcp_on_web_port: TcpOnWebPort { name: String, port: u16 } => "the monitor `{name}` opens a TCP connection to port {port} and sends nothing: an open port proves nothing of TLS and of answers";
    no_host: NoHost { name: String, pool: String } => "the monitor `{name}` asks the endpoints of pool `{pool}` by their addresses: no Host is set, neither there nor on the endpoints";
    redirect_expected: RedirectExpected { name: String, code: u16 } => "the monitor `{name}` takes the redirect {code} at port 80 for an answer: it tests what redirects, not what clients are sent to";
    one_network: OneNetwork { pool: String, network: String } => "all endpoints of the pool `{pool}` are in {network}, and `default_pools` has no other pool: one failure of that network takes all of them";
    same_addresses: SameAddresses { one: String, other: String } => "the pools `{one}` and `{other}` have the same addresses and monitors: when one fails, so does the other";
    short_start_period: ShortStartPeriod { period: String, run: String } => "the start period of {period} is over before a run of passes is, which takes {run}: then a single outcome decides";
    quicker_than_start: QuickerThanStart { name: String, pool: String, times: u32, start_up: String } => "endpoints of pool `{pool}` came back by themselves {times} times, typically after {start_up}; the monitor `{name}` takes them out sooner than that";
    unknown_lint: UnknownLint { id: String } => "there is no lint `{id}` to allow";
    string_over_lines: StringOverLines { lines: u32 } => "the string goes on over {lines} lines";
    signatures_left_out: SignaturesLeftOut { count: usize, types: String } => "{types} records are left out, {count} in all: what another server signed does not fit the answers";
    ttls_differ: TtlsDiffer { owner: String, rtype: String } => "the {rtype} records of {owner} have different TTLs; the smallest is taken for all";
    duplicate_record: DuplicateRecord { owner: String, rtype: String } => "this {rtype} record of {owner} stands there already";
    always_answered: AlwaysAnswered { rtype: String, why: String } => "this {rtype} is always answered, whatever it depends on: {why}";
    never_fails: NeverFails { needed: String, pool: String } => "`{needed}` never fails, as nothing tests the pool `{pool}`: what depends on it is left out only when somebody takes it out";
    alias_target: AliasTarget { target: String, rtype: String } => "the {rtype} record points to {target}, which is a CNAME";
}

impl ProblemKind {
    /// Whether it is of the files that encrypted transports show.
    pub fn is_of_server_certificate(&self) -> bool {
        matches!(self, ProblemKind::CertificateFile { .. } | ProblemKind::OtherPrivateKey {})
    }
}

impl Report {
    /// Whether the configuration is refused.
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// Each problem as `file:line:column: error: …`, its source line with a
    /// caret, and what to write instead.
    pub fn text(&self, colour: bool) -> String {
        let mut out = String::new();
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                out.push('\n');
            }
            problem.write(colour, &mut out).expect("writing to a String does not fail");
        }
        out
    }

    /// Why the configuration is refused, for a log: the first so many errors, and
    /// how much else there is.
    pub fn refusal(&self, most: usize) -> String {
        let (errors, warnings): (Vec<_>, Vec<_>) =
            self.problems.iter().cloned().partition(|problem| problem.severity == Severity::Error);
        let more = errors.len().saturating_sub(most);
        let shown = Report { problems: errors.into_iter().take(most).collect(), ..Report::default() };
        let rest: Vec<String> = [(more, "more error"), (warnings.len(), "warning")]
            .into_iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!("{number} {what}{}", if number == 1 { "" } else { "s" }))
            .collect();
        match rest.is_empty() {
            true => shown.text(false),
            false => format!("{}… and {}; `hale check` shows all", shown.text(false), rest.join(" and ")),
        }
    }

    /// An array of objects for programs.
    pub fn json(&self) -> serde_json::Value {
        self.problems.iter().map(Problem::json).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(false))
    }
}

impl std::error::Error for Report {}

impl Problem {
    /// A line unless it holds a secret: reports end up in logs. The address of
    /// a receiver of alerts is one, too.
    fn showable<'e>(&self, excerpt: Option<&'e Excerpt>) -> Option<&'e Excerpt> {
        let of_alerts = self.place.starts_with("alerts");
        excerpt.filter(|excerpt| {
            let has = |key: &str| excerpt.text.contains(key);
            !(has("secret:") || has("routing_key:") || of_alerts && has("url:"))
        })
    }

    fn write(&self, colour: bool, out: &mut String) -> fmt::Result {
        let (bold, tint, off) = match (colour, self.severity) {
            (false, _) => ("", "", ""),
            (true, Severity::Error) => ("\x1b[1m", "\x1b[1;91m", "\x1b[0m"),
            (true, Severity::Warning) => ("\x1b[1m", "\x1b[1;33m", "\x1b[0m"),
        };
        write_place(&self.file, self.line, self.column, out)?;
        write!(out, ": {tint}{}", self.severity.word())?;
        if self.severity == Severity::Warning {
            write!(out, "[{}]", self.kind.id())?;
        }
        writeln!(out, "{off}: {bold}{}{off}", harmless(&self.kind.to_string()))?;
        write_excerpt(self.showable(self.excerpt.as_ref()), self.line, self.severity, colour, out)?;
        if let Some(also) = &self.also {
            write_place(&also.file, also.line, also.column, out)?;
            writeln!(out, ": note: {}", also.label)?;
            write_excerpt(self.showable(also.excerpt.as_ref()), also.line, Severity::Warning, colour, out)?;
        }
        if let Some(help) = &self.help {
            writeln!(out, "{bold}help{off}: {}", harmless(help))?;
        }
        Ok(())
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "file": self.file.to_string_lossy(),
            "line": (self.line > 0).then_some(self.line),
            "column": (self.column > 0).then_some(self.column),
            "place": self.place,
            "severity": self.severity.word(),
            "kind": self.kind.id(),
            "message": self.kind.to_string(),
            "help": self.help,
            "related": self.also.as_ref().map(|also| serde_json::json!({
                "file": also.file.to_string_lossy(),
                "line": also.line,
                "column": also.column,
                "message": also.label,
            })),
        })
    }
}

/// A text that cannot steer a terminal, whatever the files hold.
fn harmless(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "\u{fffd}")
}

fn without_colour(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or("", |(_, rest)| rest))
}

fn write_place(file: &std::path::Path, line: usize, column: usize, out: &mut String) -> fmt::Result {
    write!(out, "{}", file.display())?;
    if line > 0 {
        write!(out, ":{line}:{column}")?;
    }
    Ok(())
}

fn write_excerpt(
    excerpt: Option<&Excerpt>,
    line: usize,
    severity: Severity,
    colour: bool,
    out: &mut String,
) -> fmt::Result {
    let Some(excerpt) = excerpt else { return Ok(()) };
    let level = match severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let snippet = Snippet::source(excerpt.text.as_str())
        .line_start(line)
        .annotation(AnnotationKind::Primary.span(excerpt.span.clone()));
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let renderer = renderer.term_width(DEFAULT_TERM_WIDTH);
    let drawn = renderer.render(&[Group::with_level(level).element(snippet)]);
    for line in drawn.lines() {
        // The frame's empty lines carry nothing.
        if without_colour(line).trim_matches([' ', '|']).is_empty() {
            continue;
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
