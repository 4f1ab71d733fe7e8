//! What corewise reads and writes, where its users, and others, put things in its way.

use nix::sys::stat::{Mode, stat};
use nix::unistd::mkfifo;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs corewise; a run that does not end is ended.
fn corewise<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_corewise")]).args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_pipe_that_nobody_reads_is_refused_before_the_command_runs() {
    let directory = tempfile::tempdir().unwrap();
    let (pipe, marker) = (directory.path().join("pipe"), directory.path().join("marker"));
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    for option in ["--report", "--record"] {
        let output = corewise(&["run", option, text(&pipe), "--", "touch", text(&marker)]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(125), "{option}: {said}");
        assert!(said.contains("nobody reads from it") && said.contains(text(&pipe)), "{said}");
        assert!(!marker.exists(), "{option}: the command ran");
    }
}

#[test]
fn a_reader_of_a_pipe_gets_the_report() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let reader = Command::new("cat").arg(&pipe).stdout(Stdio::piped()).spawn().unwrap();
    // The reader may come later than the first try.
    while corewise(&["run", "-q", "--report", text(&pipe), "true"]).status.code() == Some(125) {}
    let read = reader.wait_with_output().unwrap().stdout;
    assert!(serde_json::from_slice::<serde_json::Value>(&read).is_ok(), "{}", String::from_utf8_lossy(&read));
}

#[test]
fn an_older_recording_outlives_a_command_that_does_not_exist() {
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("run.cwr");
    std::fs::write(&recording, "older").unwrap();
    let output = corewise(&["run", "--record", text(&recording), "--", "/no/such/command"]);
    assert_eq!(output.status.code(), Some(127), "{}", said(&output));
    assert_eq!(std::fs::read_to_string(&recording).unwrap(), "older");
    let output = corewise(&["run", "--record", text(&recording), "--", "true"]);
    assert!(output.status.success() && std::fs::read(&recording).unwrap().starts_with(&[0x1f, 0x8b]));
}

#[test]
fn a_report_keeps_links_owners_and_permissions() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let run = |file: &Path| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 027; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_corewise"), "run", "-q"]);
        let output = shell.arg("--report").arg(file).arg("true").output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let written = std::fs::read_to_string(file).unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&written).is_ok(), "{written}");
    };
    let mode = |name: &str| stat(&path(name)).unwrap().st_mode & 0o777;

    run(&path("new"));
    assert_eq!(mode("new"), 0o640, "a new file has what the mask leaves");

    std::fs::write(path("old"), "old").unwrap();
    std::fs::set_permissions(path("old"), PermissionsExt::from_mode(0o604)).unwrap();
    // Only root can have a file of somebody else's.
    let owner = if nix::unistd::geteuid().is_root() { 1234 } else { nix::unistd::geteuid().as_raw() };
    std::os::unix::fs::chown(path("old"), Some(owner), None).unwrap();
    symlink("old", path("link")).unwrap();
    run(&path("link"));
    assert_eq!(std::fs::read_link(path("link")).unwrap(), Path::new("old"), "the link is still one");
    assert_eq!((mode("old"), stat(&path("old")).unwrap().st_uid), (0o604, owner));

    std::fs::hard_link(path("old"), path("second name")).unwrap();
    run(&path("old"));
    assert_eq!(std::fs::read(path("old")).unwrap(), std::fs::read(path("second name")).unwrap());

    symlink("nothing yet", path("dangling")).unwrap();
    run(&path("dangling"));
    assert!(path("nothing yet").is_file() && path("dangling").is_symlink());
}

#[test]
fn standard_output_as_a_report_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("out");
    let script = "\"$1\" run -q --report /dev/stdout -- echo first > \"$2\"; cat \"$2\"";
    let output = Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_corewise")])
        .arg(&file)
        .output()
        .unwrap();
    let written = String::from_utf8(output.stdout).unwrap();
    assert!(written.starts_with("first\n{") && written.ends_with("}\n"), "{written}");
    assert!(std::fs::symlink_metadata("/dev/stdout").unwrap().is_symlink());
}

#[test]
fn names_reach_terminal_and_tables_without_what_a_terminal_obeys() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join(OsStr::from_bytes(b"a\x1b[2J\nb"));
    symlink("/bin/sleep", &program).unwrap();
    let (table, recording) = (directory.path().join("report.txt"), directory.path().join("run.cwr"));
    let output =
        corewise(&["run", "--record", text(&recording), "--report", text(&table), text(&program), "0.3"]);
    assert!(output.status.success(), "{}", said(&output));
    let table = std::fs::read_to_string(&table).unwrap();
    assert!(table.contains("a\\u001b[2J\\u000ab"), "{table}");
    let replayed = corewise(&["replay", text(&recording)]);
    let refused = corewise(&["replay", "no\x1b[2J\nsuch"]);
    let missing = corewise(&["run", "no\x1b[2J\nsuch"]);
    for text in [table.as_bytes(), &output.stderr, &replayed.stdout, &refused.stderr, &missing.stderr] {
        let shown = String::from_utf8_lossy(text);
        assert!(!text.contains(&0x1b), "{shown}");
        let alone = |line: &str| line.starts_with('b') || line.starts_with("such");
        assert!(!shown.lines().any(alone), "a line of the name's own: {shown}");
    }
    assert!(String::from_utf8_lossy(&replayed.stdout).contains("a\\u001b[2J\\u000ab"));
}

#[test]
fn single_steps_say_what_killing_them_does_before_they_begin() {
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("recording");
    let output = corewise(&["paths", "record", "--backend", "step", "-o", text(&recording), "true"]);
    assert!(
        said(&output).starts_with("corewise: while the program is stepped, kill -9"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_machine_that_is_no_regular_file_can_not_be_recorded_over() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for target in [socket.as_path(), directory.path()] {
        let output = corewise(&["topo", "--record", text(target)]);
        assert!(!output.status.success() && said(&output).contains(text(target)), "{}", said(&output));
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left behind");
}

/// Maps a library of its own, puts a pipe in its place, and computes in it.
const HOSTILE: &str = r#"
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void) {
    void *library = dlopen("./library.so", RTLD_NOW);
    double (*work)(long) = (double (*)(long))dlsym(library, "work");
    unlink("library.so");
    mkfifo("library.so", 0700);
    work(200000000);
    return 7;
}
"#;
const LIBRARY: &str = "double work(long n) { volatile double x = 1; while (n--) x *= 1.0000001; return x; }";

#[test]
fn a_pipe_under_a_librarys_name_delays_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let compile = |source: &str, arguments: &[&str]| {
        std::fs::write(directory.path().join("source.c"), source).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "source.c"]).args(arguments).current_dir(&directory);
        assert!(gcc.status().unwrap().success());
    };
    compile(LIBRARY, &["-shared", "-fPIC", "-o", "library.so"]);
    compile(HOSTILE, &["-o", "hostile", "-ldl"]);
    let output = Command::new("timeout")
        .args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_corewise"), "run", "-q", "./hostile"])
        .current_dir(&directory)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
}

#[test]
fn what_is_no_report_is_named_with_what_would_make_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("text"), "hello").unwrap();
    std::fs::write(path("other.json"), "{\"results\": []}").unwrap();
    let recorded = corewise(&["run", "-q", "--record", text(&path("run.cwr")), "--", "true"]);
    assert!(recorded.status.success(), "{}", said(&recorded));
    for (name, words) in [
        ("none", "No such file"),
        ("text", "corewise run --report"),
        ("other.json", "corewise run --report"),
        ("run.cwr", "corewise replay FILE --report"),
    ] {
        let output = corewise(&["explain", text(&path(name))]);
        let said = said(&output);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{said}");
        assert!(said.contains(words) && said.contains(name), "{said}");
    }
}
