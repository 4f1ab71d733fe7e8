//! `./dev test` is red when a test is: with a made-up cargo that prints what the real one prints.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Stands for every cargo command. The tests of the workspace print `log` and fail by what it says; a
/// repetition is written down and fails if there is a file `fails-again`.
const CARGO: &str = r#"#!/bin/sh
here=$(dirname "$0")
case "$*" in
  test*--exact*) echo "$*" >>"$here/repeated"; [ ! -e "$here/fails-again" ] ;;
  test*)
    printf 'bpf\tx.rs:1\trefused\n' >>"$COREWISE_SKIPPED"
    cat "$here/log"
    ! grep -q ^error: "$here/log" ;;
  install*) root=${*#*--root }; root=${root%% *}; mkdir -p "$root/bin"; cp /bin/true "$root/bin/cargo-deny" ;;
esac
"#;
const DPKG_QUERY: &str = "#!/bin/sh\nfor package; do echo \"$package installed\"; done\n";

const PASSED: &str = "     Running unittests src/lib.rs (target/debug/deps/a-1)\n
test a ... ok\n
test result: ok. 1 passed\n";
/// The first test's output looks like the list of failures.
const FAILED: &str = "     Running tests/b.rs (target/debug/deps/b-1)
test m::b1 ... FAILED
test b2 ... FAILED\n
failures:\n\n---- m::b1 stdout ----\n
failures:
    none of these\n\n
failures:
    m::b1
    b2\n
test result: FAILED. 1 passed; 2 failed; 0 ignored\n
error: test failed, to rerun pass `-p b --test b`\n";
const ABORTED: &str = "     Running unittests src/lib.rs (target/debug/deps/c-1)
test c1 ... FAILED
error: test failed, to rerun pass `-p c --lib`\n
Caused by:
  process didn't exit successfully: `target/debug/deps/c-1` (signal: 6, SIGABRT: process abort signal)\n";

struct Ran {
    succeeded: bool,
    said: String,
    repeated: String,
}

/// Runs `./dev test` where cargo says this.
fn dev_test(arguments: &[&str], log: &[&str], fails_again: bool) -> Ran {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let here = std::env::temp_dir().join(format!("corewise-dev-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&here).unwrap();
    for (name, text) in [("cargo", CARGO), ("dpkg-query", DPKG_QUERY)] {
        std::fs::write(here.join(name), text).unwrap();
        std::fs::set_permissions(here.join(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    std::fs::write(here.join("log"), log.concat()).unwrap();
    if fails_again {
        std::fs::write(here.join("fails-again"), "").unwrap();
    }
    let path = format!("{}:{}", here.display(), std::env::var("PATH").unwrap());
    let dev = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev");
    let mut command = Command::new(dev);
    command.arg("test").args(arguments).env("PATH", path).env("XDG_CACHE_HOME", here.join("cache"));
    let output = command.env("CARGO_TARGET_DIR", here.join("target")).output().unwrap();
    let repeated = std::fs::read_to_string(here.join("repeated")).unwrap_or_default();
    std::fs::remove_dir_all(&here).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    Ran { succeeded: output.status.success(), said, repeated }
}

const ONE: &str = "error: 1 target failed:\n    `-p b --test b`\n";

#[test]
fn tests_that_pass_are_green_and_skipped_ones_are_listed() {
    for arguments in [&[][..], &["--strict"]] {
        let ran = dev_test(arguments, &[PASSED], false);
        assert!(ran.succeeded && ran.repeated.is_empty(), "{}", ran.said);
        assert!(ran.said.contains("lacks: 1") && ran.said.contains("bpf\tx.rs:1\trefused"), "{}", ran.said);
    }
    assert!(!dev_test(&["--strickt"], &[PASSED], false).succeeded);
}

#[test]
fn what_fails_once_is_repeated_counted_and_red_where_that_is_strict() {
    let ran = dev_test(&[], &[PASSED, FAILED, PASSED, ONE], false);
    assert!(ran.succeeded && ran.said.contains("passed only when repeated (2): m::b1 b2"), "{}", ran.said);
    assert_eq!(ran.repeated, "test --workspace --locked --test b -- --exact --test-threads=1 m::b1 b2\n");
    let strict = dev_test(&["--strict"], &[FAILED, ONE], false);
    assert!(!strict.succeeded && strict.said.contains("passed only when repeated (2)"), "{}", strict.said);
}

#[test]
fn what_fails_twice_has_failed() {
    let ran = dev_test(&[], &[FAILED, ONE], true);
    assert!(!ran.succeeded && ran.said.contains("failed twice"), "{}", ran.said);
}

#[test]
fn a_test_binary_that_aborts_has_failed() {
    let two = "error: 2 targets failed:\n    `-p b --test b`\n    `-p c --lib`\n";
    for log in [&[FAILED, ABORTED, PASSED, two][..], &[ABORTED, PASSED, "error: 1 target failed:\n"]] {
        let ran = dev_test(&[], log, false);
        assert!(!ran.succeeded, "{}", ran.said);
        assert!(ran.said.contains("the tests of -p c --lib did not come to their end"), "{}", ran.said);
    }
}

#[test]
fn what_was_not_built_or_not_understood_has_failed() {
    for log in [&["error: could not compile `a`\n"][..], &[FAILED, "error: 2 targets failed:\n"]] {
        let ran = dev_test(&[], log, false);
        assert!(!ran.succeeded && ran.said.contains("did not come to their end, see above"), "{}", ran.said);
        assert_eq!(ran.repeated, "");
    }
}
