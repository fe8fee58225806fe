//! Certificates that are renewed under a running server.

use std::os::unix::fs::symlink;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

use super::encrypted::{TlsStream, client, tls_over};
use super::*;
use crate::support::certificates::{Authority, Identity};
use crate::support::dns;
use crate::support::folder::Folder;
use crate::support::hale::{Hale, command, run};

const ZONE: &str = "zone: example.com\nrecords: { '': { type: NS, value: ns1.example.net. } }\n";

/// A server whose certificate and key lie here.
fn serve(folder: &Folder, certificate: &str, key: &str) -> Hale {
    let server = format!(
        "server: {{ listen_tls: 127.0.0.1:0, certificate: {certificate}, private_key: {key} }}\n{ZONE}"
    );
    folder.write("a.yaml", &server);
    let path = folder.join("a.yaml");
    let hale = Hale::start(command(["serve", path.to_str().unwrap(), "--listen", "127.0.0.1:0"]));
    hale.line("DNS over TLS");
    hale
}

fn put(folder: &Folder, own: &Identity) {
    folder.replace("own.pem", &own.pem);
    folder.replace("own.key", &own.key_pem);
}

/// A new connection, and the certificate it was shown.
fn connect(hale: &Hale, roots: &RootCertStore) -> (TlsStream, CertificateDer<'static>) {
    let address = hale.addresses()[1];
    let mut stream = tls_over(tcp(address), &Arc::new(client(roots.clone(), &["dot"])));
    ask_over(&mut stream, 1);
    let shown = stream.conn.peer_certificates().unwrap()[0].clone().into_owned();
    (stream, shown)
}

#[test]
fn a_renewed_certificate_is_shown_to_new_connections_while_old_ones_go_on() {
    let authority = Authority::new();
    let (first, second) =
        (authority.issue(&["localhost"], 2020, 2100), authority.issue(&["localhost"], 2021, 2100));
    let folder = Folder::new();
    put(&folder, &first);
    let hale = serve(&folder, "own.pem", "own.key");
    let (mut old, shown) = connect(&hale, &authority.store());
    assert_eq!(shown, first.chain[0]);
    put(&folder, &second);
    hale.line("is in force for new connections");
    assert_eq!(connect(&hale, &authority.store()).1, second.chain[0]);
    ask_over(&mut old, 2);
    // half of another pair changes nothing
    let mark = hale.mark();
    folder.replace("own.pem", &first.pem);
    hale.line_after(mark, "the certificate in force stays");
    hale.line_after(mark, "`private_key` is not the key of `certificate`");
    assert_eq!(connect(&hale, &authority.store()).1, second.chain[0]);
    let mark = hale.mark();
    folder.replace("own.key", "nothing at all");
    hale.line_after(mark, "no PEM private key in it");
    let mark = hale.mark();
    put(&folder, &first);
    hale.line_after(mark, "is in force for new connections");
    assert_eq!(connect(&hale, &authority.store()).1, first.chain[0]);
    ask_over(&mut old, 3);
}

#[test]
fn a_link_that_is_swapped_is_a_renewal() {
    let authority = Authority::new();
    let folder = Folder::new();
    let identities = [2020, 2021].map(|year| authority.issue(&["localhost"], year, 2100));
    for (own, version) in identities.iter().zip(["v1", "v2"]) {
        std::fs::create_dir(folder.join(version)).unwrap();
        folder.write(&format!("{version}/tls.crt"), &own.pem);
        folder.write(&format!("{version}/tls.key"), &own.key_pem);
    }
    // as Kubernetes mounts secrets: files link into a folder that is a link itself
    symlink("v1", folder.join("..data")).unwrap();
    symlink("..data/tls.crt", folder.join("tls.crt")).unwrap();
    symlink("..data/tls.key", folder.join("tls.key")).unwrap();
    let hale = serve(&folder, "tls.crt", "tls.key");
    assert_eq!(connect(&hale, &authority.store()).1, identities[0].chain[0]);
    symlink("v2", folder.join("..new")).unwrap();
    std::fs::rename(folder.join("..new"), folder.join("..data")).unwrap();
    hale.line("is in force for new connections");
    assert_eq!(connect(&hale, &authority.store()).1, identities[1].chain[0]);
}

#[test]
fn an_expired_certificate_is_warned_of_at_the_start_at_a_renewal_and_by_check() {
    let authority = Authority::new();
    let folder = Folder::new();
    put(&folder, &authority.issue(&["localhost"], 2020, 2021));
    let hale = serve(&folder, "own.pem", "own.key");
    assert!(hale.log().contains("expired at 2021-01-01T00:00:00Z"), "{}", hale.log());
    put(&folder, &authority.issue(&["localhost"], 2090, 2091));
    hale.line("is valid only from 2090-01-01T00:00:00Z on: clients refuse it");
    let path = folder.join("a.yaml");
    let checked = run(["check", path.to_str().unwrap()]);
    assert_eq!(checked.code(), Some(0));
    assert!(checked.out.contains("warning[certificate_time]"), "{}", checked.out);
}

#[test]
fn a_certificate_that_is_gone_holds_up_no_other_change_and_says_where_it_is_named() {
    let server = "server: { listen_tls: 127.0.0.1:0, certificate: own.pem, private_key: own.key }\n";
    let with = |address: &str| {
        let records =
            format!("'': {{ type: NS, value: ns1.example.net. }}, www: {{ type: A, value: {address} }}");
        format!("{server}zone: example.com\nrecords: {{ {records} }}\n")
    };
    let authority = Authority::new();
    let (first, second) =
        (authority.issue(&["localhost"], 2020, 2100), authority.issue(&["localhost"], 2021, 2100));
    let folder = Folder::new();
    put(&folder, &first);
    let hale = serve(&folder, "own.pem", "own.key");
    let mark = hale.mark();
    std::fs::remove_file(folder.join("own.pem")).unwrap();
    hale.line_after(mark, "the certificate in force stays, and a start would be refused; all else is taken");
    let column = server.find("own.pem").expect("it is named") + 1;
    hale.line_after(mark, &format!("a.yaml:1:{column}: error:"));
    let answers = |address: &str| {
        until(address, || dns::ask(hale.addresses()[0], "www.example.com.").is(&[address]));
    };
    folder.replace("a.yaml", &with("192.0.2.7"));
    answers("192.0.2.7");
    assert_eq!(connect(&hale, &authority.store()).1, first.chain[0]);
    let asked = |arguments: &[&str]| {
        let at = ["--state-dir", hale.state_dir().to_str().unwrap()];
        let ended = run([arguments, &at].concat());
        assert_eq!(ended.code(), Some(0), "{}", ended.log);
        ended.out
    };
    let files = || {
        let shown: serde_json::Value = serde_json::from_str(&asked(&["status", "--json"])).unwrap();
        shown["files"].clone()
    };
    let kept = files();
    assert!(
        kept["certificate_kept"].as_str().unwrap().contains(&format!("a.yaml:1:{column}: error: ")),
        "{kept}"
    );
    assert_eq!((kept["state"].as_str(), kept["start_refused"].as_bool()), (Some("in_force"), Some(true)));
    let shown = asked(&["status"]);
    assert!(shown.starts_with("the certificate in force is an older one than the files name"), "{shown}");
    let reloaded = || -> serde_json::Value { serde_json::from_str(&asked(&["reload", "--json"])).unwrap() };
    let told = reloaded();
    assert!(told["message"].as_str().unwrap().starts_with("all but the certificate is read again"), "{told}");
    let note = told["notes"][0].as_str().unwrap();
    assert!(note.starts_with("the certificate in force stays, and a start would be refused: "), "{note}");
    assert!(note.contains(&format!("a.yaml:1:{column}: error: ")) && !note.contains('\n'), "{note}");
    // any other error refuses all
    let mark = hale.mark();
    folder.replace("a.yaml", &with("192.0.2"));
    hale.line_after(mark, "configuration not reloaded, the last good one stays in force");
    folder.replace("a.yaml", &with("192.0.2.8"));
    answers("192.0.2.8");
    let mark = hale.mark();
    hale.signal(rustix::process::Signal::HUP);
    hale.line_after(mark, "the certificate in force stays");
    assert_eq!(hale.count("it is in order"), 0, "{}", hale.log());
    let mark = hale.mark();
    put(&folder, &first);
    hale.line_after(mark, "it is in order, and says what is in force");
    assert_eq!(files()["certificate_kept"], serde_json::Value::Null);
    assert_eq!(files()["start_refused"], false);
    let mark = hale.mark();
    put(&folder, &second);
    hale.line_after(mark, "is in force for new connections");
    assert_eq!(connect(&hale, &authority.store()).1, second.chain[0]);
}

#[test]
fn who_asks_for_a_reload_hears_that_the_new_certificate_has_expired() {
    let authority = Authority::new();
    let folder = Folder::new();
    put(&folder, &authority.issue(&["localhost"], 2020, 2100));
    let hale = serve(&folder, "own.pem", "own.key");
    let state = hale.state_dir().to_str().unwrap();
    put(&folder, &authority.issue(&["localhost"], 2020, 2021));
    let ended = run(["reload", "--json", "--state-dir", state]);
    assert_eq!(ended.code(), Some(0), "{}", ended.log);
    let told: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    let note = told["notes"][0].as_str().unwrap();
    assert!(note.contains("own.pem expired at 2021-01-01T00:00:00Z: clients refuse it"), "{note}");
}

#[test]
fn a_start_without_its_certificate_is_refused() {
    let folder = Folder::new();
    let server = "server: { listen_tls: 127.0.0.1:0, certificate: own.pem, private_key: own.key }\n";
    folder.write("a.yaml", &format!("{server}{ZONE}"));
    let path = folder.join("a.yaml");
    let ended = run(["serve", path.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.log.contains("own.pem"), "{}", ended.log);
}
