//! `corewise doctor`, as root and as somebody without rights.

use corewise_testing::needs;
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// What a doctor says in JSON and in words.
fn examined(doctor: impl Fn() -> Command) -> (Value, String) {
    let said = |mut command: Command| -> Output {
        let output = command.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        output
    };
    let mut json = doctor();
    json.arg("--json");
    let json: Value = serde_json::from_slice(&said(json).stdout).unwrap();
    let words = String::from_utf8(said(doctor()).stdout).unwrap();
    (json, words)
}

/// Every missing thing has its cost and its remedy, in both forms; returns the names of those that are there.
fn check((json, words): &(Value, String)) -> Vec<String> {
    assert_eq!(json["works"], true, "{json:#}");
    let checks = json["checks"].as_array().unwrap();
    assert!(checks.len() >= 14, "{json:#}");
    let mut here = Vec::new();
    for check in checks {
        let name = check["name"].as_str().unwrap();
        if check["state"] == "here" {
            assert!(words.contains(&format!("  yes  {name}")), "{name}: {words}");
            here.push(name.to_owned());
            continue;
        }
        assert_eq!(check["state"], "missing", "{check:#}");
        let mut lines = words.lines().skip_while(|line| !line.starts_with(&format!("  no   {name}"))).skip(1);
        for key in ["costs", "remedy"] {
            let text = check[key].as_str().unwrap();
            assert!(text.len() > 10, "{check:#}");
            assert_eq!(lines.next().unwrap().trim(), format!("{key}: {text}"), "{name}: {words}");
        }
    }
    here
}

#[test]
fn root_and_anybody_else_see_what_they_have_and_how_to_get_the_rest() {
    needs!(Root);
    // Where anybody may execute it.
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let copy = directory.path().join("corewise");
    std::fs::copy(env!("CARGO_BIN_EXE_corewise"), &copy).unwrap();
    let runtime = directory.path().join("runtime");
    std::fs::create_dir(&runtime).unwrap();
    std::fs::set_permissions(&runtime, Permissions::from_mode(0o700)).unwrap();

    let root = examined(|| {
        let mut command = Command::new(&copy);
        command.arg("doctor").env("XDG_RUNTIME_DIR", &runtime);
        command
    });
    let of_root = check(&root);
    assert!(of_root.contains(&"runtime directory".to_owned()), "{}", root.1);
    assert!(root.1.contains("  rights       root"), "{}", root.1);

    let nobody = examined(|| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"]).arg(&copy);
        command.arg("doctor").env_remove("XDG_RUNTIME_DIR").env("HOME", "/nonexistent");
        command
    });
    let of_nobody = check(&nobody);
    assert_eq!(nobody.0["machine"]["rights"], "user 65534, without capabilities");
    assert!(nobody.1.contains("  rights       user 65534, without capabilities"), "{}", nobody.1);
    for name in ["threads by BPF", "points of progress", "weights and turns", "runtime directory"] {
        assert!(!of_nobody.contains(&name.to_owned()), "{name}: {}", nobody.1);
    }
    assert!(nobody.1.contains("remedy: sudo setcap cap_bpf,cap_perfmon,cap_sys_nice+ep "), "{}", nobody.1);
    // Root has everything that anybody else has, but for a daemon of somebody's own.
    for name in &of_nobody {
        assert!(of_root.contains(name), "{name}: {}", root.1);
    }
}

#[test]
fn where_corewise_cannot_work_the_exit_status_tells() {
    needs!(Root, Mount);
    // A PID namespace of its own under the /proc of another one.
    let script = ["--fork", "--pid", "--kill-child", env!("CARGO_BIN_EXE_corewise"), "doctor"];
    let output = Command::new("unshare").args(script).output().unwrap();
    let words = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(words.contains("/proc belongs to another PID namespace"), "{words}");
    assert!(words.starts_with("corewise cannot work here: "), "{words}");
}
