//! Zones that other programs keep: what they answer there, they answer here.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use haledns::master::{self, Include, Refused};
use haledns::model::Name;
use haledns::rdata;

use crate::support::folder::Folder;
use crate::support::hale::Hale;
use crate::support::nsd::Nsd;
use crate::support::programs::{need, need_python};

/// A reply as `dig` prints it, data in octets.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    status: String,
    flags: String,
    answer: BTreeSet<String>,
    authority: BTreeSet<String>,
}

/// OctoDNS reads a zone with every type that it knows and dumps it; Hale takes
/// the dump as it is, and NSD what OctoDNS makes a master file of.
#[test]
fn what_octodns_dumps_is_answered_as_nsd_answers_it() {
    let Some(python) = need_python("octodns.manager") else { return };
    if !(need("nsd") && need("dig")) {
        return;
    }
    let folder = Folder::new();
    let dumped = Command::new(&python)
        .args(["-W", "ignore", "tests/octodns/dump.py", "tests/octodns"])
        .arg(folder.path())
        .arg("example.com.")
        .arg(folder.join("example.com.zone"))
        .output()
        .unwrap();
    assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
    folder.write(
        "zone.yaml",
        "zone: example.com\nzone_file: example.com.yaml\n\
         soa: { mname: ns1, rname: hostmaster, serial: 1, refresh: 1h, retry: 10m, expire: 7d, minimum: 30s }\n",
    );
    // of the folder of the dump, `example.com.yaml` is no configuration
    let hale = Hale::serve(folder.path());
    let nsd = Nsd::serve("example.com", &folder.join("example.com.zone"));
    same_answers(&hale, &nsd, &folder.join("example.com.zone"));
}

/// What a master file may say, said in one; NSD misses quotes around the name of
/// a file, a relative `$ORIGIN` and a last line without its end.
const SYNTAX: &str = r#"; a comment, and an empty line

$TTL 1h ; for what says none
$ORIGIN example.com.
@   SOA  ns1 hostmaster (
        2026113001 ; serial
        1h 10m     ; refresh, retry
        1w 30 )    ; expire, minimum
    NS   ns1
	IN	NS	ns2.example.net.
ns1 A    192.0.2.53
    AAAA 2001:db8::53
order1 60 IN A 192.0.2.1
order2 IN 60 A 192.0.2.1
order3 1M30S CLASS1 TYPE1 192.0.2.1
order4 in a 192.0.2.1
absolute.example.com. A 192.0.2.2
"quoted" A 192.0.2.3
a\.dot A 192.0.2.4
octet\032\200 A 192.0.2.5
\@ A 192.0.2.6
semi\;colon A 192.0.2.7
dollar\$ A 192.0.2.8
1h A 192.0.2.9
strings TXT plain "in quotes" "" a\;b "a;b ( c" \065\066C "\"\\"
lines TXT "over
two lines"
touching TXT "a""b"c"d"
around ( TXT ; a comment ( within
  "a" ) ; and after
several TXT ("1" ; (
  "2"
  "3")
mail MX 10 mail.example.net.
     MX 20 @
     MX 30 mail
generic TYPE65280 \# 4 0a000001
empty TYPE65281 \# 0
octets A \# 4 ( 0a00
  0001 )
typed TYPE15 \# 3 000a 00
svc SVCB 1 . alpn="h2,h3" port=8443
_sip._tcp SRV 0 5 5060 sip
caa CAA 0 issue "ca.example.net; account=1"
loc LOC 52 14 05 N 00 08 50 E 10m
naptr NAPTR 100 50 "s" "SIP+D2U" "" _sip._udp
*.wild TXT "any"
cut NS ns.cut
ns.cut A 192.0.2.54
$ORIGIN sub.example.com.
@ A 192.0.2.20
www A 192.0.2.21
$INCLUDE included.zone
$INCLUDE included.zone other.example.com. ; with an origin
after A 192.0.2.22
$TTL 300
short A 192.0.2.23
last A 192.0.2.24
"#;

/// Included twice, with other line ends.
const INCLUDED: &str = "@ TXT \"in between\"\r\nwww CNAME target\r\n\r\ntarget TXT ( a ; b\r\n c )\r\n";

#[test]
fn the_same_master_file_gives_the_same_answers_as_with_nsd() {
    if !(need("nsd") && need("dig")) {
        return;
    }
    let folder = Folder::with("example.com.zone", SYNTAX);
    let nested = INCLUDED.replace("www CNAME", "alias CNAME");
    folder.write("included.zone", &nested);
    folder.write("zone.yaml", "zone: example.com\nzone_file: example.com.zone\n");
    let hale = Hale::serve(folder.path());
    // NSD finds included files from where it runs
    let absolute = SYNTAX.replace("included.zone", &folder.join("included.zone").display().to_string());
    folder.write("nsd.zone", &absolute);
    let nsd = Nsd::serve("example.com", &folder.join("nsd.zone"));
    same_answers(&hale, &nsd, &folder.join("example.com.zone"));
}

/// Asks both for every name and type of the file, and for some that it hasn't.
fn same_answers(hale: &Hale, nsd: &Nsd, file: &Path) {
    let apex: Name = "example.com".parse().unwrap();
    let folder = file.parent().unwrap();
    let read = |include: Include<'_>| {
        fs::read(folder.join(include.name)).map_err(|error| Refused { why: error.to_string(), instead: None })
    };
    let zone = master::read(&fs::read(file).unwrap(), &apex, read);
    let mut names = BTreeSet::from(
        ["nowhere", "a.wild", "a.b.wild", "x.cut", "x.sub"].map(|name| Name::parse(name, &apex).unwrap()),
    );
    let mut types = BTreeSet::from(["A", "AAAA", "TXT", "SOA", "NS", "TYPE65279"].map(String::from));
    for entry in &zone.entries {
        // and the empty non-terminals above
        let above = std::iter::successors(Some(entry.owner.clone()), Name::parent);
        names.extend(above.take_while(|name| name.is_within(&apex)));
        types.insert(rdata::type_name(entry.rtype).into_owned());
    }
    assert!(names.len() > 20 && types.len() > 10, "{names:?} {types:?}");
    let questions: Vec<String> =
        names.iter().flat_map(|name| types.iter().map(move |rtype| format!("{name} {rtype}"))).collect();
    for transport in ["+notcp", "+tcp"] {
        let ours = dig(hale.address(), &questions, transport);
        let theirs = dig(nsd.address(), &questions, transport);
        let mut wrong = Vec::new();
        for ((question, ours), theirs) in questions.iter().zip(&ours).zip(&theirs) {
            if ours != theirs {
                wrong.push(format!("{question} {transport}\n  Hale {ours:?}\n  NSD  {theirs:?}"));
            }
        }
        assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), questions.len(), wrong.join("\n"));
    }
}

/// All questions in one go.
fn dig(server: SocketAddr, questions: &[String], transport: &str) -> Vec<Reply> {
    let folder =
        Folder::with("questions", &questions.iter().map(|line| format!("{line}\n")).collect::<String>());
    let output = Command::new("dig")
        .args([&format!("@{}", server.ip()), "-p", &server.port().to_string(), transport])
        .args(["+noall", "+comments", "+answer", "+authority", "+unknownformat", "+norec", "+nocookie"])
        .args(["+noidnin", "+noidnout", "+tries=4", "+time=5", "+ignore", "-f"])
        .arg(folder.join("questions"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let replies: Vec<Reply> = text.split("->>HEADER<<-").skip(1).map(reply).collect();
    let errors: String =
        text.lines().filter(|line| line.starts_with(";; ") && line.contains("rror")).collect();
    assert_eq!(replies.len(), questions.len(), "{errors} {}", String::from_utf8_lossy(&output.stderr));
    replies
}

fn reply(text: &str) -> Reply {
    let after = |start: &str, end: char| {
        let from = text.find(start).map(|at| &text[at + start.len()..]);
        from.and_then(|rest| rest.split(end).next()).unwrap_or_default().trim().to_owned()
    };
    let section = |title: &str| -> BTreeSet<String> {
        let lines = text.lines().skip_while(|line| !line.contains(title)).skip(1);
        let lines = lines.take_while(|line| !line.is_empty() && !line.starts_with(";;"));
        lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    Reply {
        status: after("status: ", ','),
        flags: after("flags: ", ';'),
        answer: section("ANSWER SECTION"),
        authority: section("AUTHORITY SECTION"),
    }
}
