use super::*;

fn origin() -> Name {
    "example.com".parse().unwrap()
}

/// The wire form in hexadecimal digits, or the number of the word that is
/// wrong, and why.
fn wire(rtype: &str, text: &str) -> Result<String, String> {
    let rtype = type_code(rtype).unwrap();
    let words = words(text).map_err(|error| error.to_string())?;
    let wire = parse(rtype, &words, &origin()).map_err(|error| match error.word {
        Some(word) => format!("{word}: {error}"),
        None => error.to_string(),
    })?;
    assert_eq!(validate(rtype, &wire), Ok(()), "{text}");
    Ok(data_encoding::HEXLOWER.encode(&wire))
}

#[test]
fn each_type_has_an_example_that_reads_back() {
    assert!(layout::ALL.is_sorted_by(|one, other| one.rtype < other.rtype));
    for layout in layout::ALL {
        let name = type_name(layout.rtype);
        let rdata = parse(layout.rtype, &words(layout.example).unwrap(), &origin());
        let rdata = rdata.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(show(layout.rtype, &rdata), layout.example, "{name}");
    }
}

/// The cases of the RFCs; `tests/it/rdata.rs` gives them to another server.
#[test]
fn words_become_octets_and_back() {
    let cases = include_str!("../../tests/rdata/accepted.txt");
    let mut wrong = Vec::new();
    for line in cases.lines().filter(|line| !line.starts_with('#')) {
        let (case, octets) = line.split_once(" => ").unwrap();
        let (rtype, text) = case.split_once(' ').unwrap();
        let expected = octets.replace(' ', "");
        let found = wire(rtype, text);
        if found.as_ref() != Ok(&expected) {
            wrong.push(format!("{case}\n  is       {found:?}\n  expected {expected}"));
            continue;
        }
        let code = type_code(rtype).unwrap();
        let rdata = data_encoding::HEXLOWER.decode(expected.as_bytes()).unwrap();
        let shown = show(code, &rdata);
        assert!(layout::of(code).is_none() || !shown.starts_with(r"\#"), "{case}: {shown}");
        assert_eq!(wire(rtype, &shown).as_ref(), Ok(&expected), "{case}: {shown}");
        let generic = format!(r"\# {} {expected}", rdata.len());
        assert_eq!(wire(rtype, &generic).as_ref(), Ok(&expected), "{case}: {generic}");
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_wrong_word_is_told() {
    let long = format!("\"{}\"", "x".repeat(256));
    let odd = format!(r"\# 40 01 {}", "00".repeat(39));
    let mut wrong = Vec::new();
    for (rtype, text, why) in [
        ("A", "192.0.2.256", "0: an IPv4 address is due; write for example `192.0.2.1`"),
        ("A", "::1", "0: an IPv4 address is due; write for example `192.0.2.1`"),
        ("A", "", "0: the address is missing; write for example `192.0.2.1`"),
        ("A", "192.0.2.1 192.0.2.2", "1: nothing follows the address; write for example `192.0.2.1`"),
        ("AAAA", "1::2::3", "0: an IPv6 address is due; write for example `2001:db8::1`"),
        ("NS", "a..b", "0: not a domain name: a label is empty"),
        ("NS", "bücher", "0: a domain name is written in ASCII (its A-label, xn--…)"),
        ("MX", "10", "1: the exchange is missing; write for example `10 mail.example.com.`"),
        ("MX", "mail 10", "0: the preference is a number from 0 to 65535"),
        ("MX", "65536 a", "0: the preference is a number from 0 to 65535"),
        ("MX", "-1 a", "0: the preference is a number from 0 to 65535"),
        ("SRV", "1 2 99999 a", "2: the port is a number from 0 to 65535"),
        ("SRV", "1 2 3", "3: the target is missing; write for example `10 5 5060 sip.example.com.`"),
        (
            "SOA",
            "a b 1 2 3 4 5x",
            "6: the minimum is a number of seconds, or a sum such as `1h30m`, of at most 4294967295 s",
        ),
        (
            "TXT",
            &long,
            "0: the text has at most 255 octets, this one has 256; cut it into several texts, each in quotes",
        ),
        ("TXT", r"a b\256", "1: the escape \\256 is above 255"),
        ("TXT", "\"a", "a closing quote is missing"),
        ("HINFO", "a", "1: the operating system is missing; write for example `\"x86-64\" \"Linux\"`"),
        (
            "NAPTR",
            r#"1 1 "u-" "" "" ."#,
            "2: flags are letters and digits; write for example `u`, `s` or `a`",
        ),
        (
            "NAPTR",
            r#"1 1 "u" "" "!^.*$!sip:a" ."#,
            "4: a substitution has its first character three times, with the flag `i` or nothing behind it; write for example `!^.*$!sip:info@example.com!`",
        ),
        (
            "NAPTR",
            r#"1 1 "u" "" "!^(.*)$!sip:\1!" ."#,
            "4: a digit after a backslash begins three digits, the number of an octet; a backslash itself is `\\\\`, as in `\\\\1`",
        ),
        ("LOC", "91 N 0 E 0", "0: the degrees of the latitude are a number from 0 to 90"),
        ("LOC", "90 0 0.001 N 0 E 0", "2: the latitude is at most 90 degrees"),
        ("LOC", "1 60 N 0 E 0", "1: the minutes of the latitude are a number from 0 to 59"),
        ("LOC", "1 1 60 N 0 E 0", "2: the seconds of the latitude are a number from 0 to 59.999"),
        ("LOC", "1 E 0 E 0", "1: the minutes of the latitude are a number from 0 to 59"),
        ("LOC", "1 2 3 4 0 E 0", "3: the latitude ends in N or S; write N or S"),
        ("LOC", "1 N 1 E", "4: the altitude is missing; write for example `52 22 23 N 4 53 32 E -2m`"),
        (
            "LOC",
            "1 N 1 E -100000.01m",
            "4: the altitude is a number of metres from -100000.00 to 42849672.95",
        ),
        (
            "LOC",
            "1 N 1 E 42849672.96",
            "4: the altitude is a number of metres from -100000.00 to 42849672.95",
        ),
        ("LOC", "1 N 1 E 0 90000000.01m", "5: the size is a number of metres from 0.00 to 90000000.00"),
        (
            "LOC",
            "1 N 1 E 0 1 1 -1",
            "7: the vertical precision is a number of metres from 0.00 to 90000000.00",
        ),
        (
            "LOC",
            "1 N 1 E 0 1 1 1 1",
            "8: nothing follows the vertical precision; write for example `52 22 23 N 4 53 32 E -2m`",
        ),
        (
            "LOC",
            r"\# 16 01331613 89172dd0 70be15f0 00988d20",
            "the location is of version 1; only 0 is known",
        ),
        (
            "LOC",
            r"\# 16 00a31613 89172dd0 70be15f0 00988d20",
            "the location has a size that is no digit and power of ten",
        ),
        ("LOC", r"\# 16 00331613 ffffffff 70be15f0 00988d20", "the location has a latitude above 90 degrees"),
        (
            "DS",
            "1 13 2 abcd",
            "3: a digest of type 2 has 32 octets, this one has 2; write all of its 64 hexadecimal digits",
        ),
        (
            "DS",
            "1 NONE 2 abcd",
            "1: the algorithm is a number from 0 to 255 or a mnemonic such as `ECDSAP256SHA256`",
        ),
        (
            "DS",
            "1 13 2",
            "3: the digest is missing; write for example `60485 13 2 d4b7d520e7bb5f0f67674a0cceb1e3e0614b93c4f9e99b8383f6a1e4469da50a`",
        ),
        ("DS", "1 13 9 ab cz", "4: `z` is not a hexadecimal digit"),
        (
            "DS",
            "1 13 9 ab c",
            "4: it ends within an octet: they are written in groups of two hexadecimal digits",
        ),
        (
            "DS",
            r"\# 5 0001 0d 02 ab",
            "a digest of type 2 has 32 octets, this one has 1; write all of its 64 hexadecimal digits",
        ),
        ("DNSKEY", "256 2 13 AAAA", "1: the protocol of a key is 3; write 3"),
        ("DNSKEY", "256 3 13 AA.A", "3: `.` is not a character of base 64"),
        (
            "DNSKEY",
            "256 3 13 AAA",
            "3: it ends within an octet: they are written in groups of four characters of base 64, `=` at the end",
        ),
        (
            "SSHFP",
            "1 2 abcd",
            "2: a fingerprint of type 2 has 32 octets, this one has 2; write all of its 64 hexadecimal digits",
        ),
        (
            "TLSA",
            "3 1 1 abcd",
            "3: a hash of matching type 1 has 32 octets, this one has 2; write all of its 64 hexadecimal digits",
        ),
        ("ZONEMD", "1 1 9 abcd", "3: a digest has at least 12 octets"),
        ("CSYNC", "1 0 A AAAAA", "3: this is not a type of records; write for example `A`, or `TYPE65280`"),
        ("CSYNC", r"\# 9 00000001 0000 0001 00", "the types are not a bitmap (RFC 4034 §4.1.2)"),
        ("EUI48", "00-00-5e-00-53", "0: the address is 6 pairs of hexadecimal digits with `-` between"),
        ("URI", "1 1 \"\"", "2: the target is empty; write for example `https://www.example.com/`"),
        (
            "CAA",
            "0 is-sue \"\"",
            "1: a tag consists of letters and digits; write for example `issue`, `issuewild` or `iodef`",
        ),
        ("CAA", "256 issue \"\"", "0: the flags is a number from 0 to 255"),
        (
            "CAA",
            "0 issue a b",
            "3: nothing follows the value; write for example `0 issue \"ca.example.net\"`",
        ),
        ("CAA", r"\# 3 00 05 61", "the tag is longer than the data"),
        // RFC 9460, appendix D.3
        (
            "SVCB",
            "1 a. key123=abc key123=def",
            "3: `key123` stands twice, at first in parameter 1; put its values into one",
        ),
        ("SVCB", "1 a. mandatory", "2: `` is not a parameter; write for example `mandatory=alpn`"),
        ("SVCB", "1 a. alpn", "2: a protocol's name has 1 to 255 octets; write for example `alpn=h2,h3`"),
        ("SVCB", "1 a. port", "2: `port` is a number from 0 to 65535; write for example `port=8443`"),
        ("SVCB", "1 a. ipv4hint", "2: `` is not an IPv4 address; write for example `ipv4hint=192.0.2.1`"),
        (
            "SVCB",
            "1 a. ipv6hint=::1,::x",
            "2: `::x` is not an IPv6 address; write for example `ipv6hint=2001:db8::1`",
        ),
        (
            "SVCB",
            "1 a. alpn=h2 no-default-alpn=abc",
            "3: `no-default-alpn` has no value; write `no-default-alpn` alone",
        ),
        (
            "SVCB",
            "1 a. mandatory=key123",
            "2: `key123` is mandatory and not there; add `key123`, or take it out of the list",
        ),
        ("SVCB", "1 a. mandatory=mandatory", "2: `mandatory` is never in its own list"),
        (
            "SVCB",
            "1 a. key123=abc mandatory=key123,key123",
            "3: a key stands twice in `mandatory`, or they are not in their order",
        ),
        (
            "SVCB",
            "1 a. port=1 no-default-alpn",
            "3: without `alpn` no protocol is left; add `alpn`, or take `no-default-alpn` away",
        ),
        ("SVCB", "1 a. Port=1", "2: `Port` is not a parameter; write `port`"),
        ("SVCB", "1 a. ech=!", "2: `ech` is a list of configurations in base 64; write it as `ech=AEX…`"),
        ("SVCB", r"1 a. alpn=a\\b", "2: within a list a backslash stands before a comma or a backslash"),
        ("SVCB", "1 a. key65535=a", "2: key65535 is reserved and never used"),
        (
            "SVCB",
            "0 a. port=1",
            "2: a record of priority 0 is an alias, and its parameters mean nothing; write priority 1, or take the parameters away",
        ),
        ("SVCB", r"\# 8 0001 00 0003 0002 01", "the parameters end within a value"),
        (
            "SVCB",
            r"\# 15 0001 00 0003 0002 01bb 0001 0002 0168",
            "the parameters are not in the order of their keys, each once",
        ),
        ("SVCB", r"\# 8 0001 00 0003 0001 01", "the parameters are wrong: `port` has 2 octets"),
        ("MX", r"\# 4 000a c00c", "the exchange is not a whole domain name"),
        ("MX", &odd, "1: 40 octets are announced, and 40 follow"),
        ("A", r"\# 5 c000020101", "1 octet is left over behind the address"),
        ("A", r"\# 3 c00002", "the address has 4 octets, and 3 are left"),
        ("A", r"\# 4 c00002", "1: 4 octets are announced, and 3 follow; write `3` if the octets are right"),
        ("A", r"\# x c00002", "1: the length is a number of octets from 0 to 65535"),
        ("A", r"\#", r"1: a length and octets follow `\#`; write for example `\# 4 0a000001`"),
        (
            "TYPE65280",
            "abc",
            r"the data of type TYPE65280 is written in octets (RFC 3597); write `\# LENGTH HEX`, such as `\# 4 0a000001`",
        ),
        (
            "NSEC",
            "a. A",
            r"the data of type NSEC is written in octets (RFC 3597); write `\# LENGTH HEX`, such as `\# 4 0a000001`",
        ),
        ("ANY", r"\# 0", "ANY is asked for and stands in no zone"),
    ] {
        let found = wire(rtype, text);
        if found != Err(why.to_owned()) && rtype != "MX" || rtype == "MX" && found.is_ok() {
            wrong.push(format!("{rtype} {text}\n  is       {found:?}\n  expected {why}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn texts_end_at_255_octets_and_values_do_not() {
    let long = "x".repeat(255);
    assert_eq!(wire("TXT", &format!("\"{long}\"")).unwrap().len(), 512);
    let longer = "x".repeat(300);
    assert_eq!(wire("CAA", &format!("0 issue \"{longer}\"")).unwrap().len(), 2 * (1 + 1 + 5 + 300));
    assert_eq!(wire("URI", &format!("0 0 \"{longer}\"")).unwrap().len(), 2 * (4 + 300));
    let longest = format!("\"{}\" ", "x".repeat(255)).repeat(257);
    let error = wire("TXT", &longest).unwrap_err();
    assert_eq!(error, "the data of a record has at most 65535 octets, these are 65792");
}

#[test]
fn a_value_may_come_as_a_word_of_its_own() {
    let words = [Word::bare("1"), Word::bare("."), Word::bare("alpn="), Word::quoted("h2,h3")];
    let rdata = parse(rtype::HTTPS, &words, &origin()).unwrap();
    assert_eq!(show(rtype::HTTPS, &rdata), "1 . alpn=h2,h3");
}

#[test]
fn names_are_found_and_their_case_does_not_count() {
    let rdata = |text: &str| parse(rtype::SRV, &words(text).unwrap(), &origin()).unwrap();
    let (one, other) = (rdata("1 2 3 SIP.example.com."), rdata("1 2 3 sip"));
    assert_ne!(one, other);
    assert_eq!(folded(rtype::SRV, &one), folded(rtype::SRV, &other));
    assert_eq!(names(rtype::SRV, &one).collect::<Vec<_>>(), [b"\x03SIP\x07example\x03com\0"]);
    let soa = parse(rtype::SOA, &words("ns1 host 1 2 3 4 5").unwrap(), &origin()).unwrap();
    assert_eq!(names(rtype::SOA, &soa).count(), 2);
    assert_eq!(names(rtype::TXT, b"\x01a").count(), 0);
    assert_eq!(names(rtype::SRV, b"\0").count(), 0);
    assert_eq!(folded(rtype::TXT, b"\x01A"), &b"\x01A"[..]);
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % below
    }

    fn octets(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    fn string(&mut self) -> Vec<u8> {
        let length = [0, 1, 2, 5, 63, 255][self.below(6)];
        [vec![length as u8], self.octets(length)].concat()
    }

    /// Octets that are one part, more often than not.
    fn part(&mut self, part: Part) -> Vec<u8> {
        match part {
            Part::U8 | Part::Algorithm => vec![[0, 1, 2, 3, 13][self.below(5)]],
            Part::U16 | Part::Certificate => vec![0, self.below(256) as u8],
            Part::U32 | Part::Seconds | Part::V4 => self.octets(4),
            Part::V6 => self.octets(16),
            Part::Eui(length) => self.octets(length),
            Part::Name => {
                let labels = self.below(4);
                let label = |dice: &mut Dice| {
                    let length = 1 + dice.below(63);
                    [vec![length as u8], dice.octets(length)].concat()
                };
                let mut name: Vec<u8> = (0..labels).flat_map(|_| label(self)).collect();
                name.push(0);
                name
            }
            Part::Text => self.string(),
            Part::Texts => (0..1 + self.below(4)).flat_map(|_| self.string()).collect(),
            Part::Hex | Part::Base64 => {
                let length = [1, 2, 3, 20, 32, 48, 64][self.below(7)];
                self.octets(length)
            }
            Part::Types => match self.below(2) {
                0 => Vec::new(),
                _ => vec![0, 2, self.below(256) as u8, 1 + self.below(255) as u8, 5, 1, 8],
            },
            Part::Tag => [&b"\x05issue"[..], b"\x01a"][self.below(2)].to_vec(),
            Part::Value => {
                let length = self.below(400);
                self.octets(length)
            }
            Part::Location => {
                let mut octets = vec![0];
                octets.extend((0..3).map(|_| (self.below(10) << 4 | self.below(10)) as u8));
                octets.extend(
                    (1u32 << 31)
                        .wrapping_add(self.below(648_000_001) as u32)
                        .wrapping_sub(324_000_000)
                        .to_be_bytes(),
                );
                octets.extend(
                    (1u32 << 31)
                        .wrapping_add(self.below(1_296_000_001) as u32)
                        .wrapping_sub(648_000_000)
                        .to_be_bytes(),
                );
                octets.extend(self.octets(4));
                octets
            }
            Part::Parameters => {
                let mut octets = Vec::new();
                for key in [0u16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 667] {
                    if self.below(3) > 0 {
                        continue;
                    }
                    let value = match key {
                        0 => vec![0, 1],
                        1 => [vec![3], self.octets(3), vec![1], self.octets(1)].concat(),
                        2 | 8 => Vec::new(),
                        3 => self.octets(2),
                        4 => self.octets(8),
                        6 => self.octets(16),
                        7 => b"/q{?dns}".to_vec(),
                        _ => self.octets(9),
                    };
                    octets.extend(key.to_be_bytes());
                    octets.extend((value.len() as u16).to_be_bytes());
                    octets.extend(value);
                }
                octets
            }
        }
    }
}

#[test]
fn what_is_shown_reads_back() {
    let mut dice = Dice(1);
    for layout in layout::ALL {
        let mut known = 0;
        for _ in 0..300 {
            let rdata: Vec<u8> = layout.parts.iter().flat_map(|(_, part)| dice.part(*part)).collect();
            let shown = show(layout.rtype, &rdata);
            let name = type_name(layout.rtype);
            if validate(layout.rtype, &rdata).is_err() {
                assert!(shown.starts_with(r"\#"), "{name} {shown}");
                continue;
            }
            known += usize::from(!shown.starts_with(r"\#"));
            let words = words(&shown).unwrap_or_else(|error| panic!("{name} {shown}: {error}"));
            let read = parse(layout.rtype, &words, &origin());
            assert_eq!(read.as_deref(), Ok(&rdata[..]), "{name} {shown}");
        }
        assert!(known > 5, "{}: {known} of 300 were well-formed", type_name(layout.rtype));
    }
}

#[test]
fn no_octets_are_too_odd_to_be_shown() {
    let mut dice = Dice(2);
    for rtype in (0..300).chain([32769, 65280]) {
        for _ in 0..60 {
            let length = dice.below(40);
            let octets = dice.octets(length);
            let shown = show(rtype, &octets);
            let _ = (names(rtype, &octets).count(), folded(rtype, &octets));
            if let Ok(read) = parse(rtype, &words(&shown).unwrap(), &origin()) {
                assert_eq!(*read, octets, "{rtype} {shown}");
            }
        }
    }
}

#[test]
fn no_text_is_too_odd_to_be_refused() {
    let odd = [
        "(",
        ")",
        "\"",
        "\"a",
        "\\",
        "\\9",
        "\\999",
        ";",
        "( (",
        "$TTL 1",
        "@",
        "\t",
        "\n1",
        "é",
        "- -",
        "1 1 1 1",
        "1 1 é é é é é",
        "= = = = =",
        "1 . =",
        "1 . \"",
        "1 . alpn=\"",
        "1 . key",
        "1 . key=\"a\"b",
        "1 N 1 E",
        "1 1 1 1 1 1 1 1 1 1 1 1 1",
        r"\# ",
        r"\# 1",
        r"\# 1 é",
        r#"1 1 "\" "\" "#,
    ];
    for rtype in 0..=300 {
        for text in odd {
            if let Ok(words) = words(text) {
                let _ = parse(rtype, &words, &origin());
            }
        }
    }
}

/// hickory-proto reads many of these types, too. It takes `\DDD` for a letter of
/// Unicode and commas in `alpn` for the ends of names, so escapes are left out;
/// it writes names in small letters, and those of the SOA compressed.
#[test]
fn another_implementation_makes_the_same_octets() {
    use hickory_proto::rr::{RData, RecordType};
    use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};
    let cases = include_str!("../../tests/rdata/accepted.txt");
    let (mut same, mut differ) = (0, Vec::new());
    for line in cases.lines().filter(|line| !line.starts_with('#')) {
        let (case, octets) = line.split_once(" => ").unwrap();
        let code = type_code(case.split_once(' ').unwrap().0).unwrap();
        let octets = data_encoding::HEXLOWER.decode(octets.replace(' ', "").as_bytes()).unwrap();
        let shown = show(code, &octets);
        if shown.contains('\\') || code == rtype::SOA {
            continue;
        }
        let Ok(read) = RData::try_from_str(RecordType::from(code), &shown) else { continue };
        let mut written = Vec::new();
        read.emit(&mut BinEncoder::new(&mut written)).unwrap();
        match written.eq_ignore_ascii_case(&octets) {
            true => same += 1,
            false => {
                differ.push(format!("{case}\n  {shown}\n  {}", data_encoding::HEXLOWER.encode(&written)))
            }
        }
    }
    assert!(differ.is_empty() && same > 30, "{same}\n{}", differ.join("\n"));
}
