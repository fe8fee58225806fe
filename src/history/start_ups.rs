//! How long endpoints took to come back, as far as the history has it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::events::{Event, Kind, NewHealth};
use crate::timing::{StartUp, StartUps};

/// What is out for longer was broken: somebody mended it, it didn't just start.
const LONGEST: Duration = Duration::from_secs(600);

/// From so many on there is something typical.
const ENOUGH: usize = 3;

/// What is typical of the endpoints of each pool in the history of a folder.
pub fn start_ups(folder: &Path) -> io::Result<StartUps> {
    let mut returns = Returns::default();
    super::read_files(super::open_all(folder)?, |event| {
        returns.add(&event);
        Ok(())
    })?;
    Ok(returns.typical())
}

/// By pool, for how many milliseconds its endpoints were out each time.
#[derive(Default)]
struct Returns(BTreeMap<String, Vec<u64>>);

impl Returns {
    fn add(&mut self, event: &Event) {
        let by_itself = event.cause.as_ref().is_some_and(|cause| cause.r#type == "probe");
        let returned = event.kind == Kind::Endpoint && event.new_health == NewHealth::Healthy;
        if !returned || !by_itself || event.from != "unhealthy" {
            return;
        }
        let Some((pool, _)) = event.object.split_once('/') else { return };
        match self.0.get_mut(pool) {
            Some(times) => times.push(event.lasted_ms),
            None => drop(self.0.insert(pool.to_owned(), vec![event.lasted_ms])),
        }
    }

    fn typical(self) -> StartUps {
        let of_pool = |(pool, mut times): (String, Vec<u64>)| {
            let count = times.len();
            let (_, median, _) = (count >= ENOUGH).then(|| times.select_nth_unstable(count / 2))?;
            let typical = Duration::from_millis(*median);
            let times = u32::try_from(count).unwrap_or(u32::MAX);
            (typical <= LONGEST).then_some((pool, StartUp { times, typical }))
        };
        self.0.into_iter().filter_map(of_pool).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn returned(object: &str, from: &str, cause: &str, seconds: u64) -> Event {
        let line = format!(
            "{{\"id\":\"1\",\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"kind\":\"endpoint\",\"object\":\"{object}\",\
             \"from\":\"{from}\",\"to\":\"healthy\",\"changed\":true,\"new_health\":\"healthy\",\"lasted_ms\":{},\
             \"summary\":\"\",\"reason\":\"\",\"cause\":{{\"type\":\"{cause}\"}}}}",
            seconds * 1000
        );
        Event::read(line.as_bytes()).expect("it is an event")
    }

    fn typical(events: &[Event]) -> Vec<(String, u32, u64)> {
        let mut returns = Returns::default();
        events.iter().for_each(|event| returns.add(event));
        let of_pool = |(pool, of): (String, StartUp)| (pool, of.times, of.typical.as_secs());
        returns.typical().into_iter().map(of_pool).collect()
    }

    #[test]
    fn what_comes_back_by_itself_three_times_shows_how_long_a_start_takes() {
        let times = |pool: &str, times: &[u64]| {
            times.iter().map(|time| returned(&format!("{pool}/e"), "unhealthy", "probe", *time)).collect()
        };
        let eu: Vec<Event> = times("eu", &[40, 4000, 45]);
        assert_eq!(typical(&eu), [("eu".to_owned(), 3, 45)], "one long failure beside starts changes little");
        assert_eq!(typical(&eu[..2]), [], "two are too few");
        let long: Vec<Event> = times("eu", &[4000, 4000, 45]);
        assert_eq!(typical(&long), [], "failures, not starts");
        let both: Vec<Event> = [eu, times("us", &[1, 1, 1])].concat();
        assert_eq!(typical(&both), [("eu".to_owned(), 3, 45), ("us".to_owned(), 3, 1)]);
    }

    #[test]
    fn what_somebody_or_time_brought_back_is_no_start() {
        for (from, cause) in
            [("unhealthy", "operator"), ("unhealthy", "reload"), ("drained", "probe"), ("unknown", "probe")]
        {
            let events: Vec<Event> = (0..3).map(|_| returned("eu/e", from, cause, 40)).collect();
            assert_eq!(typical(&events), [], "{from} {cause}");
        }
    }
}
