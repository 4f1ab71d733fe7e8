//! What a program is called, from its command line.
//!
//! Problem: the name that the kernel keeps of a thread is its interpreter's for every script (`python`), and
//! says nothing where eight of them run. Approach: the command line names the script or the module; programs
//! that only start another one (`env`, `mpirun`) are skipped. Limits: an option of an unknown interpreter
//! version that takes a separate value may be taken for the script; code in the command line (`-c`, `-e`) has
//! no name, so the interpreter's remains.
//!
//! Also which programs start others that have nothing to do with each other ([`Image::starts_any`]): shells,
//! by their executables, and those that run jobs, by their names. What a person wants from a program does not
//! stand in its file, so these are lists.

/// The longest name, in characters.
const NAME_MAX: usize = 48;

/// How a program finds what it runs on its command line.
struct Runner {
    /// Its name; versions may follow (`python3.11`).
    name: &'static str,
    /// The options whose value is a word of its own.
    with_value: &'static [&'static str],
    /// The options whose value is the name, in the same word (`--file=`) or the next one.
    named_by: &'static [&'static str],
    /// The options with code instead of a name.
    code: &'static [&'static str],
    /// Whether the rest is a command line of its own, after so many words.
    command_after: Option<usize>,
}

const INTERPRETER: Runner =
    Runner { name: "", with_value: &[], named_by: &[], code: &[], command_after: None };
const STARTER: Runner = Runner { command_after: Some(0), ..INTERPRETER };

const RUNNERS: [Runner; 34] = [
    Runner { name: "python", with_value: &["-W", "-X"], named_by: &["-m"], code: &["-c"], ..INTERPRETER },
    Runner { name: "pypy", with_value: &["-W", "-X"], named_by: &["-m"], code: &["-c"], ..INTERPRETER },
    Runner { name: "bash", ..SHELL },
    Runner { name: "sh", ..SHELL },
    Runner { name: "dash", ..SHELL },
    Runner { name: "zsh", ..SHELL },
    Runner { name: "ksh", ..SHELL },
    Runner {
        name: "java",
        with_value: &["-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules"],
        named_by: &["-jar", "-m", "--module"],
        ..INTERPRETER
    },
    Runner { name: "node", with_value: &["-r", "--require", "--import"], code: &["-e", "-p"], ..INTERPRETER },
    Runner {
        name: "nodejs",
        with_value: &["-r", "--require", "--import"],
        code: &["-e", "-p"],
        ..INTERPRETER
    },
    Runner { name: "ruby", with_value: &["-I", "-r"], code: &["-e"], ..INTERPRETER },
    Runner { name: "perl", with_value: &["-I"], code: &["-e", "-E"], ..INTERPRETER },
    Runner { name: "Rscript", code: &["-e"], ..INTERPRETER },
    Runner { name: "R", named_by: &["-f", "--file"], code: &["-e"], ..INTERPRETER },
    Runner { name: "julia", with_value: &["-p", "-t", "-L"], code: &["-e", "-E"], ..INTERPRETER },
    Runner { name: "env", with_value: &["-u", "-C"], ..STARTER },
    Runner { name: "nice", with_value: &["-n"], ..STARTER },
    Runner { name: "nohup", ..STARTER },
    Runner { name: "sudo", with_value: &["-u", "-g", "-C", "-p", "-r", "-t", "-h", "-D", "-R"], ..STARTER },
    Runner { name: "doas", with_value: &["-u", "-C"], ..STARTER },
    Runner { name: "ionice", with_value: &["-c", "-n"], ..STARTER },
    Runner { name: "busybox", ..STARTER },
    Runner { name: "toybox", ..STARTER },
    Runner { name: "setsid", ..STARTER },
    Runner { name: "stdbuf", with_value: &["-i", "-o", "-e"], ..STARTER },
    Runner { name: "time", with_value: &["-f", "-o"], ..STARTER },
    Runner { name: "timeout", with_value: &["-s", "-k"], command_after: Some(1), ..INTERPRETER },
    Runner { name: "taskset", command_after: Some(1), ..INTERPRETER },
    Runner { name: "numactl", with_value: &["-N", "-m", "-C", "-p", "-i"], ..STARTER },
    Runner { name: "mpirun", with_value: MPI, ..STARTER },
    Runner { name: "mpiexec", with_value: MPI, ..STARTER },
    Runner { name: "orterun", with_value: MPI, ..STARTER },
    Runner { name: "prterun", with_value: MPI, ..STARTER },
    Runner { name: "srun", with_value: &["-n", "-N", "-c", "-p", "-w", "-J", "-t"], ..STARTER },
];

const SHELL: Runner =
    Runner { with_value: &["-o", "-O", "--rcfile", "--init-file"], code: &["-c"], ..INTERPRETER };

const MPI: &[&str] = &[
    "-n",
    "-np",
    "--np",
    "-c",
    "-N",
    "-H",
    "-host",
    "--host",
    "-hostfile",
    "--hostfile",
    "-machinefile",
    "--machinefile",
    "-f",
    "-x",
    "-wdir",
    "--wdir",
    "-bind-to",
    "--bind-to",
    "-map-by",
    "--map-by",
    "-rank-by",
    "--rank-by",
    "-genv",
    "-env",
    "-ppn",
];

/// Shells, by their executables: `sh` is `dash` here and `bash` there.
const SHELLS: [&str; 18] = [
    "sh", "bash", "rbash", "dash", "ash", "zsh", "ksh", "mksh", "yash", "fish", "csh", "tcsh", "nu",
    "elvish", "pwsh", "busybox", "toybox", "posh",
];

/// Programs that run jobs, by their names: builds, lists of commands, times of day, sessions, supervisors.
const JOB_RUNNERS: [&str; 49] = [
    "make",
    "gmake",
    "bmake",
    "ninja",
    "samu",
    "scons",
    "cargo",
    "bazel",
    "tup",
    "just",
    "ctest",
    "snakemake",
    "nextflow",
    "xargs",
    "parallel",
    "find",
    "run-parts",
    "watch",
    "entr",
    "hyperfine",
    "cron",
    "crond",
    "anacron",
    "fcron",
    "atd",
    "systemd",
    "init",
    "tini",
    "dumb-init",
    "catatonit",
    "s6-supervise",
    "runsv",
    "supervisord",
    "conmon",
    "containerd-shim",
    "containerd-shim-runc-v2",
    "sshd",
    "sshd-session",
    "login",
    "su",
    "agetty",
    "tmux",
    "screen",
    "script",
    "expect",
    "xinit",
    "gnome-shell",
    "plasmashell",
    "dbus-daemon",
];

/// What a process runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Image {
    /// The name of its program ([`name_of`]).
    pub name: String,
    /// The path of its executable, of a script that of the interpreter; `None` if unknown.
    pub exe: Option<String>,
}

impl Image {
    /// Returns whether it starts programs that have nothing to do with each other.
    pub fn starts_any(&self) -> bool {
        let exe = self.exe.as_deref().map(|exe| exe.strip_suffix(" (deleted)").unwrap_or(exe));
        SHELLS.iter().any(|shell| is_version_of(file_name(exe.unwrap_or(&self.name)), shell))
            || JOB_RUNNERS.contains(&self.name.as_str())
    }

    /// Returns whether it is an interpreter that runs code without a name.
    pub fn is_nameless(&self) -> bool {
        let by_file = |name| self.exe.as_deref().is_some_and(|exe| is_version_of(file_name(exe), name));
        runner(&self.name).is_some_and(|runner| !runner.code.is_empty() && by_file(runner.name))
    }
}

/// Returns the name of the program that a command line runs: of the script if it runs an interpreter. `None`
/// if the command line is empty.
pub fn name_of<Word: AsRef<str>>(command: &[Word]) -> Option<String> {
    let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
    let program = program(&words)?;
    let name: String = program.chars().take(NAME_MAX).collect();
    Some(if name.len() < program.len() { name + "…" } else { name })
}

/// Returns the name of the program of a command line as the kernel keeps it, each word followed by a zero
/// byte. `None` if it is empty.
pub fn name_of_line(line: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(line);
    // Programs that write a title of their own over their command line leave zero bytes behind it.
    name_of(&line.trim_end_matches('\0').split('\0').collect::<Vec<_>>())
}

/// Returns whether a program of this file name may be called otherwise, by its arguments.
pub fn depends_on_arguments(name: &str) -> bool {
    runner(name).is_some()
}

fn program<'a>(words: &[&'a str]) -> Option<&'a str> {
    let (first, rest) = words.split_first()?;
    let name = file_name(first);
    let runs = runner(name).and_then(|runner| runner.runs(rest));
    runs.or(Some(name).filter(|name| !name.is_empty()))
}

/// Returns the last part of a path, or of a title such as `postgres: checkpointer` the program.
fn file_name(word: &str) -> &str {
    let path = word.split_once(": ").map_or(word, |(program, _)| program).trim_end_matches('/');
    let name = path.rsplit('/').next().unwrap_or(path);
    // A login shell.
    name.strip_prefix('-').unwrap_or(name)
}

fn runner(name: &str) -> Option<&'static Runner> {
    RUNNERS.iter().find(|runner| is_version_of(name, runner.name))
}

/// Returns whether a file is called by a program's name, or that and a version.
fn is_version_of(file: &str, name: &str) -> bool {
    let is_version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '-'));
    file.strip_prefix(name).is_some_and(is_version)
}

impl Runner {
    /// Returns the name of what it runs with these words.
    fn runs<'a>(&self, words: &[&'a str]) -> Option<&'a str> {
        let mut words = words;
        while let Some((&word, rest)) = words.split_first() {
            let is_assignment = self.command_after.is_some() && word.contains('=');
            if self.code.contains(&word) {
                return None;
            }
            if self.named_by.contains(&word) {
                return rest.first().map(|name| file_name(name));
            }
            let of_option = |option: &&str| word.strip_prefix(option)?.strip_prefix('=');
            if let Some(name) = self.named_by.iter().find_map(of_option) {
                return Some(file_name(name));
            }
            words = match word {
                "--" => return self.found(rest),
                _ if self.with_value.contains(&word) => rest.get(1..).unwrap_or_default(),
                _ if is_assignment || (word.len() > 1 && word.starts_with('-')) => rest,
                _ => return self.found(words),
            };
        }
        None
    }

    fn found<'a>(&self, words: &[&'a str]) -> Option<&'a str> {
        match self.command_after {
            Some(skipped) => program(words.get(skipped..)?),
            None => {
                words.first().map(|script| file_name(script)).filter(|script| !matches!(*script, "" | "-"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &str) -> Option<String> {
        name_of(&command.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn a_program_is_called_by_its_script() {
        for (command, name) in [
            ("python train.py --epochs 3", "train.py"),
            ("/usr/bin/python3.11 -u -W ignore ../train.py", "train.py"),
            ("env FOO=1 python -m pkg.mod -m other", "pkg.mod"),
            ("/usr/bin/env -u HOME python3 ./train.py", "train.py"),
            ("bash -e -o pipefail job.sh", "job.sh"),
            ("java -Xmx1g -cp a.jar -jar lib/x.jar", "x.jar"),
            ("java -cp a.jar:b.jar org.example.Main arg", "org.example.Main"),
            ("node --max-old-space-size=100 server.js", "server.js"),
            ("ruby -I lib run.rb", "run.rb"),
            ("perl -w x.pl", "x.pl"),
            ("Rscript --vanilla fit.R", "fit.R"),
            ("/usr/lib/R/bin/exec/R --no-echo --file=fit.R --args 3", "fit.R"),
            ("mpirun -np 4 -x A --bind-to core ./solver in", "solver"),
            ("mpiexec -n 2 python -m mpi4py solve.py", "mpi4py"),
            ("timeout -k 1 5 taskset -c 0-3 nice -n 5 ./prog x", "prog"),
            ("sudo -u nobody X=1 nice ./prog", "prog"),
            ("busybox sh job.sh", "job.sh"),
            ("env -S nice ./prog", "prog"),
            ("./prog", "prog"),
            ("/opt/a/", "a"),
            ("-bash", "bash"),
        ] {
            assert_eq!(of(command).as_deref(), Some(name), "{command}");
        }
    }

    #[test]
    fn what_has_no_script_keeps_its_own_name() {
        for (command, name) in [
            ("python -c pass", "python"),
            ("python3 -", "python3"),
            ("python", "python"),
            ("sh -c ./a", "sh"),
            ("env", "env"),
            ("mpirun -np 4", "mpirun"),
            ("java -version", "java"),
            ("pythonic x", "pythonic"),
            ("perl -e 1", "perl"),
        ] {
            assert_eq!(of(command).as_deref(), Some(name), "{command}");
        }
        assert_eq!(of(""), None);
    }

    #[test]
    fn shells_are_known_by_their_executables_and_job_runners_by_their_names() {
        let starts_any = |name: &str, exe: &str| {
            let exe = (!exe.is_empty()).then(|| exe.to_owned());
            Image { name: name.to_owned(), exe }.starts_any()
        };
        for (name, exe) in [
            ("job.sh", "/usr/bin/dash"),
            ("anything", "/bin/bash (deleted)"),
            ("sh", "/bin/busybox"),
            ("zsh", "/usr/bin/zsh-5.9"),
            ("sh", ""),
            ("make", "/usr/bin/make"),
            ("parallel", "/usr/bin/perl"),
        ] {
            assert!(starts_any(name, exe), "{name} {exe}");
        }
        for (name, exe) in [
            ("solver", "/usr/bin/mpirun"),
            ("train.py", "/usr/bin/python3"),
            ("torchrun", "/usr/bin/python3"),
            ("sh", "/opt/sh-analyser/analyse"),
            ("shell", ""),
        ] {
            assert!(!starts_any(name, exe), "{name} {exe}");
        }
    }

    #[test]
    fn code_in_a_command_line_has_no_name() {
        let is_nameless =
            |name: &str, exe: &str| Image { name: name.to_owned(), exe: Some(exe.to_owned()) }.is_nameless();
        assert!(is_nameless("python", "/usr/bin/python3.11") && is_nameless("perl", "/usr/bin/perl"));
        assert!(!is_nameless("train.py", "/usr/bin/python3") && !is_nameless("mpirun", "/usr/bin/mpirun"));
    }

    #[test]
    fn a_line_of_the_kernel_may_be_anything() {
        let of = |line: &[u8]| name_of_line(line);
        assert_eq!(of(b"python3\0my train.py\0"), Some("my train.py".into()));
        assert_eq!(of(b""), None);
        assert_eq!(of(b"\0\0\0"), None);
        assert_eq!(of(b"postgres: 13/main: checkpointer \0\0\0"), Some("postgres".into()));
        assert_eq!(of(b"\xff\xfe/x\0"), Some("x".into()));
        assert_eq!(of("ü".repeat(1_000).as_bytes()).map(|name| name.chars().count()), Some(NAME_MAX + 1));
        assert_eq!(of(b"python\0-m"), Some("python".into()));
    }
}
