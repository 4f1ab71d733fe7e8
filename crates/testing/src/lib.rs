//! How a test says that this machine lacks what it needs.
//!
//! The problem: a test that returns early looks like one that has passed. The approach: all of them end by
//! [`skip!`], [`needs!`] or [`or_skip!`], which name the missing [`Capability`] and write it down where
//! `./dev test` counts it (the file of the variable `COREWISE_SKIPPED`). Where a machine is known to have a
//! capability (`COREWISE_REQUIRE=bpf,perf`), its absence fails the test instead.
//!
//! Only what is not permitted or not present skips a test; any other error is one of corewise and fails it.

pub mod machine;

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::panic::Location;

/// Ends a test as skipped: `skip!(Bpf, "{error}")`. In a function with a value it returns the default.
#[macro_export]
macro_rules! skip {
    ($capability:ident, $($why:tt)+) => {{
        $crate::skipped($crate::Capability::$capability, format_args!($($why)+));
        return Default::default();
    }};
}

/// Ends a test as skipped unless the machine has all of these: `needs!(Root, TwoPes)`.
#[macro_export]
macro_rules! needs {
    ($($capability:ident),+) => {
        $(if let Some(why) = $crate::Capability::$capability.missing() {
            $crate::skip!($capability, "{why}");
        })+
    };
}

/// The value of a result. An error for which `missing` names a capability ends the test as skipped, any
/// other fails it.
#[macro_export]
macro_rules! or_skip {
    ($result:expr, $missing:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => {
                let Some(capability) = $missing(&error) else { panic!("{error}") };
                $crate::skipped(capability, &error);
                return Default::default();
            }
        }
    };
}

macro_rules! capabilities {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// What a machine may lack.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Capability { $($(#[$doc])* $variant),+ }

        impl Capability {
            const ALL: &[Capability] = &[$(Capability::$variant),+];

            /// As in `COREWISE_REQUIRE`.
            pub fn name(self) -> &'static str {
                match self { $(Capability::$variant => $name),+ }
            }
        }
    };
}

capabilities! {
    /// BPF programs may be loaded.
    Bpf = "bpf",
    /// BPF programs may be attached to functions of the kernel.
    BpfAtFunctions = "bpf-at-functions",
    /// perf events of software may be opened.
    Perf = "perf",
    /// Processes may be traced.
    Ptrace = "ptrace",
    /// The tests run as root.
    Root = "root",
    /// PEs 0 and 1 may both be used.
    TwoPes = "two-pes",
    /// A real-time policy may be chosen.
    RealTime = "real-time",
    /// A cpuset may be made.
    Cpuset = "cpuset",
    /// A control group of version 2 may be made.
    Cgroup = "cgroup",
    /// The processes of a control group may be frozen.
    Freezer = "freezer",
    /// A file system may be mounted.
    Mount = "mount",
    /// A file system of one's own (FUSE) may be mounted.
    Fuse = "fuse",
    /// Rings for asynchronous requests (io_uring), with a thread of the kernel's, may be made.
    IoUring = "io-uring",
    /// The kernel divides the PEs among sessions.
    SessionGroups = "session-groups",
    /// The browser is installed.
    Chromium = "chromium",
    /// QEMU's user mode is installed.
    QemuUser = "qemu-user",
    /// man is installed.
    Man = "man",
    /// Python 3 is installed.
    Python = "python3",
    /// Go is installed.
    Go = "go",
    /// tmux is installed.
    Tmux = "tmux",
    /// GNU's OpenMP library is installed.
    Libgomp = "libgomp",
    /// CMake is installed.
    Cmake = "cmake",
    /// Meson is installed.
    Meson = "meson",
    /// LLVM's tools for profiles are installed, BOLT among them.
    Llvm = "llvm",
}

impl Capability {
    /// Why the machine lacks it, for those that show it without trying.
    pub fn missing(self) -> Option<&'static str> {
        let (is_here, why) = match self {
            Capability::Root => (of_this_process("Uid:").contains("\t0\t"), "only root may do this"),
            Capability::TwoPes => {
                let allowed = of_this_process("Cpus_allowed_list:");
                let first = allowed.trim().split(',').next().unwrap_or_default().to_owned();
                (first.starts_with("0-"), "PEs 0 and 1 are not both allowed")
            }
            Capability::SessionGroups => {
                let enabled = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
                (
                    enabled.is_ok_and(|flag| flag.trim() != "0"),
                    "the kernel does not divide PEs among sessions",
                )
            }
            Capability::Chromium => (is_installed("chromium"), "there is no program `chromium`"),
            Capability::Man => (is_installed("man"), "there is no program `man`"),
            Capability::Python => (is_installed("python3"), "there is no program `python3`"),
            Capability::Go => (is_installed("go"), "there is no program `go`"),
            Capability::Tmux => (is_installed("tmux"), "there is no program `tmux`"),
            Capability::Cmake => (is_installed("cmake"), "there is no program `cmake`"),
            Capability::Meson => (is_installed("meson"), "there is no program `meson`"),
            Capability::Llvm => (
                is_installed("llvm-profgen-19") && is_installed("llvm-bolt-19"),
                "there are no programs `llvm-profgen-19` and `llvm-bolt-19`",
            ),
            Capability::QemuUser => (is_installed("qemu-x86_64"), "there is no program `qemu-x86_64`"),
            _ => (true, ""),
        };
        (!is_here).then_some(why)
    }
}

/// A line of what the kernel says of this process, without its key.
fn of_this_process(key: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.expect("every Linux says this").to_owned()
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Whether an error of the system says that something is not permitted or not present.
pub fn is_refusal(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound | ErrorKind::Unsupported)
}

/// Writes down that a test is skipped; fails it if the capability is required. [`skip!`] also ends it.
#[track_caller]
pub fn skipped(capability: Capability, why: impl Display) {
    let place = Location::caller();
    let name = capability.name();
    let required = required(&std::env::var("COREWISE_REQUIRE").unwrap_or_default());
    let required = required.unwrap_or_else(|error| panic!("COREWISE_REQUIRE: {error}"));
    assert!(
        !required.contains(&capability),
        "COREWISE_REQUIRE says that this machine has {name}, but: {why}"
    );
    let why = why.to_string().replace('\n', " ");
    let line = format!("{name}\t{}:{}\t{why}\n", place.file(), place.line());
    eprint!("skipped for want of {line}");
    if let Some(path) = std::env::var_os("COREWISE_SKIPPED") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// The capabilities in a list of names with commas between.
fn required(list: &str) -> Result<Vec<Capability>, String> {
    let find = |name: &str| {
        let found = Capability::ALL.iter().find(|capability| capability.name() == name);
        let names = || Capability::ALL.iter().map(|capability| capability.name()).collect::<Vec<_>>();
        found.copied().ok_or_else(|| format!("`{name}` is none of {}", names().join(", ")))
    };
    list.split(',').filter(|name| !name.is_empty()).map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also fails where the variable names what does not exist, which no skipped test would notice.
    #[test]
    fn the_required_capabilities_exist() {
        assert_eq!(required("bpf,two-pes"), Ok(vec![Capability::Bpf, Capability::TwoPes]));
        assert_eq!(required(""), Ok(vec![]));
        assert!(required("bfp").unwrap_err().starts_with("`bfp` is none of bpf, bpf-at-functions, perf, "));
        required(&std::env::var("COREWISE_REQUIRE").unwrap_or_default()).unwrap();
    }

    /// Not a test of its own: skips, or passes a value on, as its parent says.
    #[test]
    fn child() {
        if std::env::var_os("COREWISE_TESTING_CHILD").is_some() {
            let refused: Result<u8, _> = Err(std::io::Error::from_raw_os_error(1));
            let of_bpf = |error: &std::io::Error| is_refusal(error).then_some(Capability::Bpf);
            or_skip!(refused, of_bpf);
            panic!("the test went on");
        }
    }

    fn run_child(required: &str) -> (bool, String) {
        let file = std::env::temp_dir().join(format!("corewise-skipped-{}-{required}", std::process::id()));
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::child", "--nocapture"])
            .envs([("COREWISE_TESTING_CHILD", "1"), ("COREWISE_REQUIRE", required)])
            .env("COREWISE_SKIPPED", &file)
            .output()
            .unwrap();
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        let _ = std::fs::remove_file(&file);
        (output.status.success(), written)
    }

    #[test]
    fn a_skipped_test_is_written_down_and_passes() {
        let (passed, written) = run_child("root,perf");
        assert!(passed && written.starts_with("bpf\tcrates/testing/src/lib.rs:"), "{written}");
        assert!(written.ends_with("\tOperation not permitted (os error 1)\n"), "{written}");
    }

    #[test]
    fn a_test_skipped_for_want_of_what_is_required_fails() {
        assert_eq!(run_child("perf,bpf"), (false, String::new()));
        assert_eq!(run_child("misspelt"), (false, String::new()));
    }

    #[test]
    fn only_what_is_not_permitted_or_not_present_is_a_refusal() {
        for (errno, expected) in
            [(1, true), (13, true), (2, true), (95, true), (38, true), (22, false), (5, false)]
        {
            assert_eq!(is_refusal(&std::io::Error::from_raw_os_error(errno)), expected, "{errno}");
        }
    }
}
