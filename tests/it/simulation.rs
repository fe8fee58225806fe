//! Worlds made from seeds: what must always hold does, and is noticed when it
//! doesn't.

use haledns::simulate::{Sabotage, run};

/// So many seeds are lived through each time; `HALE_SEEDS=1000-2000` asks for
/// others.
const SEEDS: std::ops::Range<u64> = 0..400;

fn seeds() -> std::ops::Range<u64> {
    let asked = std::env::var("HALE_SEEDS").ok();
    let range = asked.as_deref().and_then(|text| {
        let (from, to) = text.split_once('-')?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    range.unwrap_or(SEEDS)
}

#[test]
fn nothing_is_broken_in_any_world() {
    let broken: Vec<String> = seeds().filter_map(|seed| run(seed, None).err()).take(20).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_broken_rule_is_noticed() {
    for sabotage in Sabotage::ALL {
        // a world that is broken without it says nothing of it
        let mut broken = (0..200).filter_map(|seed| Some((seed, run(seed, Some(sabotage)).err()?)));
        let noticed = broken.find(|(seed, _)| run(*seed, None).is_ok()).map(|(_, what)| what);
        println!("{sabotage:?}: {}", noticed.as_deref().unwrap_or("not noticed"));
        assert!(noticed.is_some(), "{sabotage:?} is noticed in no world");
    }
}
