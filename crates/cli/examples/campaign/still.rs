//! Faults of a corewise that is there but does nothing: hung, stopped, or with a log that nobody reads.

use super::kinds::{Kind, Wrap, kind, next_start};
use super::round::Round;
use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP};

/// The same with a program by chance: bound threads, spin counts or turns.
const fn any(name: &'static str, act: fn(&mut Round)) -> Kind {
    Kind { program: None, ..kind(name, act) }
}

/// All kinds.
pub static KINDS: [Kind; 8] = [
    Kind { wrap: Wrap::UnreadLog, ..any("log unread, end", |round| round.end()) },
    Kind {
        wrap: Wrap::UnreadLog,
        ..any("log unread, kill", |round| {
            round.send(&round.corewise("run"), SIGKILL);
            round.wait_alone();
        })
    },
    any("hung, end", |round| {
        hang(round);
        round.thaw();
        round.pause(300);
        round.must_be_given_back("after it hung");
        round.end();
    }),
    any("hung, kill", |round| {
        hang(round);
        round.thaw();
        round.send(&round.corewise("run"), SIGKILL);
        round.wait_alone();
    }),
    any("stopped for long, end", |round| {
        stop(round);
        round.send(&round.corewise("run"), SIGCONT);
        round.pause(1000);
        round.end();
    }),
    any("stopped for long, go on, kill", |round| {
        stop(round);
        round.send(&round.corewise("run"), SIGCONT);
        round.pause(1000);
        round.send(&round.corewise("run"), SIGKILL);
        round.wait_alone();
    }),
    any("stopped for long, kill", |round| {
        stop(round);
        round.send(&round.corewise("run"), SIGKILL);
        round.wait_alone();
    }),
    any("both stopped, kill both", |round| {
        let both = [round.corewise("run"), round.corewise("guardian")].concat();
        round.send(&both, SIGSTOP);
        round.pause(100);
        round.send(&both, SIGKILL);
        next_start(round);
    }),
];

/// Stops corewise until its guardian has given everything back.
fn stop(round: &mut Round) {
    round.send(&round.corewise("run"), SIGSTOP);
    round.must_be_given_back("while corewise was stopped");
}

/// Lets corewise hang until its guardian has given everything back.
fn hang(round: &mut Round) {
    round.freeze("run");
    round.must_be_given_back("while corewise hung");
}
