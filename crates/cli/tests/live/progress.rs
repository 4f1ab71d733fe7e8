//! How fast an unmodified program advances, by points of its own code.

use crate::common::{Running, corewise, wait_for};
use corewise_testing::{needs, skip};
use serde_json::Value;
use std::io::{BufRead, BufReader, PipeReader};
use std::process::{Child, Command};

/// A program that does the same work for ever. Some of its functions are called at a rate that can be
/// counted, however fast the machine is.
const STEADY: &str = "
#include <stdint.h>
volatile uint64_t sum;
__attribute__((noinline)) void inner(uint64_t n) { for (uint64_t i = 0; i < n; i++) sum += i * i; }
__attribute__((noinline)) void outer(void) { for (int i = 0; i < 5; i++) inner(200000); sum++; }
__attribute__((noinline)) void above(void) { for (int i = 0; i < 4; i++) outer(); sum++; }
__attribute__((noinline)) void top(void) { for (int i = 0; i < 4; i++) above(); sum++; }
int main(void) { for (;;) top(); }
";

struct Program {
    running: Running,
    _directory: tempfile::TempDir,
}

impl Program {
    fn start() -> Program {
        let directory = tempfile::tempdir().unwrap();
        let (source, binary) = (directory.path().join("steady.c"), directory.path().join("steady"));
        std::fs::write(&source, STEADY).unwrap();
        let compiled = Command::new("cc").arg("-O1").arg(&source).arg("-o").arg(&binary).status().unwrap();
        assert!(compiled.success());
        Program { running: Running(Command::new(binary).spawn().unwrap()), _directory: directory }
    }
}

fn meter(pid: u32) -> (Child, PipeReader) {
    let pid = pid.to_string();
    let mut command = corewise();
    command.args(["progress", "--json", "--interval", "1s", "--pid", &pid]);
    // Its lines, and why there are none.
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    (command.spawn().unwrap(), reader)
}

#[test]
fn a_program_has_a_speed_or_it_is_said_why_not_and_it_goes_on_when_the_meter_is_killed() {
    needs!(Root);
    let mut program = Program::start();
    let (mut meter, output) = meter(program.running.0.id());
    let mut lines = BufReader::new(output).lines();
    let first = wait_for(|| {
        let line = lines.next().expect("the meter goes on").unwrap();
        let lacking = ["cannot be probed", "cpu-clock event", "execute breakpoints cannot be set"];
        if lacking.iter().any(|text| line.contains(text)) {
            return Some(Err(line));
        }
        let line: Value = serde_json::from_str(&line).unwrap();
        // On a machine whose own speed varies the speed may stay unknown. Points are counted in either case.
        (!line["speed"].is_null() || line["unknown"].is_string()).then_some(Ok(line))
    });
    meter.kill().unwrap();
    meter.wait().unwrap();
    let line = match first {
        Ok(line) => line,
        Err(why) => skip!(Perf, "{why}"),
    };
    if !line["speed"].is_null() {
        let points = line["points"].to_string();
        assert!(
            ["inner", "outer", "above", "top", "main"].iter().any(|name| points.contains(name)),
            "{line}"
        );
        let [low, speed, high] = ["low", "speed", "high"].map(|figure| line[figure].as_f64().unwrap());
        assert!(0.0 < speed && low <= speed && speed <= high, "{line}");
    }
    // A remaining probe, or one placed within an instruction, would have ended it.
    let cpu_ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", program.running.0.id())).unwrap();
        stat.rsplit_once(')').unwrap().1.split_whitespace().nth(11).unwrap().parse::<u64>().unwrap()
    };
    let before = cpu_ticks();
    wait_for(|| (cpu_ticks() > before + 10).then_some(()));
    assert!(program.running.0.try_wait().unwrap().is_none());
}

#[test]
fn a_command_keeps_its_output_and_its_exit_status() {
    let output = corewise().args(["progress", "--", "sh", "-c", "echo said; exit 4"]).output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(4), &b"said\n"[..]), "{output:?}");
}
