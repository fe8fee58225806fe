//! Zones whose records lie in files of their own, while running.

use std::fs;
use std::path::Path;

use crate::support::dns::ask;
use crate::support::folder::Folder;
use crate::support::hale::{Hale, until};

const RELOADED: &str = "configuration reloaded";
const KEPT: &str = "configuration not reloaded, the last good one stays in force";
const WWW: &str = "www.example.test.";

/// A master file with `www` in a file that it includes.
fn master(serial: u32) -> String {
    format!("$TTL 60\n@ SOA ns1 host {serial} 1h 10m 7d 30\n@ NS ns1\nns1 A 192.0.2.53\n$INCLUDE www.zone\n")
}

fn naming(path: &Path) -> String {
    format!("zone: example.test\nzone_file: {}\n", path.display())
}

fn becomes(hale: &Hale, address: &str) {
    until(address, || ask(hale.address(), WWW).is(&[address]));
}

#[test]
fn a_zone_file_and_what_it_includes_are_noticed_wherever_they_lie() {
    let (zones, folder) = (Folder::with("example.zone", &master(1)), Folder::new());
    zones.write("www.zone", "www A 192.0.2.1\n");
    folder.write("a.yaml", &naming(&zones.join("example.zone")));
    let hale = Hale::serve(folder.path());
    becomes(&hale, "192.0.2.1");
    for address in ["192.0.2.2", "192.0.2.3"] {
        zones.replace("www.zone", &format!("www A {address}\n"));
        becomes(&hale, address);
    }
    zones.write("example.zone", &master(2).replace("$INCLUDE www.zone", "www A 192.0.2.4"));
    becomes(&hale, "192.0.2.4");
    // once it is included no more, it is looked at no more
    let mark = hale.mark();
    zones.write("www.zone", "broken");
    zones.write("example.zone", &master(3).replace("$INCLUDE www.zone", "www A 192.0.2.5"));
    hale.line_after(mark, RELOADED);
    becomes(&hale, "192.0.2.5");
    assert_eq!(hale.count(KEPT), 0, "{}", hale.log());
}

#[test]
fn a_broken_or_vanished_zone_file_changes_nothing_and_says_why() {
    let (zones, folder) = (Folder::with("example.zone", &master(1)), Folder::new());
    zones.write("www.zone", "www A 192.0.2.1\n");
    folder.write("a.yaml", &naming(&zones.join("example.zone")));
    let hale = Hale::serve(folder.path());
    becomes(&hale, "192.0.2.1");

    let mark = hale.mark();
    zones.write("www.zone", "www A 192.0.2\n");
    hale.line_after(mark, KEPT);
    hale.line_after(mark, "www.zone:1:7: error: `192.0.2` in a record of type A");
    assert!(ask(hale.address(), WWW).is(&["192.0.2.1"]));
    zones.write("www.zone", "www A 192.0.2.2\n");
    becomes(&hale, "192.0.2.2");

    for vanishing in ["www.zone", "example.zone"] {
        let mark = hale.mark();
        let text = fs::read_to_string(zones.join(vanishing)).unwrap();
        fs::remove_file(zones.join(vanishing)).unwrap();
        hale.line_after(mark, KEPT);
        hale.line_after(mark, "No such file or directory");
        assert!(ask(hale.address(), WWW).is(&["192.0.2.2"]));
        // of a configuration that was refused, too, the files are looked at
        zones.write(vanishing, &text);
        hale.line_after(mark, "it is in order, and says what is in force");
    }
}

#[test]
fn a_zone_file_that_a_refused_configuration_names_is_waited_for() {
    let (zones, folder) = (Folder::new(), Folder::new());
    folder.write("a.yaml", "zone: example.test\nrecords: { '': { type: NS, value: ns.example.net. } }\n");
    let hale = Hale::serve(folder.path());
    let mark = hale.mark();
    folder.write("a.yaml", &naming(&zones.join("example.zone")));
    hale.line_after(mark, KEPT);
    zones.write("www.zone", "www A 192.0.2.1\n");
    zones.write("example.zone", &master(1));
    becomes(&hale, "192.0.2.1");
}

#[test]
fn a_serial_that_says_nothing_of_a_change_is_told() {
    let folder = Folder::with("example.zone", &master(10));
    folder.write("www.zone", "www A 192.0.2.1\n");
    folder.write("a.yaml", "zone: example.test\nzone_file: example.zone\n");
    let hale = Hale::serve(folder.path());
    for (number, (serial, told)) in [
        (10, "the zone example.test. has changed, and its serial is still 10"),
        (9, "the serial of the zone example.test. goes back from 10 to 9"),
    ]
    .into_iter()
    .enumerate()
    {
        let mark = hale.mark();
        let address = format!("192.0.2.{}", number + 2);
        folder
            .write("example.zone", &master(serial).replace("$INCLUDE www.zone", &format!("www A {address}")));
        hale.line_after(mark, told);
        becomes(&hale, &address);
    }
    let mark = hale.mark();
    folder.write("example.zone", &master(11).replace("$INCLUDE www.zone", "www A 192.0.2.9"));
    becomes(&hale, "192.0.2.9");
    hale.line_after(mark, RELOADED);
    assert_eq!(hale.count("who goes by that number"), 2, "{}", hale.log());
}
