//! Job control: on a terminal, corewise behaves as the command alone would.

use crate::common::wait_for_every;
use corewise_sys::proc::Proc;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An interactive shell on a terminal of its own, which script(1) makes.
struct Shell {
    script: Child,
    screen: Arc<Mutex<String>>,
}

impl Shell {
    fn start() -> Shell {
        let mut script = Command::new("script");
        script.args(["--quiet", "--command", "exec bash --norc --noprofile -i", "/dev/null"]);
        let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut terminal, shown) = (script.stdout.take().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = terminal.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        });
        Shell { script, screen }
    }

    /// Types the keys, and waits until the screen has shown the text since.
    fn type_and_expect(&mut self, keys: &str, text: &str) {
        self.screen.lock().unwrap().clear();
        self.script.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
        let mut last = String::new();
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for_every(Duration::ZERO, || {
                last.clone_from(&self.screen.lock().unwrap());
                last.contains(text).then_some(())
            })
        }));
        assert!(shown.is_ok(), "after {keys:?} there is no {text:?} in {last:?}");
    }

    /// Types `fg` and waits until the command has the terminal and runs: the shell ignores a key that comes
    /// before, and a command that is still stopped forgets it when it goes on.
    fn bring_to_foreground(&mut self) {
        self.type_and_expect("fg\n", "run -q");
        let shell = Proc::own().children(self.script.id()).unwrap()[0];
        // At once: corewise may still be about to continue when the next key comes.
        wait_for_every(Duration::ZERO, || {
            let [_, own, foreground] = state_and_groups(shell)?;
            let stopped = |pid| {
                state_and_groups(pid).is_some_and(|[state, group, _]| group == foreground && state == "T")
            };
            let processes = Proc::own().processes().unwrap();
            (foreground != own && !processes.into_iter().any(stopped)).then_some(())
        });
    }
}

/// The state of a process, its group, and the group that has its terminal; `None` if it has ended.
fn state_and_groups(pid: u32) -> Option<[String; 3]> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some([fields[0], fields[2], fields[5]].map(str::to_owned))
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The terminal goes with it, and whatever still runs there.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[test]
fn the_keys_of_the_terminal_work_as_for_the_command_alone() {
    let corewise = env!("CARGO_BIN_EXE_corewise");
    let mut shell = Shell::start();
    // The quotes keep the typed line from containing what is waited for. The loop starts no program: a child
    // that the key stops before its `exec` would keep `sh`, which waits for that (vfork), from stopping.
    let script = r#"trap "echo INTER''RUPTED; exit 9" INT; echo REA''DY; while :; do :; done"#;
    shell.type_and_expect(&format!("{corewise} run -q sh -c '{script}'\n").replace("''", "\"\""), "READY");
    // The key comes at another moment each time, for corewise takes some to continue as well.
    for step in 0..200 {
        shell.type_and_expect("\x1a", "Stopped");
        shell.bring_to_foreground();
        std::thread::sleep(Duration::from_micros(step * 10));
    }
    shell.type_and_expect("\x1a", "Stopped");
    shell.type_and_expect("bg\n", "&");
    shell.bring_to_foreground();
    shell.type_and_expect("\x03", "INTERRUPTED");
    shell.type_and_expect("echo status=$?.\n", "status=9.");
    // What is typed before `cat` runs may be shown once only: the shell has switched off the terminal's echo.
    let cat = r#"echo REA""DY; exec cat"#;
    shell.type_and_expect(&format!("{corewise} run -q sh -c '{cat}'\n"), "READY");
    shell.type_and_expect("typed\n", "typed\r\ntyped");
    shell.type_and_expect("\x04echo status=$?.\n", "status=0.");
}
