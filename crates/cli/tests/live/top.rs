//! `corewise top`: on a real terminal, which tmux makes, and as text.

use crate::attach::{Program, bound};
use crate::common::{burn, corewise, masks_of, wait_for};
use crate::daemon::{Daemon, POLICY, answer};
use corewise_testing::needs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// The colour of headings, as tmux tells it.
const CYAN: &str = "38;5;6m";

/// A terminal with a shell, which tells how each command has ended.
struct Terminal {
    directory: TempDir,
    corewise: Command,
}

impl Terminal {
    fn start() -> Terminal {
        let terminal = Terminal { directory: tempfile::tempdir().unwrap(), corewise: corewise() };
        // A pane has the environment of the server, which the first command starts.
        let shell = "exec env -u NO_COLOR bash --norc --noprofile";
        let started = terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", shell]);
        assert!(started.status.success(), "{started:?}");
        terminal.enter("PS1='ready> '");
        terminal.shows("ready> ");
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut tmux = Command::new("tmux");
        tmux.arg("-u").arg("-S").arg(self.directory.path().join("socket"));
        let runtime = self.corewise.get_envs().find(|(name, _)| *name == "XDG_RUNTIME_DIR");
        tmux.env("XDG_RUNTIME_DIR", runtime.unwrap().1.unwrap()).env("LC_ALL", "C.UTF-8");
        tmux.args(arguments).output().unwrap()
    }

    /// Presses keys, by tmux's names.
    fn press(&self, keys: &[&str]) {
        assert!(self.tmux(&[&["send-keys"], keys].concat()).status.success());
    }

    fn enter(&self, command: &str) {
        self.press(&[command, "Enter"]);
    }

    /// Starts `corewise top` with these arguments; `set` are variables.
    fn top(&self, set: &str, arguments: &str) {
        let program = self.corewise.get_program().to_str().unwrap();
        self.enter(&format!("clear; {set} {program} top {arguments}; echo ended with $?"));
    }

    /// Returns the screen; `with_styles` with its colours.
    fn screen(&self, with_styles: bool) -> String {
        let arguments: &[&str] =
            if with_styles { &["capture-pane", "-p", "-e"] } else { &["capture-pane", "-p"] };
        String::from_utf8(self.tmux(arguments).stdout).unwrap()
    }

    /// Waits until the screen shows the text; returns the screen.
    fn shows(&self, text: &str) -> String {
        let mut last = String::new();
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(|| {
                last = self.screen(false);
                last.contains(text).then_some(())
            })
        }));
        assert!(shown.is_ok(), "{text:?} does not appear:\n{last}");
        last
    }

    /// Waits until the display has ended well and the terminal is as before.
    fn is_back(&self) {
        let screen = self.shows("ended with 0");
        assert!(!screen.contains("THREAD"), "the screen before is back: {screen}");
        self.enter("clear; stty -a");
        let modes = self.shows("echoke");
        assert!(modes.contains(" icanon") && modes.contains(" echo "), "{modes}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn it_shows_sorts_filters_and_explains_on_a_terminal() {
    needs!(Tmux);
    let program = Program::start(&["600", "fp"]);
    let before = masks_of(program.pid());
    let terminal = Terminal::start();
    terminal.top("", &format!("--interval 250ms {}", program.pid()));
    let first = terminal.shows("burn/fp");
    for words in ["PEs and who runs there", "PROGRAM ", "THREAD ", "q quit  ? help", "% of one PE"] {
        assert!(first.contains(words), "{words} is missing in\n{first}");
    }
    terminal.press(&["s"]);
    terminal.shows("sort:FPU");
    terminal.press(&["/", "nothing"]);
    terminal.shows("Show only names with: nothing_");
    terminal.press(&["Enter"]);
    terminal.shows("no thread has such a name");
    terminal.press(&["Escape"]);
    terminal.shows("burn/fp");
    terminal.press(&["?"]);
    terminal.shows("What the columns mean");
    terminal.press(&["Escape"]);
    terminal.shows("burn/fp");
    terminal.press(&["Enter"]);
    let explained = terminal.shows("Where corewise has it, and why");
    assert!(explained.contains("The policy") || explained.contains("leaves every thread to Linux"));
    terminal.press(&["Escape"]);
    terminal.shows("Tab programs");
    terminal.press(&["Tab"]);
    terminal.shows("Tab threads");
    terminal.press(&["Space"]);
    terminal.shows("PAUSED");
    terminal.tmux(&["resize-window", "-x", "130", "-y", "40"]);
    terminal.shows("CPU OVER TIME");
    assert!(terminal.screen(true).contains(CYAN), "colours");
    terminal.press(&["q"]);
    terminal.is_back();
    assert_eq!(masks_of(program.pid()), before, "it only watches");
}

#[test]
fn it_gives_the_terminal_back_when_it_stops_or_is_ended() {
    needs!(Tmux);
    let program = Program::start(&["600", "int"]);
    let terminal = Terminal::start();
    terminal.top("NO_COLOR=1", &format!("--interval 250ms {}", program.pid()));
    terminal.shows("burn/int");
    assert!(!terminal.screen(true).contains(CYAN), "no colours");
    // A line of several commands would not go on after it.
    terminal.press(&["C-c"]);
    terminal.is_back();
    terminal.enter(&format!(
        "clear; {} top {}",
        terminal.corewise.get_program().to_str().unwrap(),
        program.pid()
    ));
    terminal.shows("burn/int");
    terminal.press(&["C-z"]);
    let stopped = terminal.shows("Stopped");
    assert!(!stopped.contains("THREAD"), "{stopped}");
    terminal.enter("fg");
    terminal.shows("burn/int");
    let signal = format!("pkill -TERM -f 'top {}$'", program.pid());
    assert!(Command::new("bash").args(["-c", &signal]).status().unwrap().success());
    terminal.shows("ready> ");
    terminal.enter("clear; echo ended with $?");
    terminal.is_back();
}

/// Also where it has been started to ignore the signal for that.
#[test]
fn it_ends_when_the_terminal_is_gone() {
    needs!(Tmux);
    let program = Program::start(&["600", "int"]);
    let terminal = Terminal::start();
    terminal.enter("trap '' HUP");
    terminal.top("", &format!("--interval 250ms {}", program.pid()));
    terminal.shows("burn/int");
    let runs = || {
        let find = format!("pgrep -f 'top --interval 250ms {}$'", program.pid());
        Command::new("bash").args(["-c", &find]).output().unwrap().status.success()
    };
    assert!(runs());
    terminal.tmux(&["kill-server"]);
    wait_for(|| (!runs()).then_some(()));
}

fn recorded() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.cwr");
    let mut command = corewise();
    command.args(["run", "-q", "--interval", "250ms", "--record"]).arg(&file).arg(burn());
    assert!(command.args(["1", "2*fp", "int"]).output().unwrap().status.success());
    (directory, file)
}

fn text(arguments: &[&str]) -> String {
    let output = corewise().arg("top").args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}

#[test]
fn a_recording_is_shown_as_it_was() {
    let (_directory, file) = recorded();
    let last = text(&["--replay", path(&file), "--once"]);
    // At the end there may be only the first thread, whose name has no kind.
    for words in [" burn", "(replayed)", " of "] {
        assert!(last.contains(words), "{words} is missing in\n{last}");
    }
    assert_eq!(last, text(&["--replay", path(&file), "--once"]), "it is the same each time");
    needs!(Tmux);
    let terminal = Terminal::start();
    terminal.top("", &format!("--replay {}", path(&file)));
    terminal.shows("burn/");
    terminal.press(&["+", "+"]);
    terminal.shows("×4");
    terminal.press(&["q"]);
    terminal.is_back();
}

#[test]
fn one_screen_is_printed_without_a_terminal() {
    let program = Program::start(&["600", "fp"]);
    let pid = program.pid().to_string();
    let screen = text(&["--once", "--interval", "250ms", &pid]);
    for words in ["burn/fp", "PROGRAM", "(as named)"] {
        assert!(screen.contains(words), "{words} is missing in\n{screen}");
    }
    assert!(!screen.contains('\u{1b}'), "{screen:?}");
    // What cannot be watched is left out.
    assert!(text(&["--once", "--interval", "250ms", &format!("{pid},4194999")]).contains("burn/fp"));
    assert!(text(&["--once", "--interval", "250ms"]).contains(" burn"), "among all");
}

#[test]
fn it_says_what_a_daemon_does_that_runs_beside() {
    needs!(TwoPes);
    let program = Program::start(&["600", "int", "int"]);
    // What is placed is not taken back for a trial.
    let daemon = Daemon::start_as(program.pid(), "[daemon]\nguard = \"off\"\n", &[]);
    wait_for(|| (bound(program.pid()) > 0).then_some(()));
    wait_for(|| (answer(&daemon.socket(), &[])["bound"] == 1).then_some(()));
    let pid = program.pid().to_string();
    let screen = |arguments: &[&str]| {
        let mut top = corewise();
        top.args(["top", "--once", "--interval", "250ms", &pid]).args(arguments);
        let output = top.env("COREWISE_SOCKET", daemon.socket()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let has_bound = format!("The daemon (policy {POLICY}) has bound 1 of 3 threads");
    // A daemon that gets no PE for a while answers too late for one screen.
    let seen = wait_for(|| Some(screen(&[])).filter(|seen| seen.contains(&has_bound)));
    assert!(!seen.contains("by itself"), "{seen}");
    let of_another = screen(&["--policy", "spread"]);
    assert!(of_another.contains("Policy spread") && !of_another.contains("The daemon"), "{of_another}");
}

#[test]
fn what_is_not_possible_is_said() {
    let check = |arguments: &[&str], words: &str| {
        let output = corewise().arg("top").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(words), "{said}");
    };
    check(&[], "`corewise top --once` prints one screen as text");
    check(&["--once", "4194999"], "there is no process 4194999");
    check(&["--once", "--replay", "/nonexistent"], "cannot read the recording /nonexistent");
}
