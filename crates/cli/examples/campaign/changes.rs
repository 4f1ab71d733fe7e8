//! Faults while spin counts are lowered, while programs take turns, and of the journal.

use super::kinds::{Kind, kind, next_start, no_descriptors, no_memory};
use super::program::Program;
use super::round::Round;
use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// What the programs are ordered to do just before a fault.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Orders(pub &'static [u8]);

const fn of(name: &'static str, program: Program, orders: &'static [u8], act: fn(&mut Round)) -> Kind {
    Kind { program: Some(program), orders: Orders(orders), ..kind(name, act) }
}

const fn journal(name: &'static str, act: fn(&mut Round)) -> Kind {
    Kind { program: None, ..kind(name, act) }
}

/// The same where what cannot be known any more must be said.
const fn lost(name: &'static str, act: fn(&mut Round)) -> Kind {
    Kind { may_be_lost: true, ..journal(name, act) }
}

use Program::{Reuse, Team, Turns};

/// All kinds.
pub static KINDS: [Kind; 37] = [
    of("spin: kill corewise", Team, b"", kill),
    of("spin: kill both", Team, b"", kill_both),
    of("spin: stop guardian, kill", Team, b"", kill_while_guardian_is_stopped),
    of("spin: end", Team, b"", end_by_program),
    of("spin, daemons: kill corewise", Team, b"ddd", kill),
    of("spin, daemons: kill both", Team, b"ddd", kill_both),
    of("spin, daemons: end", Team, b"ddd", end_by_program),
    of("spin, forks: kill corewise", Team, b"fff", kill),
    of("spin, forks: kill both", Team, b"fff", kill_both),
    of("spin, forks: end", Team, b"fff", end_by_program),
    of("spin, exec: kill corewise", Team, b"dfe", kill),
    of("spin, exec: kill both", Team, b"dfe", kill_both),
    of("library reused: kill corewise", Reuse, b"x", kill),
    of("library reused: kill both", Reuse, b"x", kill_both),
    of("library reused: end", Reuse, b"x", end_by_program),
    of("turns: kill corewise", Turns, b"", kill),
    of("turns: kill both", Turns, b"", kill_both),
    of("turns: end", Turns, b"", end_by_program),
    of("turns, daemons: kill corewise", Turns, b"dddd", kill),
    of("turns, daemons: kill both", Turns, b"dddd", kill_both),
    of("turns, daemons: end", Turns, b"dddd", end_by_program),
    of("turns, forks: kill corewise", Turns, b"ffff", kill),
    of("turns: corewise stopped alone", Turns, b"d", stop_alone),
    of("turns: foreign lock, kill", Turns, b"", lock_turns),
    of("spin: no descriptors, end", Team, b"", end_without_descriptors),
    of("spin: no descriptors, kill", Team, b"df", kill_without_descriptors),
    of("spin: no memory, end", Team, b"", end_without_memory),
    of("turns: no descriptors, end", Turns, b"", end_without_descriptors),
    of("turns: no descriptors, kill", Turns, b"dd", kill_without_descriptors),
    of("turns: no memory, end", Turns, b"", end_without_memory),
    of("library reused: no descriptors, end", Reuse, b"x", end_without_descriptors),
    journal("journal emptied, kill corewise", |round| {
        empty(round);
        kill(round);
    }),
    lost("journal emptied, kill both", |round| {
        empty(round);
        kill_both(round);
    }),
    journal("journal overwritten, kill", |round| {
        overwrite(round);
        kill(round);
    }),
    lost("journal overwritten, kill both", |round| {
        overwrite(round);
        kill_both(round);
    }),
    journal("directory opened, kill", |round| {
        open_to_all(round, 0o777);
        kill(round);
    }),
    journal("directory opened, kill both", |round| {
        open_to_all(round, 0o755);
        kill_both(round);
        round.must_have_said("cannot use");
        open_to_all(round, 0o700);
        round.next_start();
    }),
];

fn kill(round: &mut Round) {
    round.send(&round.corewise("run"), SIGKILL);
    round.wait_alone();
}

/// In any order, and neither does anything after the first has died.
fn kill_both(round: &mut Round) {
    let mut both = round.corewise("run");
    both.extend(round.corewise("guardian"));
    round.chance.shuffle(&mut both);
    round.send(&both, SIGSTOP);
    round.send(&both, SIGKILL);
    round.wait_alone();
    next_start(round);
}

fn end_without_descriptors(round: &mut Round) {
    no_descriptors(round, &["run"]);
    end_by_program(round);
}

fn kill_without_descriptors(round: &mut Round) {
    no_descriptors(round, &["run"]);
    kill(round);
}

fn end_without_memory(round: &mut Round) {
    no_memory(round, &["run"]);
    round.end();
}

fn kill_while_guardian_is_stopped(round: &mut Round) {
    let guardian = round.corewise("guardian");
    round.send(&guardian, SIGSTOP);
    round.send(&round.corewise("run"), SIGKILL);
    next_start(round);
    let signal = [SIGKILL, SIGCONT][round.chance.below(2)];
    round.send(&guardian, signal);
    round.wait_alone();
}

/// The program is killed; what it has started lives on.
fn end_by_program(round: &mut Round) {
    round.send(&round.command(), SIGKILL);
    round.end();
}

/// Programs must be normal while it is stopped.
fn stop_alone(round: &mut Round) {
    let corewise = round.corewise("run");
    for _ in 0..3 {
        round.send(&corewise, SIGSTOP);
        round.must_end_turns();
        round.send(&corewise, SIGCONT);
        round.pause(150);
    }
    if round.chance.below(2) == 0 { kill(round) } else { end_by_program(round) }
}

/// Another program locks most of the file of turns.
fn lock_turns(round: &mut Round) {
    let _lock = round.lock_turns();
    round.pause(300);
    round.must_run();
    kill(round);
}

fn empty(round: &mut Round) {
    round.journals().iter().for_each(|path| fs::write(path, "").expect("it is ours"));
    round.pause(20);
}

fn overwrite(round: &mut Round) {
    let text = ["\0".repeat(20), "nonsense\n".repeat(20), "anew\ncomplete\nx\n".to_owned()];
    let text = &text[round.chance.below(3)];
    for path in round.journals() {
        let mut bytes = fs::read(&path).expect("it is ours");
        let length = text.len().min(bytes.len());
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        fs::write(path, bytes).expect("it is ours");
    }
    round.pause(20);
}

fn open_to_all(round: &mut Round, mode: u32) {
    fs::set_permissions(round.journal_directory(), PermissionsExt::from_mode(mode)).expect("it is ours");
}
