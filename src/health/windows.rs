//! Windows of wall-clock time: whether one is open, and when that changes.

use crate::model::Window;

const DAY: u64 = 86_400;
const WEEK: u64 = 7 * DAY;
/// 1 January 1970 was a Thursday.
const EPOCH_IN_WEEK: u64 = 3 * DAY;

/// Whether the window is open at a Unix time, and when it next opens or closes.
pub fn state(window: Window, unix: u64) -> (bool, Option<u64>) {
    match window {
        Window::Once { from, until } => match () {
            _ if unix < from => (false, Some(from)),
            _ if unix < until => (true, Some(until)),
            _ => (false, None),
        },
        Window::Weekly { from, length } => {
            let (from, length) = (u64::from(from), u64::from(length).min(WEEK));
            let passed = (unix + EPOCH_IN_WEEK + WEEK - from % WEEK) % WEEK;
            match passed < length {
                // added first: a window may have opened before 1970
                true => (true, Some(unix + length - passed)),
                false => (false, Some(unix + WEEK - passed)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_opens_and_closes() {
        const MONDAY: u64 = 1_764_547_200; // 2025-12-01T00:00:00Z
        let once = Window::Once { from: 100, until: 200 };
        let sunday = Window::Weekly { from: (6 * DAY + 23 * 3600) as u32, length: 2 * 3600 };
        for (window, unix, expected) in [
            (once, 99, (false, Some(100))),
            (once, 100, (true, Some(200))),
            (once, 199, (true, Some(200))),
            (once, 200, (false, None)),
            (sunday, MONDAY, (true, Some(MONDAY + 3600))),
            (sunday, MONDAY + 3599, (true, Some(MONDAY + 3600))),
            (sunday, MONDAY + 3600, (false, Some(MONDAY + WEEK - 3600))),
            (sunday, MONDAY - 3600, (true, Some(MONDAY + 3600))),
            (sunday, 0, (false, Some(3 * DAY + 23 * 3600))),
            (Window::Weekly { from: 0, length: WEEK as u32 }, 0, (true, Some(4 * DAY))),
        ] {
            assert_eq!(state(window, unix), expected, "{window:?} at {unix}");
        }
    }
}
