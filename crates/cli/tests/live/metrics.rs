//! What `corewise daemon` tells Prometheus, the node exporter and the journal.

use crate::attach::Program;
use crate::common::{Running, corewise, wait_for};
use corewise_testing::{needs, skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const RULES: &str = "[[rule]]\nname = \"tests\"\nmatch.name = \"burn\"\nwaits = \"off\"\n";

/// The arguments of a daemon of one program, which PE 0 is the fast one for.
fn arguments(pid: u32, directory: &Path) -> Vec<String> {
    std::fs::write(directory.join("rules.toml"), RULES).unwrap();
    let pid = pid.to_string();
    let fixed = ["daemon", &pid, "--interval", "100ms", "--policy", "mintlp", "--fast", "0"];
    let socket = directory.join("socket").display().to_string();
    let of_directory = ["--socket", &socket, "--config-dir", directory.to_str().unwrap()];
    fixed.into_iter().chain(of_directory).map(str::to_owned).collect()
}

/// Sends a request, and returns what is answered before the connection is closed.
fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";

#[test]
fn a_running_daemon_is_scraped_over_http_and_by_file_despite_slow_clients() {
    needs!(TwoPes);
    let program = Program::start(&["60", "int"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("corewise.prom");
    let mut daemon = corewise();
    daemon.args(arguments(program.pid(), directory.path()));
    daemon.args(["--metrics", "127.0.0.1:0", "--metrics-file"]).arg(&file);
    let mut daemon = Running(daemon.stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(daemon.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = Vec::new();
    let address: SocketAddr = loop {
        said.push(lines.next().unwrap());
        if let Some((_, address)) = said[said.len() - 1].split_once("metrics are at http://") {
            break address.strip_suffix("/metrics").unwrap().parse().unwrap();
        }
    };

    // Clients that never ask, never end their request, or never read.
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    for (number, stream) in silent.iter().enumerate() {
        let request = if number % 2 == 0 { &GET[..10] } else { GET };
        // Its connection may have been closed for a newer one.
        let _ = (&mut &*stream).write_all(request);
    }
    let watched = "corewise_rule_threads{rule=\"tests\"} 2\n";
    // The guard may have reverted it since, but it was done.
    let not_yet = "corewise_changes_total{what=\"pes\",outcome=\"done\"} 0\n";
    let shows = |answer: &String| answer.contains(watched) && !answer.contains(not_yet);
    let answer = wait_for(|| Some(ask(address, GET)).filter(shows));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    let prometheus = b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";
    let open = ask(address, prometheus);
    assert!(open.contains("Content-Type: application/openmetrics-text; version=1.0.0"), "{open}");
    assert!(open.ends_with("\n# EOF\n"), "{open}");
    let value = |name: &str| -> f64 {
        let line = body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} in {body}")).parse().unwrap()
    };
    assert_eq!(value("corewise_changes_total{what=\"pes\",outcome=\"refused\"}"), 0.0);
    assert!(value("corewise_cpu_seconds_total") > 0.0 && value("corewise_rules") == 1.0);
    assert!(!body.contains("burn"), "no program is named: {body}");
    assert!(ask(address, b"nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert!(ask(address, GET).contains("corewise_http_requests_total{code=\"400\"} 1\n"));
    drop(silent);

    // The file follows, with the older format's names of counters.
    let of_rule = watched.rsplit_once('{').unwrap().1;
    // There each sample names the daemon's socket, too.
    wait_for(|| std::fs::read_to_string(&file).ok()?.contains(of_rule).then_some(()));
    assert!(std::fs::read_to_string(&file).unwrap().contains("# TYPE corewise_changes_total counter\n"));
    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGTERM).unwrap();
    said.extend(lines);
    assert_eq!(daemon.0.wait().unwrap().code(), Some(0));
    assert!(said.iter().any(|line| line == "corewise: burn is treated by the rule tests"), "{said:?}");
    assert_eq!(said.last().map(String::as_str), Some("corewise: ended; everything was given back"));
    assert!(!file.exists());
}

#[test]
fn metrics_that_others_could_read_or_nobody_can_are_refused_with_the_remedy() {
    let refused = |arguments: &[&str], words: &str| {
        let output = corewise().args(["daemon", "--dry-run"]).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{said}");
    };
    refused(&["--metrics", "0.0.0.0:9775"], "`--metrics 127.0.0.1:9775` serves this machine alone");
    refused(&["--metrics", "[::]:9775"], "`--metrics-public`");
    refused(&["--metrics", "somewhere"], "'somewhere'");
}

/// The fields of an entry of the journal, in its native protocol.
fn fields(mut entry: &[u8]) -> HashMap<String, String> {
    let mut fields = HashMap::new();
    while !entry.is_empty() {
        let end = entry.iter().position(|byte| *byte == b'\n').unwrap();
        let (line, rest) = (str::from_utf8(&entry[..end]).unwrap(), &entry[end + 1..]);
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => {
                entry = rest;
                (name, value)
            }
            None => {
                let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
                entry = &rest[8 + length + 1..];
                (line, str::from_utf8(&rest[8..8 + length]).unwrap())
            }
        };
        fields.insert(name.to_owned(), value.to_owned());
    }
    fields
}

#[test]
fn under_systemd_the_journal_gets_fields() {
    needs!(Root);
    let program = Program::start(&["60", "int"]);
    let [directory, journal] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let socket = UnixDatagram::bind(journal.path().join("socket")).unwrap();
    socket.set_nonblocking(true).unwrap();
    let stderr = directory.path().join("stderr");
    let open = File::create(&stderr).unwrap();
    let stream = open.metadata().unwrap();
    // The journal's socket is ours, in a mount namespace of the daemon alone.
    let script = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && \
                  mount --bind \"$0\" /run/systemd/journal && exec \"$@\"";
    let mut daemon = Command::new("unshare");
    daemon.args(["--mount", "sh", "-c", script]).arg(journal.path()).arg(env!("CARGO_BIN_EXE_corewise"));
    daemon.args(arguments(program.pid(), directory.path())).arg("--dry-run");
    daemon.env("JOURNAL_STREAM", format!("{}:{}", stream.dev(), stream.ino()));
    daemon.env("XDG_RUNTIME_DIR", directory.path()).stderr(open);
    let mut daemon = Running(daemon.spawn().unwrap());
    let mut entries: Vec<HashMap<String, String>> = Vec::new();
    let mut has_event = |event: &str| {
        let mut buffer = [0; 4096];
        while !entries.iter().any(|entry| entry.get("COREWISE_EVENT").is_some_and(|found| found == event)) {
            let Ok(count) = socket.recv(&mut buffer) else { return None };
            entries.push(fields(&buffer[..count]));
        }
        entries.iter().rfind(|entry| entry.get("COREWISE_EVENT").is_some_and(|found| found == event)).cloned()
    };
    let ready = wait_for(|| {
        let has_ended = daemon.0.try_wait().unwrap().is_some();
        let event = has_event("ready");
        (has_ended || event.is_some()).then_some(event)
    });
    let said = std::fs::read_to_string(&stderr).unwrap();
    if ready.is_none() && said.to_lowercase().contains("permi") {
        skip!(Mount, "{said}");
    }
    let ready = ready.unwrap_or_else(|| panic!("{said}"));
    assert_eq!((&*ready["PRIORITY"], &*ready["COREWISE_RULES"]), ("5", "1"), "{ready:?}");
    assert_eq!(
        (&*ready["COREWISE_POLICY"], &*ready["SYSLOG_IDENTIFIER"]),
        ("mintlp", "corewise"),
        "{ready:?}"
    );
    let rule = wait_for(|| has_event("rule"));
    assert_eq!((&*rule["COREWISE_RULE"], &*rule["COREWISE_PROGRAM"]), ("tests", "burn"), "{rule:?}");
    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(daemon.0.wait().unwrap().code(), Some(0));
    wait_for(|| has_event("end"));
    assert!(!said.contains("ready"), "it is logged only in the journal: {said}");
}
