//! What a bound thread starts sees every PE.

use crate::common::{binds_all, corewise};
use corewise_testing::needs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts itself again and again. Each trial computes until it is bound to one PE, and then creates or
/// becomes a process that tells by its exit status how many PEs it may use.
const TRIALS: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static int pes(void) { cpu_set_t set; sched_getaffinity(0, sizeof set, &set); return CPU_COUNT(&set); }
static char *ask[] = {"trials", "ask", 0};
static int start(const char *how) {
  pid_t pid;
  int status;
  if (!strcmp(how, "exec")) execv("/proc/self/exe", ask);
  if (!strcmp(how, "system")) return WEXITSTATUS(system("exit $(nproc)"));
  if (!strcmp(how, "spawn")) posix_spawn(&pid, "/proc/self/exe", 0, 0, ask, environ);
  if (!strcmp(how, "fork") && !(pid = fork())) execv("/proc/self/exe", ask);
  waitpid(pid, &status, 0);
  return WEXITSTATUS(status);
}
int main(int count, char **words) {
  if (!strcmp(words[1], "ask")) return pes();
  if (!strcmp(words[1], "trial")) {
    volatile double x = 1;
    while (pes() > 1) x = x * 1.0001 + .2;
    return start(words[2]);
  }
  for (int trial = 0; trial < atoi(words[1]); trial++)
    for (int how = 2; how < count; how++) {
      char *arguments[] = {"trial", "trial", words[how], 0};
      pid_t pid;
      int status;
      posix_spawn(&pid, "/proc/self/exe", 0, 0, arguments, environ);
      waitpid(pid, &status, 0);
      printf("%s %d\n", words[how], WEXITSTATUS(status));
      fflush(stdout);
    }
}
"#;

fn compiled(directory: &Path) -> PathBuf {
    let [source, program] = ["trials.c", "trials"].map(|name| directory.join(name));
    std::fs::write(&source, TRIALS).unwrap();
    assert!(Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(&source).status().unwrap().success());
    program
}

/// Runs the trials under a policy that binds every thread to PE 0, and returns what they printed.
fn printed(discovery: &str, trials: &[&str]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let mut command = corewise();
    command.args(["run", "--guard", "off", "--waits", "off", "--interval", "50ms"]);
    command.args(["--discovery", discovery, "--policy"]).arg(binds_all(directory.path())).arg("--");
    let output = command.arg(compiled(directory.path())).args(trials).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn what_a_bound_thread_starts_sees_every_pe() {
    needs!(Root, TwoPes, Bpf, Python);
    let printed = printed("bpf", &["5", "exec", "system", "spawn", "fork"]);
    let narrow = printed.iter().filter(|line| line.ends_with(" 1")).count();
    // A hypervisor may take the PE of the thread that gives back for as long as a program needs to ask.
    assert!(printed.len() == 20 && narrow <= 1, "{printed:?}");
}

/// A shell that has had children is not bound.
#[test]
fn a_polled_process_that_has_started_another_is_not_bound_again() {
    needs!(TwoPes, Python);
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.json");
    let mut command = corewise();
    command.args(["run", "--guard", "off", "--waits", "off", "--interval", "50ms", "--discovery", "poll"]);
    command.arg("--report").arg(&report).arg("--policy").arg(binds_all(directory.path()));
    let script = "nproc; for i in 1 2 3 4 5 6 7 8 9 10; do nproc; sleep .1; done";
    let output = command.args(["--", "sh", "-c", script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.lines().count() == 11 && printed.lines().all(|pes| pes != "1"), "{printed}");
}
