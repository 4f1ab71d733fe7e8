//! Clients of the daemon: programs are attached and detached, `corewise run` announces its command, and
//! every client can follow what happens.

use crate::attach::{Program, bound};
use crate::common::{Running, burn, corewise, masks_of, wait_for};
use crate::daemon::{Daemon, answer};
use corewise_testing::needs;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn call(socket: &Path, command: &str, pid: u32) -> Output {
    corewise().args([command, &pid.to_string(), "--socket"]).arg(socket).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_program_is_detached_with_everything_given_back_and_attached_again() {
    needs!(TwoPes);
    let program = Program::start(&["60", "int"]);
    let before = masks_of(program.pid());
    let daemon = Daemon::start(program.pid());
    // A change is announced with its outcome, some moments after it is made.
    let placed = || events_so_far(&daemon.socket()).iter().filter(|event| event["what"] == "placed").count();
    wait_for(|| (placed() > 0).then_some(()));
    assert!(call(&daemon.socket(), "detach", program.pid()).status.success());
    wait_for(|| (masks_of(program.pid()) == before).then_some(()));
    let explained = answer(&daemon.socket(), &[&program.pid().to_string()]);
    assert!(explained["left_alone"].as_str().unwrap().contains("detached"), "{explained}");
    assert_eq!((&explained["waits_permitted"], &explained["class"]), (&"off".into(), &"ST".into()));
    // It has looked and decided since.
    let seconds = |status: &Value| status["seconds"].as_f64().unwrap();
    let from = seconds(&answer(&daemon.socket(), &[]));
    wait_for(|| (seconds(&answer(&daemon.socket(), &[])) > from + 0.5).then_some(()));
    assert_eq!(masks_of(program.pid()), before);
    let before = placed();
    assert!(call(&daemon.socket(), "attach", program.pid()).status.success());
    wait_for(|| (placed() > before).then_some(()));
    let events = events_so_far(&daemon.socket());
    let at = |what: &str| events.iter().position(|event| event["what"] == what).unwrap();
    let (first, detached, attached) = (at("placed"), at("detached"), at("attached"));
    assert!(first < detached && detached < attached, "{events:?}");
    assert!(events[first]["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{events:?}");
    let meanwhile: Vec<&str> =
        events[detached + 1..attached].iter().filter_map(|event| event["what"].as_str()).collect();
    assert!(meanwhile.contains(&"freed") && !meanwhile.contains(&"placed"), "{events:?}");
}

#[test]
fn a_program_that_the_daemon_was_not_started_for_is_followed_from_then_on() {
    needs!(TwoPes);
    let (program, other) = (Program::start(&["60", "int"]), Program::start(&["60", "int"]));
    let daemon = Daemon::start_as(program.pid(), "", &["--discovery", "poll"]);
    follows_from_then_on(&daemon, &other);
    needs!(Root);
    let daemon = Daemon::start_as(program.pid(), "", &["--discovery", "auto"]);
    follows_from_then_on(&daemon, &other);
}

fn follows_from_then_on(daemon: &Daemon, other: &Program) {
    let refused = call(&daemon.socket(), "detach", other.pid());
    let text = said(&refused);
    assert!(refused.status.code() == Some(1) && text.contains("does not follow process"), "{text}");
    let attached = call(&daemon.socket(), "attach", other.pid());
    assert!(attached.status.success(), "{attached:?}");
    let both = |status: &Value| status["threads"] == 4;
    wait_for(|| Some(answer(&daemon.socket(), &[])).filter(both));
    let explained = wait_for(|| Some(answer(&daemon.socket(), &[&other.pid().to_string()])));
    assert_eq!(explained["program"], "burn", "{explained}");
    assert!(explained["left_alone"].is_null(), "{explained}");
}

#[test]
fn a_wrong_process_or_socket_gets_a_clear_error() {
    let program = Program::start(&["60", "int"]);
    let directory = tempfile::tempdir().unwrap();
    let output = call(&directory.path().join("none"), "attach", program.pid());
    let text = said(&output);
    assert!(text.contains("no daemon runs here") && text.contains("`corewise daemon` starts one"), "{text}");
    let daemon = Daemon::start(program.pid());
    for command in ["attach", "detach"] {
        let output = call(&daemon.socket(), command, 4_194_999);
        assert!(
            output.status.code() == Some(1) && said(&output).contains("no process 4194999"),
            "{output:?}"
        );
    }
}

#[test]
fn users_may_not_decide_about_the_processes_of_others() {
    needs!(Root);
    let program = Program::start(&["60", "int"]);
    let daemon = Daemon::start(program.pid());
    std::fs::set_permissions(daemon.socket().parent().unwrap(), PermissionsExt::from_mode(0o755)).unwrap();
    // The directories above may be closed to others.
    let script = "import os, socket, sys\n\
                  os.chdir(sys.argv[1])\n\
                  os.setgid(65534)\n\
                  os.setuid(65534)\n\
                  s = socket.socket(socket.AF_UNIX)\n\
                  s.connect('socket')\n\
                  s.sendall(sys.argv[2].encode() + bytes(1))\n\
                  print(s.recv(4096).decode())";
    for method in ["Attach", "Detach"] {
        let pid = program.pid();
        let call = json!({"method": format!("org.corewise.Daemon.{method}"), "parameters": {"pid": pid}});
        let mut other = Command::new("python3");
        other.args(["-c", script]).arg(daemon.socket().parent().unwrap()).arg(call.to_string());
        let output = other.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("org.corewise.Daemon.NotPermitted"), "{output:?}");
    }
}

/// Runs a command by `corewise run`, for which this is the socket of a daemon.
fn run(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = corewise();
    command.arg("run").args(arguments).env("COREWISE_SOCKET", socket).stdout(Stdio::null());
    command
}

/// The program that a process executes.
fn program_of(child: &Child) -> Option<std::ffi::OsString> {
    let path = std::fs::read_link(format!("/proc/{}/exe", child.id())).ok()?;
    path.file_name().map(Into::into)
}

#[test]
fn run_announces_its_command_to_a_daemon_and_becomes_it() {
    needs!(TwoPes);
    let program = Program::start(&["60", "sleep"]);
    let daemon = Daemon::start(program.pid());
    let announced = || {
        let mut run = run(&daemon.socket(), &["--", &burn(), "60", "2*int"]);
        let mut command = Running(run.stderr(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(command.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
        // On a busy machine it does not wait for long.
        let is_late = line.contains("it does not answer");
        assert!(is_late || line.contains(&format!("`corewise status {}`", command.0.id())), "{line}");
        (!is_late).then_some(command)
    };
    let command = wait_for(announced);
    wait_for(|| program_of(&command.0).filter(|name| name == "burn"));
    wait_for(|| (bound(command.0.id()) > 0).then_some(()));
    let explained = answer(&daemon.socket(), &[&command.0.id().to_string()]);
    assert_eq!(explained["program"], "burn", "{explained}");
}

#[test]
fn run_watches_its_command_itself_where_a_daemon_would_not_do() {
    let program = Program::start(&["60", "sleep"]);
    let daemon = Daemon::start(program.pid());
    let stays_corewise = |mut command: Command| {
        let child = Running(command.spawn().unwrap());
        let burns = || {
            let children = format!("/proc/{0}/task/{0}/children", child.0.id());
            let children = std::fs::read_to_string(children).unwrap_or_default();
            let mut pids = children.split_whitespace();
            let exe = |pid| std::fs::read_link(format!("/proc/{pid}/exe"));
            pids.any(|pid: &str| exe(pid).is_ok_and(|exe| exe.ends_with("burn"))).then_some(())
        };
        wait_for(burns);
        assert_eq!(program_of(&child.0).unwrap(), "corewise");
    };
    for option in [&["--no-daemon"][..], &["--policy", "default"], &["--waits", "off"], &["--adapt-team"]] {
        stays_corewise(run(&daemon.socket(), &[option, &["-q", "--", &burn(), "60", "int"]].concat()));
    }
    // A daemon that hangs.
    let directory = tempfile::tempdir().unwrap();
    let hangs = directory.path().join("socket");
    let _listener = UnixListener::bind(&hangs).unwrap();
    stays_corewise(run(&hangs, &["-q", "--", &burn(), "60", "int"]));
    // One that changes nothing.
    let only_watches = Daemon::start_as(program.pid(), "", &["--dry-run"]);
    stays_corewise(run(&only_watches.socket(), &["-q", "--", &burn(), "60", "int"]));
}

#[test]
fn a_command_that_a_daemon_places_ends_as_it_would_alone() {
    let program = Program::start(&["60", "sleep"]);
    let daemon = Daemon::start(program.pid());
    let output = run(&daemon.socket(), &["-q", "sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(7), ""));
    let output = run(&daemon.socket(), &["-q", "/nonexistent/x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    let output = run(&daemon.socket(), &["-q", "/"]).output().unwrap();
    assert_eq!(output.status.code(), Some(126), "{output:?}");
}

/// A call of `GetEvents`, answer by answer.
fn events(socket: &Path, more: bool) -> impl Iterator<Item = Vec<Value>> + use<> {
    let mut stream = UnixStream::connect(socket).unwrap();
    let call = format!("{{\"method\":\"org.corewise.Daemon.GetEvents\",\"more\":{more}}}\0");
    stream.write_all(call.as_bytes()).unwrap();
    BufReader::new(stream).split(0).map(|message| {
        let reply: Value = serde_json::from_slice(&message.unwrap()).unwrap();
        reply["parameters"]["events"].as_array().unwrap().clone()
    })
}

fn events_so_far(socket: &Path) -> Vec<Value> {
    events(socket, false).next().unwrap()
}

#[test]
fn events_are_reported_as_they_happen() {
    needs!(TwoPes);
    let program = Program::start(&["60", "int"]);
    let daemon = Daemon::start(program.pid());
    let mut events = events(&daemon.socket(), true).flatten();
    assert!(events.any(|event| event["what"] == "placed" && event["pid"] == program.pid()));
    assert!(call(&daemon.socket(), "detach", program.pid()).status.success());
    // Whether something is then freed depends on what the guard tries at that moment.
    assert!(events.any(|event| event["what"] == "detached" && event["pid"] == program.pid()));
}
