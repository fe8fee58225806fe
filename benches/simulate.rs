//! Many worlds: `cargo bench --bench simulate -- --seeds 100000`.
//!
//! Lives through worlds made from seeds on all cores, and tells what was
//! broken in which; with `--sabotage NAME` in worlds broken on purpose. A seed is enough to see it again:
//! `HALE_SEEDS=7-8 cargo test --test it simulation`.

use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use haledns::simulate::{Sabotage, Tally, run};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str, usual: u64| {
        let place = arguments.iter().position(|argument| argument == name)?;
        Some(arguments.get(place + 1)?.parse().unwrap_or(usual))
    };
    let from = number("--from", 0).unwrap_or(0);
    let seeds = number("--seeds", 2000).unwrap_or(2000);
    let wanted = arguments.iter().position(|argument| argument == "--sabotage");
    let name = wanted.and_then(|place| arguments.get(place + 1));
    let sabotage = name.map(|name| {
        let found = Sabotage::ALL.into_iter().find(|sabotage| format!("{sabotage:?}") == *name);
        found.unwrap_or_else(|| panic!("--sabotage {name}: not one of {:?}", Sabotage::ALL))
    });
    let next = AtomicU64::new(from);
    let total = Mutex::new(Tally::default());
    let broken = Mutex::new(Vec::new());
    let began = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + seeds {
                        return;
                    }
                    let lived = catch_unwind(|| run(seed, sabotage));
                    match lived.unwrap_or_else(|_| Err(format!("seed {seed}: a panic"))) {
                        Ok(tally) => add(&mut total.lock().unwrap(), tally),
                        Err(what) => {
                            println!("{what}");
                            broken.lock().unwrap().push(seed);
                        }
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut told = Instant::now();
            while next.load(Ordering::Relaxed) < from + seeds {
                std::thread::sleep(Duration::from_millis(100));
                if told.elapsed() > Duration::from_secs(10) {
                    told = Instant::now();
                    let done = next.load(Ordering::Relaxed).saturating_sub(from).min(seeds);
                    println!("{done} of {seeds} worlds after {:.0} s", began.elapsed().as_secs_f64());
                }
            }
        });
    });
    let total = total.into_inner().unwrap();
    let broken = broken.into_inner().unwrap();
    println!("worlds       {seeds}, from seed {from}");
    println!("their time   {:.1} days", total.seconds as f64 / 86_400.0);
    println!("probes       {}", total.probes);
    println!("changes      {}", total.changes);
    println!("reloads      {}", total.reloads);
    println!("restarts     {}", total.restarts);
    println!("broken       {}", broken.len());
    println!("took         {:.0} s on {threads} threads", began.elapsed().as_secs_f64());
    if !broken.is_empty() {
        std::process::exit(1);
    }
}

fn add(total: &mut Tally, one: Tally) {
    total.probes += one.probes;
    total.changes += one.changes;
    total.reloads += one.reloads;
    total.restarts += one.restarts;
    total.seconds += one.seconds;
}
