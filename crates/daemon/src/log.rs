//! What an administrator is to know: records with a level, and with fields where a journal takes them.
//!
//! Under systemd they go to the journal with their fields, which all begin with `COREWISE_`:
//! `journalctl -u corewise COREWISE_EVENT=guard` finds what the guard has found. Elsewhere they are lines on
//! standard error. Any part of the daemon writes them by the macros of the crate `log`.
//!
//! Whatever happens to the machine's programs, and whatever clients do, there are no more than
//! [`RECORDS_MAX`] records of an event in [`WINDOW`]; what is left out is counted, and the next window's
//! first record says how much. Each event is counted apart, so that nobody who causes many records of one
//! event suppresses those of others, such as the end of the daemon. There are as many events as the daemon's
//! code names.
//!
//! Nothing waits for the journal ([`journal`]) or for the reader of standard error
//! ([`corewise_sys::standard_error`]): what they do not take is left out and counted ([`left_out`]).

mod journal;

use corewise_render::terminal;
use corewise_sys::standard_error;
use journal::Journal;
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The records of an event in a window.
const RECORDS_MAX: u32 = 100;
const WINDOW: Duration = Duration::from_secs(60);

/// The beginning of the modules whose records are ours.
const OURS: &str = "corewise";

/// Begins to log at this level, once for the process.
pub fn begin(level: LevelFilter) {
    let to: Box<dyn Log> = match Journal::of_standard_error() {
        Some(journal) => Box::new(journal),
        None => Box::new(Lines),
    };
    // Nobody else in this process logs.
    if log::set_boxed_logger(Box::new(Bounded { to, windows: Mutex::default() })).is_ok() {
        log::set_max_level(level);
    }
}

/// Returns how many records were left out because nobody took them.
pub fn left_out() -> u64 {
    journal::left_out() + standard_error::left_out()
}

impl Log for Journal {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        self.send(record);
    }

    fn flush(&self) {}
}

/// Lines on standard error.
struct Lines;

impl Log for Lines {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        terminal::message(line(record));
    }

    fn flush(&self) {}
}

fn line(record: &Record<'_>) -> String {
    let level = match record.level() {
        Level::Error => "error: ",
        Level::Warn => "warning: ",
        Level::Info | Level::Debug | Level::Trace => "",
    };
    format!("{level}{}", record.args())
}

/// Passes on a bounded number of records.
struct Bounded {
    to: Box<dyn Log>,
    /// By the event.
    windows: Mutex<HashMap<String, Window>>,
}

impl Log for Bounded {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with(OURS)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let event = record.key_values().get("corewise_event".into());
        let event = event.map(|event| event.to_string()).unwrap_or_default();
        let Ok(mut windows) = self.windows.lock() else { return };
        let admitted = windows.entry(event).or_default().admit(Instant::now());
        drop(windows);
        let Some(left_out) = admitted else { return };
        if left_out > 0 {
            let fields = [("corewise_event", "left_out")];
            self.to.log(
                &Record::builder()
                    .level(Level::Warn)
                    .target(OURS)
                    .key_values(&fields)
                    .args(format_args!("{left_out} messages like the next were left out before"))
                    .build(),
            );
        }
        self.to.log(record);
    }

    fn flush(&self) {}
}

/// What was written of an event in the present window.
#[derive(Default)]
struct Window {
    began: Option<Instant>,
    written: u32,
    left_out: u32,
}

impl Window {
    /// Returns whether another record may be written, and how many were left out before it.
    fn admit(&mut self, now: Instant) -> Option<u32> {
        let mut left_out = 0;
        if self.began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            left_out = std::mem::take(self).left_out;
            self.began = Some(now);
        }
        if self.written == RECORDS_MAX {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<String>>>);

    impl Log for Kept {
        fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &Record<'_>) {
            self.0.lock().unwrap().push(line(record));
        }

        fn flush(&self) {}
    }

    #[test]
    fn a_flood_is_bounded_and_the_log_says_how_much_is_left_out() {
        let (kept, now) = (Kept::default(), Instant::now());
        let log = Bounded { to: Box::new(kept.clone()), windows: Mutex::default() };
        let tell_of = |event: &str, target: &str, text: &str| {
            let (mut record, fields) = (Record::builder(), [("corewise_event", event)]);
            let record = record.level(Level::Warn).target(target).key_values(&fields);
            log.log(&record.args(format_args!("{text}")).build());
        };
        let tell = |target: &str, text: &str| tell_of("client_refused", target, text);
        for number in 0..2 * RECORDS_MAX {
            tell("corewise::daemon", &number.to_string());
        }
        tell("another_crate", "not ours");
        let lines = || kept.0.lock().unwrap().clone();
        assert_eq!(lines().len() as u32, RECORDS_MAX);
        assert_eq!(lines()[1], "warning: 1");
        tell_of("end", "corewise::daemon", "ended");
        assert_eq!(lines().last().unwrap(), "warning: ended", "what clients cause suppresses nothing else");
        // The window ends.
        log.windows.lock().unwrap().get_mut("client_refused").unwrap().began = now.checked_sub(WINDOW);
        tell("corewise::daemon", "next");
        let count = format!("warning: {RECORDS_MAX} messages like the next were left out before");
        assert_eq!(lines()[RECORDS_MAX as usize + 1..], [count, "warning: next".to_owned()]);
    }
}
