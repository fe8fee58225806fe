//! The state directory on a real disk.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use haledns::health::{EndpointKey, MachineMemory, Memory, Record, TargetKey, TargetMemory, Verdict};
use haledns::moment::Moment;
use haledns::state::{self, Directory, JOURNAL, Journal, OpenError};

use crate::support::folder::Folder;
use crate::support::hale::until;

fn at(second: u64) -> Moment {
    Moment::from_start(Duration::from_secs(second))
}

fn target(number: u32, verdict: Verdict, second: u64) -> Record {
    let endpoint = EndpointKey {
        pool: "eu".into(),
        endpoint: format!("eu-{number}").into(),
        address: std::net::Ipv4Addr::from(number).into(),
    };
    let key = TargetKey { endpoint, monitor: "web".into(), vantage: "local".into() };
    let machine = MachineMemory { verdict, since: at(second), run: None };
    Record::Target(key, TargetMemory { test: 7, machine, reported: Some(at(second)) })
}

fn memory(records: &[Record]) -> Memory {
    let mut memory = Memory::default();
    records.iter().for_each(|record| memory.take(record.clone()));
    memory
}

fn open(folder: &Folder) -> Directory {
    Directory::open(folder.path()).unwrap()
}

/// Files that were set aside, by name.
fn aside(folder: &Folder) -> Vec<String> {
    let names = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.starts_with("verdicts.bad-"));
    names.sort();
    names
}

#[test]
fn what_is_written_is_read_by_the_next_run() {
    let folder = Folder::new();
    let first = [target(1, Verdict::Healthy, 1), target(2, Verdict::Healthy, 1)];
    let later = [target(1, Verdict::Unhealthy, 2), Record::Alive(at(3))];
    let journal = Journal::begin(Arc::new(open(&folder)), memory(&first));
    later.iter().for_each(|record| journal.append(record.clone()));
    journal.end();
    until("the lock is free", || Directory::open(folder.path()).is_ok());
    assert_eq!(open(&folder).read(), memory(&[&first[..], &later[..]].concat()));
    assert!(!folder.join("verdicts.new").exists());
}

#[test]
fn a_file_that_grows_is_written_anew() {
    let folder = Folder::new();
    let journal = Journal::begin(Arc::new(open(&folder)), Memory::default());
    let mut second = 0;
    until("it wants all", || {
        for _ in 0..100 {
            second += 1;
            journal.append(target(1, Verdict::Healthy, second));
        }
        journal.wants_all()
    });
    let size = || fs::metadata(folder.join(JOURNAL)).unwrap().len();
    assert!(size() > 64 << 10, "{}", size());
    let newest = target(1, Verdict::Unhealthy, second + 1);
    journal.append(newest.clone());
    journal.rewrite(memory(std::slice::from_ref(&newest)));
    journal.end();
    assert!(size() < 1000, "{}", size());
    until("the lock is free", || Directory::open(folder.path()).is_ok());
    assert_eq!(open(&folder).read(), memory(&[newest]));
}

#[test]
fn a_directory_is_one_servers() {
    let folder = Folder::new();
    let first = open(&folder);
    match Directory::open(folder.path()) {
        Err(OpenError::Held { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
        other => panic!("{other:?}"),
    }
    drop(first);
    open(&folder);
}

/// A power cut while the file is written anew leaves the old one, whole, and
/// perhaps a part of the new one beside it.
#[test]
fn a_file_half_written_beside_is_not_looked_at() {
    let folder = Folder::new();
    let records = [target(1, Verdict::Unhealthy, 5), Record::Alive(at(6))];
    let text: String = state::head() + &records.iter().map(state::line).collect::<String>();
    folder.write(JOURNAL, &text);
    let beside = state::head() + &state::line(&target(1, Verdict::Healthy, 9));
    for length in [0, 1, beside.len() / 2, beside.len()] {
        folder.write("verdicts.new", &beside[..length]);
        assert_eq!(open(&folder).read(), memory(&records), "{length} octets beside");
        assert_eq!(aside(&folder), [""; 0]);
    }
    let directory = Arc::new(open(&folder));
    Journal::begin(Arc::clone(&directory), directory.read()).end();
    assert_eq!(directory.read(), memory(&records));
    assert!(!folder.join("verdicts.new").exists());
}

/// Every length and every octet of a journal of some 4 KiB, on the disk.
#[test]
fn a_journal_cut_off_or_changed_anywhere_is_opened_and_never_better_than_it_was() {
    let folder = Folder::new();
    let directory = open(&folder);
    let mut story = Vec::new();
    for second in 0..20 {
        let verdict = if second % 3 == 0 { Verdict::Unhealthy } else { Verdict::Healthy };
        story.push(target(second as u32 % 4, verdict, second));
    }
    let lines: Vec<String> = story.iter().map(state::line).collect();
    let text = state::head() + &lines.concat();
    assert!((3000..6000).contains(&text.len()), "{} octets", text.len());
    // how many whole records stand before an octet
    let whole = |place: usize| text[..place].matches('\n').count().saturating_sub(1);
    for length in 0..=text.len() {
        fs::write(folder.join(JOURNAL), &text[..length]).unwrap();
        assert_eq!(directory.read(), memory(&story[..whole(length)]), "{length} octets");
    }
    for place in 0..text.len() {
        let mut octets = text.clone().into_bytes();
        octets[place] ^= 0x15;
        fs::write(folder.join(JOURNAL), &octets).unwrap();
        let read = directory.read();
        let lost = match place < state::head().len() {
            true => 0..story.len(),
            false if text.as_bytes()[place] == b'\n' => whole(place)..(whole(place) + 2).min(story.len()),
            false => whole(place)..whole(place) + 1,
        };
        assert_eq!(read, memory(&[&story[..lost.start], &story[lost.end..]].concat()), "octet {place}");
    }
    assert!(aside(&folder).len() <= 3, "{:?}", aside(&folder));
    assert!(!aside(&folder).is_empty());
}

#[test]
fn a_directory_that_was_replaced_is_taken_anew_unless_another_server_holds_it() {
    let folder = Folder::new();
    let path = folder.join("state");
    let ours = Directory::open(&path).unwrap();
    let taken = ours.taken();
    assert!(ours.is_there());
    fs::remove_dir_all(&path).unwrap();
    assert!(!ours.is_there());
    ours.retake().unwrap();
    assert!(ours.is_there() && taken.has_changed().unwrap());
    fs::rename(&path, folder.join("moved")).unwrap();
    let other = Directory::open(&path).unwrap();
    assert!(!ours.is_there());
    assert!(matches!(ours.retake(), Err(OpenError::Held { .. })));
    drop(other);
    ours.retake().unwrap();
    assert!(ours.is_there());
}

#[test]
fn a_journal_that_is_no_regular_file_is_set_aside() {
    let folder = Folder::new();
    let directory = open(&folder);
    std::os::unix::fs::symlink("/dev/zero", directory.join("verdicts")).unwrap();
    assert_eq!(directory.read(), Memory::default());
    assert_eq!(aside(&folder).len(), 1);
}

#[test]
fn a_link_beside_the_journal_is_not_followed() {
    let folder = Folder::new();
    let directory = Arc::new(open(&folder));
    let elsewhere = folder.join("elsewhere");
    fs::write(&elsewhere, "precious").unwrap();
    std::os::unix::fs::symlink(&elsewhere, directory.join("verdicts.new")).unwrap();
    Journal::begin(Arc::clone(&directory), Memory::default()).end();
    assert_eq!(fs::read_to_string(elsewhere).unwrap(), "precious");
    assert!(fs::symlink_metadata(directory.join("verdicts")).unwrap().is_file());
}
