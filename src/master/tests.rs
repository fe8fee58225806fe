use std::collections::BTreeMap;

use super::*;
use crate::rdata::type_name;

fn origin() -> Name {
    "example.com".parse().unwrap()
}

fn no_files(_: Include<'_>) -> Result<Vec<u8>, Refused> {
    Err(Refused { why: "there are no files".into(), instead: None })
}

/// The records as `OWNER TTL TYPE DATA`, without faults.
fn records(text: impl AsRef<[u8]>) -> Vec<String> {
    let zone = read(text.as_ref(), &origin(), no_files);
    assert_eq!(zone.faults, [], "{:?}", String::from_utf8_lossy(text.as_ref()));
    zone.entries.iter().map(shown).collect()
}

fn shown(entry: &Entry) -> String {
    let ttl = entry.ttl.map_or("-".to_owned(), |ttl| ttl.to_string());
    let rdata = rdata::show(entry.rtype, &entry.rdata);
    format!("{} {ttl} {} {rdata}", entry.owner, type_name(entry.rtype))
}

/// Faults as `LINE:COLUMN-END what`.
fn faults(text: impl AsRef<[u8]>) -> Vec<String> {
    let zone = read(text.as_ref(), &origin(), no_files);
    let shown =
        |Fault { at, what, .. }: &Fault| format!("{}:{}-{} {what:?}", at.line, at.column, at.end_column);
    zone.faults.iter().map(shown).collect()
}

#[test]
fn an_entry_is_made_of_its_words() {
    for (text, record) in [
        ("www 60 IN A 192.0.2.1", "www.example.com. 60 A 192.0.2.1"),
        ("www IN 60 A 192.0.2.1\n", "www.example.com. 60 A 192.0.2.1"),
        ("www in a 192.0.2.1", "www.example.com. - A 192.0.2.1"),
        ("www 60 CLASS1 TYPE1 192.0.2.1", "www.example.com. 60 A 192.0.2.1"),
        ("www\t60\tA\t192.0.2.1\t", "www.example.com. 60 A 192.0.2.1"),
        ("www 1h30m A 192.0.2.1;comment", "www.example.com. 5400 A 192.0.2.1"),
        ("www 1W2d3H4M5s A 192.0.2.1", "www.example.com. 788645 A 192.0.2.1"),
        ("www 0 A 192.0.2.1", "www.example.com. 0 A 192.0.2.1"),
        ("1h A 192.0.2.1", "1h.example.com. - A 192.0.2.1"),
        ("@ A 192.0.2.1", "example.com. - A 192.0.2.1"),
        ("\"www\" A 192.0.2.1", "www.example.com. - A 192.0.2.1"),
        ("\"@\" A 192.0.2.1", r"\@.example.com. - A 192.0.2.1"),
        (r"\@ A 192.0.2.1", r"\@.example.com. - A 192.0.2.1"),
        ("WWW.EXAMPLE.COM. A 192.0.2.1", "www.example.com. - A 192.0.2.1"),
        (r"a\.b\032\200 A 192.0.2.1", r"a\.b\032\200.example.com. - A 192.0.2.1"),
        (r"a\;b A 192.0.2.1", r"a\;b.example.com. - A 192.0.2.1"),
        (r"a\ b A 192.0.2.1", r"a\032b.example.com. - A 192.0.2.1"),
        ("www ( 60\nA ; comment (\n192.0.2.1 )", "www.example.com. 60 A 192.0.2.1"),
        ("www A(\n192.0.2.1)", "www.example.com. - A 192.0.2.1"),
        ("x MX 10 @", "x.example.com. - MX 10 example.com."),
        ("x MX 10 mail", "x.example.com. - MX 10 mail.example.com."),
        ("x TYPE65280 \\# 4 0a00 0001", "x.example.com. - TYPE65280 \\# 4 0a000001"),
        ("x A \\# 4 0a000001", "x.example.com. - A 10.0.0.1"),
    ] {
        assert_eq!(records(text), [record], "{text:?}");
    }
}

#[test]
fn strings_keep_their_octets() {
    for (data, wire) in [
        ("a", &b"\x01a"[..]),
        ("\"a b\" c", b"\x03a b\x01c"),
        ("\"a\"\"b\"", b"\x01a\x01b"),
        ("a\"b\"", b"\x01a\x01b"),
        ("\"a;b(c\"", b"\x05a;b(c"),
        (r#""a\"b" \"c"#, b"\x03a\"b\x02\"c"),
        (r"\097\;\\", b"\x03a;\\"),
        ("\"\"", b"\x00"),
        ("(\"a\"\n \"b\" ; c\n)", b"\x01a\x01b"),
        ("\u{fc}", b"\x02\xc3\xbc"),
        ("\"\ta\"", b"\x02\ta"),
    ] {
        let zone = read(format!("x TXT {data}\n").as_bytes(), &origin(), no_files);
        assert_eq!(zone.faults, [], "{data:?}");
        assert_eq!(&*zone.entries[0].rdata, wire, "{data:?}");
    }
    let latin = read(b"x TXT b\xfccher", &origin(), no_files);
    assert_eq!(&*latin.entries[0].rdata, b"\x06b\xfccher", "octets need not be UTF-8");
}

#[test]
fn line_ends_and_byte_order_marks_are_no_content() {
    let unix = "\u{feff}$TTL 60\nx TXT a\n  TXT \"b\" ; c\n\n; d\ny TXT ( a\n b )";
    let expected =
        ["x.example.com. 60 TXT \"a\"", "x.example.com. 60 TXT \"b\"", "y.example.com. 60 TXT \"a\" \"b\""];
    assert_eq!(records(unix), expected);
    assert_eq!(records(unix.replace('\n', "\r\n")), expected);
    assert_eq!(records(format!("{}\r", unix.replace('\n', "\r\n"))), expected, "the last line lacks its end");
    let long = read(b"x TXT \"a\r\nb\" c=\"d\r\ne\"", &origin(), no_files);
    assert_eq!(
        &*long.entries[0].rdata, b"\x03a\nb\x07c=\"d\ne\"",
        "and no string has one that it lacks elsewhere"
    );
    assert!(long.faults.iter().all(|fault| fault.what == What::StringOverLines(2)), "{:?}", long.faults);
}

#[test]
fn a_blank_owner_is_the_last_one() {
    let text =
        "a A 192.0.2.1\n A 192.0.2.2\n\n;c\n\t60 A 192.0.2.3\n$ORIGIN sub\n A 192.0.2.4\nb A 192.0.2.5\n";
    let owners: Vec<_> =
        read(text.as_bytes(), &origin(), no_files).entries.into_iter().map(|e| e.owner).collect();
    let owners: Vec<_> = owners.iter().map(Name::to_string).collect();
    assert_eq!(
        owners,
        ["a.example.com.", "a.example.com.", "a.example.com.", "a.example.com.", "b.sub.example.com."]
    );
}

#[test]
fn a_record_without_a_ttl_has_one_all_the_same() {
    const SOA: &str = "@ SOA ns host 1 2 3 4 77\n";
    for (text, ttls, why) in [
        ("a A 192.0.2.1\n", "-", "nothing says one"),
        ("a A 192.0.2.1\n{SOA}b A 192.0.2.1\n", "77 77", "the SOA's minimum, wherever it stands (RFC 1035)"),
        ("{SOA}a 60 A 192.0.2.1\nb A 192.0.2.1\n", "60 60", "the last one that was written"),
        (
            "{SOA}$TTL 90\na 60 A 192.0.2.1\nb A 192.0.2.1\n",
            "60 90",
            "`$TTL` comes before that (RFC 2308 §4)",
        ),
        ("$TTL 1m\na A 192.0.2.1\n$TTL 2m\nb A 192.0.2.1\n", "60 120", "and holds until the next one"),
    ] {
        let zone = read(text.replace("{SOA}", SOA).as_bytes(), &origin(), no_files);
        assert_eq!(zone.faults, []);
        let found = zone.entries.iter().map(|entry| entry.ttl.map_or("-".into(), |ttl| ttl.to_string()));
        assert_eq!(found.collect::<Vec<_>>().join(" "), ttls, "{why}");
    }
}

#[test]
fn ttls_are_seconds_or_sums() {
    for (text, ttl) in [
        ("0", Some(0)),
        ("2147483647", Some(2147483647)),
        ("2147483648", None),
        ("99999999999999999999", None),
        ("1w", Some(604800)),
        ("1D12H", Some(129600)),
        ("1h30", None),
        ("h", None),
        ("1.5h", None),
        ("", None),
        ("-1", None),
    ] {
        assert_eq!(seconds(text).ok(), ttl, "{text:?}");
    }
}

/// What files hold, by name.
fn with_files(files: &[(&str, &str)], first: &str) -> (Zone, Vec<String>) {
    let files: BTreeMap<&str, &str> = files.iter().copied().collect();
    let mut asked = Vec::new();
    let zone = read(files[first].as_bytes(), &origin(), |include: Include<'_>| {
        asked.push(format!("{} {:?}", include.name, include.open));
        let text = files.get(include.name).map(|text| text.as_bytes().to_vec());
        text.ok_or_else(|| Refused { why: "no such file".into(), instead: None })
    });
    (zone, asked)
}

#[test]
fn what_an_included_file_sets_ends_with_it() {
    let files = [
        (
            "a",
            "$TTL 60\n$ORIGIN x.example.com.\no A 192.0.2.1\n$INCLUDE b\n A 192.0.2.3\nq A 192.0.2.4\n$INCLUDE \"b\" y.example.com.\n",
        ),
        ("b", " A 192.0.2.2\n$ORIGIN z\np A 192.0.2.2\n"),
    ];
    let (zone, asked) = with_files(&files, "a");
    assert_eq!(zone.faults, []);
    let owners: Vec<_> = zone.entries.iter().map(|entry| entry.owner.to_string()).collect();
    let expected =
        ["o.x", "o.x", "p.z.x", "o.x", "q.x", "q.x", "p.z.y"].map(|name| format!("{name}.example.com."));
    assert_eq!(owners, expected);
    assert_eq!(asked, ["b [0]", "b [0]"]);
    let files: Vec<_> = zone.entries.iter().map(|entry| (entry.at.file, entry.at.line)).collect();
    assert_eq!(files, [(0, 3), (1, 1), (1, 3), (0, 5), (0, 6), (2, 1), (2, 3)]);
}

#[test]
fn a_files_name_may_have_escapes_that_mean_something() {
    for (written, name) in
        [("b", "b"), ("\\098", "b"), ("\"a b\"", "a b"), ("a\\ b", "a b"), ("a\\\\b", "a\\b")]
    {
        let (zone, asked) = with_files(&[("a", &*format!("$INCLUDE {written}\n")), (name, "")], "a");
        assert_eq!((zone.faults, asked), (vec![], vec![format!("{name} [0]")]), "{written}");
    }
    for (written, end, why) in [
        ("b\\300", 15, "the escape \\300 is above 255"),
        ("b\\1", 13, "a digit after a backslash begins three digits"),
        ("b\\255", 15, "its name is not UTF-8"),
    ] {
        let (zone, asked) = with_files(&[("a", &*format!("$INCLUDE {written}\n"))], "a");
        let [Fault { at, what: What::Include(said), .. }] = &zone.faults[..] else {
            panic!("{:?}", zone.faults)
        };
        assert!(said.starts_with(why), "{written}: {said}");
        assert_eq!((at.line, at.column, at.end_column), (1, 10, end), "{written}");
        assert!(asked.is_empty(), "{written}: no file is looked for");
    }
}

#[test]
fn files_within_each_other_are_bounded() {
    let (zone, asked) = with_files(&[("a", "$INCLUDE a\n$INCLUDE a\n")], "a");
    assert!(asked.len() <= MAX_INCLUDES as usize + 1, "{}", asked.len());
    assert!(asked.iter().all(|asked| asked.matches(',').count() < MAX_DEPTH));
    assert!(zone.faults.iter().all(|fault| matches!(fault.what, What::Include(_) | What::TooMany(_))));
    assert!(zone.faults.len() <= MAX_FAULTS + 1);
}

#[test]
fn the_soa_is_one_and_at_the_apex() {
    let zone = read(b"@ 60 SOA ns host 1 2h 3m 4w 5\n@ SOA ns host 1 7200 180 4w 5\n", &origin(), no_files);
    assert_eq!((zone.faults.len(), zone.entries.len()), (0, 0), "a transfer ends in it once more");
    assert_eq!(
        shown(&zone.soa.unwrap()),
        "example.com. 60 SOA ns.example.com. host.example.com. 1 7200 180 2419200 5"
    );
    assert_eq!(faults("@ SOA ns host 1 2 3 4 5\n@ SOA ns host 2 2 3 4 5\n"), ["2:1-24 SecondSoa"]);
    assert_eq!(faults("sub SOA ns host 1 2 3 4 5\n"), ["1:1-26 SoaBelowApex(\"sub.example.com.\")"]);
}

#[test]
fn numbers_are_generated() {
    for (directive, names) in [
        ("1-3 h$ A 192.0.2.$", &["h1 A 192.0.2.1", "h2 A 192.0.2.2", "h3 A 192.0.2.3"][..]),
        ("0-4/2 h${10,3} A 192.0.2.$", &["h010 A 192.0.2.0", "h012 A 192.0.2.2", "h014 A 192.0.2.4"]),
        ("10-11 $ CNAME $.x", &["10 CNAME 10.x.example.com.", "11 CNAME 11.x.example.com."]),
        ("255-255 ${0,4,x}-${0,0,X}-${-255,0,o} A 192.0.2.1", &["00ff-ff-0 A 192.0.2.1"]),
        ("18-18 ${0,0,n} PTR h$.", &["2.1 PTR h18."]),
        ("18-18 ${0,7,n} PTR h$.", &["2.1.0.0 PTR h18."]),
        (r#"1-1 a\$b TXT "$ \\$ $$""#, &[r#"a\$b TXT "1 \\1 $""#]),
        ("1-1 @ 60 IN MX 10 m$", &["MX 10 m1.example.com."]),
    ] {
        let made = records(format!("$TTL 60\n$GENERATE {directive}\n"));
        let made: Vec<_> = made
            .iter()
            .map(|made| made.replacen(".example.com. 60", "", 1).replace("example.com. 60 ", ""))
            .collect();
        assert_eq!(made, names, "{directive}");
    }
    for wrong in
        ["3-1 h$ A 192.0.2.1", "1 h$ A 192.0.2.1", "1-9/0 h$ A 192.0.2.1", "1-9 h${x} A 192.0.2.1", "1-2", ""]
    {
        assert_eq!(faults(format!("$GENERATE {wrong}\n")).len(), 1, "{wrong}");
    }
    assert_eq!(faults("$GENERATE 254-2000000 h$ A 192.0.2.$").len(), 1, "the first wrong record ends it");
    let many = read(b"$GENERATE 1-2000000000 h$ A 192.0.2.1", &origin(), no_files);
    assert_eq!((many.entries.len(), many.faults.len()), (MAX_GENERATED as usize, 1));
}

#[test]
fn the_wrong_word_is_shown() {
    for (text, fault) in [
        ("a A 192.0.2", "1:5-12 Rdata"),
        ("\u{fc} b", "1:1-2 NotName"),
        ("x TXT \u{fc} \u{fc}\nx MX 70000 a", "2:6-11 Rdata"),
        ("x ( MX\n 10\n  a..b )", "3:3-7 Rdata"),
        (" A 192.0.2.1", "1:2-3 NoOwner"),
        ("a 1h2 A 192.0.2.1", "1:3-6 NotTtl"),
        ("a 60 60 A 192.0.2.1", "1:6-8 NotType"),
        ("a IN IN A 192.0.2.1", "1:6-8 NotType"),
        ("a CH A 192.0.2.1", "1:3-5 OtherClass"),
        ("a CLASS3 A 192.0.2.1", "1:3-9 OtherClass"),
        ("a B 192.0.2.1", "1:3-4 NotType"),
        ("a ANY \\# 0", "1:3-6 QueryType"),
        ("a", "1:1-2 Syntax"),
        ("A 192.0.2.1", "1:1-2 Syntax"),
        ("a A", "1:1-4 Rdata"),
        ("b.example.net. A 192.0.2.1", "1:1-15 OutsideZone"),
        ("$ORIGIN net.\na A 192.0.2.1", "2:1-2 OutsideZone"),
        ("a TXT \"b\n\nc", "1:7-8 NotClosed"),
        ("a TXT \"b\r\nc", "1:7-8 NotClosed"),
        ("a TXT ( b\nc", "1:7-8 NotClosed"),
        ("a TXT ) b", "1:7-8 Syntax"),
        ("a TXT ( ( b ) )", "1:9-10 Syntax"),
        ("a TXT b\\\nc TXT d", "1:8-9 Syntax"),
        ("a TXT b\u{1}", "1:8-9 Octet(1)"),
        ("a TXT b\rc", "1:8-9 Octet(13)"),
        ("a TXT b\nc TXT \0", "2:7-8 Octet(0)"),
        ("$TTL", "1:1-5 Syntax"),
        ("$TTL 1 2", "1:1-9 Syntax"),
        ("$TTL x", "1:6-7 NotTtl"),
        ("$ORIGIN", "1:1-8 Syntax"),
        ("$INCLUDE", "1:1-9 Syntax"),
        ("$INCLUDE x", "1:10-11 Include"),
        ("$SOMETHING x", "1:1-11 NotDirective"),
        (" $TTL 60", "1:2-6 Syntax"),
    ] {
        let found = faults(text);
        assert_eq!(found.len(), 1, "{text:?}: {found:?}");
        let shown = match found[0].split_once(['(', ' ']) {
            Some(_) => found[0].clone(),
            None => String::new(),
        };
        assert!(shown.starts_with(fault), "{text:?}: {shown}, not {fault}");
    }
    assert!(faults(b"\xff\xfea\0").starts_with(&["1:1-2 Utf16".to_owned()]));
}

#[test]
fn what_is_wrong_hides_nothing_after_it() {
    let text = "a A 192.0.2\nb A 192.0.2.1\n A x\nc \"A 1\nd A 192.0.2.2\n";
    let zone = read(text.as_bytes(), &origin(), no_files);
    let owners: Vec<_> = zone.entries.iter().map(|entry| entry.owner.to_string()).collect();
    assert_eq!((owners.len(), zone.faults.len()), (1, 3), "an open quotation mark takes the rest");
    // a wrong owner isn't told again for each record that it would have had
    assert_eq!(faults("a..b A 192.0.2.1\n A 192.0.2.2\n A 192.0.2.3\n").len(), 1);
}

#[test]
fn after_a_thousand_faults_nothing_more_is_read() {
    let zone = read("x\n".repeat(5000).as_bytes(), &origin(), no_files);
    assert_eq!(zone.faults.len(), MAX_FAULTS + 1);
    assert_eq!(zone.faults[MAX_FAULTS].what, What::TooMany(MAX_FAULTS));
}

#[test]
fn what_another_server_signed_is_left_out() {
    let text = "a 60 A 192.0.2.1\n60 RRSIG A 8 2 60 ( 1 2 ) 3 x y\n NSEC b A\n NSEC c\nb A 192.0.2.1\n DS 1 8 2 00\n";
    let zone = read(text.replace("\n60", "\n 60").as_bytes(), &origin(), no_files);
    let left_out = zone.faults.iter().find(|fault| fault.is_lint()).unwrap();
    let types = "NSEC, RRSIG".to_owned();
    assert_eq!((left_out.at.line, &left_out.what), (2, &What::SignaturesLeftOut { count: 3, types }));
    assert_eq!(zone.entries.len(), 2);
}

/// Whatever the octets, reading ends without a panic.
#[test]
fn no_octets_are_a_panic() {
    let sample = b"$TTL 1h\n@ SOA ns host ( 1 2 3 4 5 )\n$GENERATE 1-2 a$ A 192.0.2.${0,1,d}\nx TXT \"a\\\"b\" \\065;c\n\
                   y SVCB 1 . alpn=\"h2\"\r\n$INCLUDE \"z\" o\n";
    let odd = [0, 9, 10, 13, 32, b'"', b'$', b'(', b')', b';', b'=', b'\\', b'{', 127, 128, 255];
    for cut in 0..=sample.len() {
        for insert in odd {
            let octets = [&sample[..cut], &[insert][..], &sample[cut..]].concat();
            for octets in [&octets[..], &octets[..=cut]] {
                let inner = octets.to_vec();
                let _ = read(octets, &origin(), |include: Include<'_>| match include.open.len() {
                    1 => Ok(inner.clone()),
                    _ => Err(Refused { why: String::new(), instead: None }),
                });
            }
        }
    }
}
