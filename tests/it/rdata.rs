//! RDATA against another server: it reads what we read, and means the same.

use std::process::Command;

use crate::support::folder::Folder;
use crate::support::programs::need;
use haledns::rdata;

/// Each case stands in a zone as it is written and, at another name, as the
/// octets that we make of it; NSD then prints the same of both.
#[test]
fn nsd_makes_the_same_of_words_and_of_our_octets() {
    if !need("nsd-checkzone") {
        return;
    }
    let cases = include_str!("../rdata/accepted.txt");
    let cases: Vec<(&str, &str)> = (cases.lines())
        .filter(|line| !line.starts_with('#') && !line.starts_with("SOA"))
        .filter_map(|line| line.split_once(" => ")?.0.split_once(' '))
        .collect();
    let origin = "example.com".parse().unwrap();
    let mut zone = String::from("$TTL 60\n@ SOA ns1 host 1 2 3 4 5\n@ NS ns1\n");
    for ((rtype, text), number) in cases.iter().zip(1000..) {
        let words = rdata::words(text).unwrap();
        let code = rdata::type_code(rtype).unwrap();
        let octets = rdata::parse(code, &words, &origin).unwrap();
        let digits: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
        zone += &format!("a{number} {rtype} {text}\nb{number} {rtype} \\# {} {digits}\n", octets.len());
    }
    let folder = Folder::with("zone", &zone);
    let output = Command::new("nsd-checkzone").arg("-p").arg("example.com").arg(folder.join("zone")).output();
    let output = output.unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    // it writes names below the origin that it told before
    let of = |letter: char, number: usize| {
        let owner = format!("{letter}{number}");
        let line = printed.lines().find(|line| line.split_whitespace().next() == Some(&owner));
        line.map(|line| line[owner.len()..].to_owned())
    };
    let differ: Vec<_> = (cases.iter().zip(1000..))
        .filter_map(|(case, number)| {
            let (ours, theirs) = (of('b', number), of('a', number));
            (theirs.is_none() || ours != theirs).then(|| format!("{case:?}\n  {theirs:?}\n  {ours:?}"))
        })
        .collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(differ.is_empty(), "{errors}\n{}", differ.join("\n"));
}
