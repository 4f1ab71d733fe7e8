//! The rows of the contract.

/// A comparison.
pub struct Row {
    /// What is compared.
    pub name: String,
    /// The script that is run twice.
    pub script: String,
    /// Part of what it prints.
    pub shows: String,
    /// Whether it needs root.
    pub as_root: bool,
}

/// All of them.
pub fn rows() -> Vec<Row> {
    let tables = [EXIT_STATUS, SIGNALS, JOB_CONTROL, INHERITED, DESCRIPTORS, LIMITS, LIFETIME];
    let written = tables.into_iter().flatten().map(|(name, script, shows)| row(name, script, shows));
    let as_root =
        AS_ROOT.iter().map(|(name, script, shows)| Row { as_root: true, ..row(name, script, shows) });
    written.chain(as_root).chain(deaths()).chain(passed_on()).chain(ignored()).collect()
}

/// Those in which a program says what it finds, whatever starts it.
pub fn found() -> Vec<Row> {
    let tells = |(_, script, _): &&(&str, &str, &str)| {
        // What else a script does would have to be said by the program.
        script.contains("$P $probe") && !script.contains("2>&-")
    };
    let tables = INHERITED.iter().chain([&OTHER_DESCRIPTORS]).chain(LIMITS.iter().filter(tells));
    tables.map(|(name, script, shows)| row(name, script, shows)).chain(ignored()).collect()
}

fn row(name: &str, script: &str, shows: &str) -> Row {
    let [name, script, shows] = [name, script, shows].map(str::to_owned);
    Row { name, script, shows, as_root: false }
}

/// A program that dies of a signal: corewise dies of the same.
fn deaths() -> impl Iterator<Item = Row> {
    let by_default = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 25, 26, 27, 29, 30, 31];
    by_default.into_iter().chain([34, 40, 50, 63, 64]).map(|number| {
        let script = format!("ulimit -c 0; $probe job $P $probe dies {number}");
        row(&format!("death by signal {number}"), &script, &format!("killed by {number}\n"))
    })
}

/// A signal that somebody sends to corewise reaches the program, once.
fn passed_on() -> impl Iterator<Item = Row> {
    let standard = (1..=31).filter(|number| ![9, 19].contains(number));
    standard.chain([34, 40, 64]).map(|number| {
        let script = format!("hear $P; kill -{number} $pid; rest");
        row(&format!("signal {number} sent to it"), &script, &format!("got {number}\nno more\nstatus 0\n"))
    })
}

/// What the parent ignores stays ignored.
fn ignored() -> impl Iterator<Item = Row> {
    [1, 2, 13, 17, 20, 21, 22, 25, 40].into_iter().map(|number| {
        let script = format!("$probe with ignored{number} $P $probe signals");
        row(&format!("signal {number} ignored by the parent"), &script, &format!("{number}i "))
    })
}

/// Name, script, what it shows.
type Table = &'static [(&'static str, &'static str, &'static str)];

const EXIT_STATUS: Table = &[
    ("success", "$probe job $P true", "exited 0"),
    ("failure", "$probe job $P false", "exited 1"),
    ("another exit status", "$probe job $P sh -c 'exit 42'", "exited 42"),
    ("the highest exit status", "$probe job $P sh -c 'exit 255'", "exited 255"),
    ("128 and a signal's number is an exit status", "$probe job $P sh -c 'exit 130'", "exited 130"),
    ("no such file", "$P /no/such/program 2>/dev/null; echo $?", "127"),
    ("no such command", "$P no-such-command 2>/dev/null; echo $?", "127"),
    ("a file that is not executable", "$P /etc/passwd 2>/dev/null; echo $?", "126"),
    ("a directory", "$P / 2>/dev/null; echo $?", "126"),
    ("a script without `#!`", "echo 'echo by sh' > s; chmod +x s; $P ./s", "by sh"),
    ("a script without its interpreter", "echo '#!/no/sh' > s; chmod +x s; $P ./s 2>&-; echo $?", "12"),
    ("nested", "$P $P sh -c 'exit 7'", "exit status: 7"),
    ("a core dump", "ulimit -c unlimited; { $P sh -c 'kill -SEGV $$'; echo $?; } 2>&-; ls | wc -l", "139"),
];

const SIGNALS: Table = &[
    ("a value queued with a real-time signal", "hear $P; $probe queue $pid 40 42; rest", "got 40 value 42\n"),
    ("a value queued with SIGUSR1", "hear $P; $probe queue $pid 10 7; rest", "got 10 value 7\n"),
    ("SIGTERM to the group", "set -m; hear $P; kill -TERM -- -$pid; rest", "got 15\nno more"),
    ("SIGINT to the group", "set -m; hear $P; kill -INT -- -$pid; rest", "got 2\nno more"),
    ("SIGCONT to the group", "set -m; hear $P; kill -CONT -- -$pid; rest", "got 18\nno more"),
    ("SIGTSTP to the group, blocked", "set -m; hear $P; kill -TSTP -- -$pid; rest", "got 20\nno more"),
    ("SIGALRM to the group", "set -m; hear $P; kill -ALRM -- -$pid; rest", "got 14\nno more"),
    ("SIGRTMIN to the group", "set -m; hear $P; kill -34 -- -$pid; rest", "got 34\nno more"),
    (
        "the group, then it alone",
        "set -m; hear $P; kill -10 -- -$pid; sleep .1; kill -10 $pid; rest",
        "got 10\ngot 10\nno more",
    ),
    (
        "a program that wants a group of its own",
        "set -m; hear $P $probe with group; kill -INT -- -$pid; rest",
        "got 2\nno more",
    ),
    (
        "a program's signal to its group",
        "set -m; { exec $P bash -c 'trap \"echo heard\" USR1; kill -USR1 0; sleep .3'; } & wait $!; echo $?",
        "heard",
    ),
    (
        "a shell's loop after Ctrl-C",
        "set -m; { exec bash -c \"for i in 1 2 3; do $P sh -c 'kill -INT 0; sleep 5'; echo round; done\"; } \
         & wait $!; echo $?",
        "130",
    ),
    ("timeout of it", "timeout .5 $P sleep 5; echo $?", "124"),
    ("timeout under it", "$P timeout .5 sleep 5; echo $?", "124"),
    ("an alarm set before", "$probe job $probe with alarm $P sleep 5", "killed by 14"),
    ("nobody reads its output", "$P yes | head -1; echo ${PIPESTATUS[0]}", "141"),
];

const JOB_CONTROL: Table = &[
    (
        "stopped by SIGSTOP, its group goes on",
        "CONTINUE=group $probe job $P sh -c 'kill -STOP $$; sleep .3; exit 5'",
        "stopped by 19\ncontinued\nexited 5",
    ),
    (
        "stopped by SIGTSTP, its group goes on",
        "CONTINUE=group $probe job $P sh -c 'kill -TSTP $$; sleep .3; exit 5'",
        "stopped by 20\ncontinued\nexited 5",
    ),
    (
        "stopped by SIGTTIN, its group goes on",
        "CONTINUE=group $probe job $P sh -c 'kill -TTIN $$; sleep .3; exit 5'",
        "stopped by 21\ncontinued\nexited 5",
    ),
    (
        "stopped by SIGTTOU, its group goes on",
        "CONTINUE=group $probe job $P sh -c 'kill -TTOU $$; sleep .3; exit 5'",
        "stopped by 22\ncontinued\nexited 5",
    ),
    (
        "stopped by SIGSTOP, it alone goes on",
        "CONTINUE=process $probe job $P sh -c 'kill -STOP $$; sleep .3; exit 5'",
        "stopped by 19\ncontinued\nexited 5",
    ),
    (
        "stopped by SIGTSTP, it alone goes on",
        "CONTINUE=process $probe job $P sh -c 'kill -TSTP $$; sleep .3; exit 5'",
        "stopped by 20\ncontinued\nexited 5",
    ),
    (
        "stopped, and continued by a child of its own",
        "$probe job $P sh -c '(sleep .3; kill -CONT $$) & kill -STOP $$; sleep .3; exit 5'",
        "stopped by 19\ncontinued\nexited 5",
    ),
    (
        "stopped twice",
        "$probe job $P sh -c '(sleep .3; kill -CONT $$; sleep .4; kill -CONT $$) & kill -STOP $$; sleep .2; \
         kill -STOP $$; sleep .3; exit 5'",
        "stopped by 19\ncontinued\nstopped by 19\ncontinued\nexited 5",
    ),
    (
        "killed while it is stopped",
        "$probe job $P sh -c '(sleep .3; kill -KILL $$) & kill -STOP $$' | grep -v continued",
        "stopped by 19\nkilled by 9",
    ),
    ("session and process group", "$P $probe terminal", "session the parent's, group the parent's"),
    ("the terminal", "script -qec \"bash -c '$P $probe terminal; :'\" /dev/null", "foreground yes"),
];

const INHERITED: Table = &[
    ("dispositions", "$P $probe signals", "13d"),
    ("the default disposition of every signal", "$probe with defaults $P $probe signals", "32d 33d 34d"),
    ("blocked signals", "$probe with blocked $P $probe signals", "10db"),
    ("under nohup", "nohup $P $probe signals 2>&-", "1i"),
    ("nohup under it", "$P nohup $probe signals 2>&-", "1i"),
    ("attributes", "$P $probe attributes", "policy 0"),
    ("the duty to adopt orphans", "$probe with adopts $P $probe attributes", "adopts 1"),
    ("the slack of timers", "$probe with slack $P $probe attributes", "slack 123456"),
    ("timers", "$probe with timers $P $probe timers", "timer 0: 100 s left, every 7 s"),
    ("no new privileges", "setpriv --no-new-privs $P $probe attributes", "new-privs 1"),
    ("niceness", "nice -n 5 $P $probe attributes", "nice 5"),
    ("scheduling policy", "chrt --batch 0 $P $probe attributes", "policy 3"),
    ("I/O priority", "ionice -c 3 $P $probe attributes", "io 245"),
    ("personality", "setarch -R $P $probe attributes", "personality 40000"),
    ("the affinity mask", "taskset -c 0 $P grep Cpus_allowed /proc/self/status", "list:\t0\n"),
    ("the OOM killer's score", "echo 500 > /proc/self/oom_score_adj; $P cat /proc/self/oom_score_adj", "500"),
    (
        "what core dumps hold",
        "echo 0x11 > /proc/self/coredump_filter; $P cat /proc/self/coredump_filter",
        "11",
    ),
    ("umask", "umask 027; $P sh -c umask", "0027"),
    ("the directory", "mkdir d; cd d; $P sh -c 'basename \"$PWD\"'", "d\n"),
    ("a directory that is gone", "mkdir d; cd d; rmdir ../d; $P sh -c 'echo here' 2>&-", "here"),
    ("control group and namespaces", "$P sh -c 'cat /proc/self/cgroup; readlink /proc/self/ns/*'", "pid:["),
    (
        "users, groups and capabilities",
        "$P grep -E '^(Uid|Gid|Groups|Cap|Seccomp)' /proc/self/status",
        "CapEff",
    ),
    ("the environment", "env -i A='1 2' B= $P /usr/bin/env | grep -v ^COREWISE_PID=", "A=1 2\n"),
    ("an empty environment", "env -i $P /usr/bin/env | grep -v ^COREWISE_PID=; echo end", "end"),
    ("arguments", "$P $probe words '' 'a  b' $'\\xff' -- -x --wait", "<a  b>"),
    ("a name that PATH finds", "PATH=$PATH:. ; echo 'echo found' > own; chmod +x own; $P own", "found"),
];

const OTHER_DESCRIPTORS: (&str, &str, &str) = (
    "descriptors beside the standard streams",
    "$P $probe descriptors o 3>x 7<x 100>>x; grep -v '^[012] ' o; $P echo end",
    "100 flags",
);

const DESCRIPTORS: Table = &[
    ("descriptors", "$P $probe descriptors o; cat o", "2 flags"),
    ("more descriptors", "$P $probe descriptors o 3>x 7<x 100>>x; cat o", "100 flags"),
    OTHER_DESCRIPTORS,
    ("standard input closed", "$P $probe descriptors o <&-; cat o", "1 flags"),
    ("standard output closed", "$P $probe descriptors o >&-; cat o", "2 flags"),
    ("standard error closed", "$P $probe descriptors o 2>&-; cat o", "1 flags"),
    ("all of them closed", "$P $probe descriptors o <&- >&- 2>&-; cat o; echo end", "end"),
    ("standard input is left to it", "printf 'a\\nb\\n' | { $P head -c 2; cat; }", "a\nb\n"),
    (
        "its output ends when it closes it",
        "mkfifo p; $P sh -c 'exec >&-; sleep 2; : > f' > p & cat p; ls f 2>&-; wait",
        "status: 0",
    ),
    (
        "another descriptor ends too",
        "mkfifo p; $P sh -c 'exec 3>&-; sleep 2; : > f' 3> p & cat p; ls f 2>&-; wait",
        "status: 0",
    ),
    (
        "a writer to its input learns that it is closed",
        "mkfifo p; $P sh -c 'exec <&-; : > f; sleep 2' < p & exec 3> p; \
         until [ -e f ]; do sleep .1; done; sleep .2; trap '' PIPE; echo x >&3 2>&-; echo \"wrote $?\"; wait",
        "wrote 1",
    ),
    ("standard error on a full disk", "$LOUD sh -c 'exit 3' 2>/dev/full; echo $?", "3\n"),
    (
        "nobody reads standard error",
        "exec 4>&1; { $LOUD sh -c 'sleep .2; exit 3' 2>&1 >&4; echo $? >&4; } | true",
        "3\n",
    ),
    ("nowhere to speak", "$LOUD sh -c 'exit 3' <&- >&- 2>&-; echo $?", "3\n"),
];

const LIMITS: Table = &[
    ("limits", "$P $probe limits", "7: "),
    ("few descriptors", "ulimit -n 64; $P $probe limits", "7: 64 64"),
    ("very few descriptors", "ulimit -n 16; $P $probe limits 2>&-", "7: 16 16"),
    (
        "any number of descriptors",
        "for n in 10 22 26 28 30 40; do (ulimit -n $n; $P sh -c 'exit 3' 2>&-; echo $?); done | uniq -c",
        "6 3",
    ),
    ("a soft limit of descriptors", "ulimit -S -n 32; $P $probe limits", "7: 32 "),
    ("small stacks", "ulimit -s 64; $P $probe limits", "3: 65536 65536"),
    ("small files", "ulimit -f 1; $P $probe limits", "1: 1024 1024"),
    (
        "a file that becomes too large",
        "ulimit -f 1; ulimit -c 0; { $P head -c 9000 /dev/zero > big; echo $?; } 2>&-",
        "153",
    ),
    (
        "a file that becomes too large, handled",
        "ulimit -f 1; $P bash -c 'trap \"\" XFSZ; head -c 9000 /dev/zero > big' 2>&-; echo $?",
        "1\n",
    ),
    ("CPU time", "ulimit -t 100; $P $probe limits", "0: 100 100"),
    ("address space", "ulimit -v 2000000; $P $probe limits 2>&-", "9: 2048000000 2048000000"),
];

const LIFETIME: Table = &[
    (
        "what it leaves behind is not waited for",
        "$P sh -c '(sleep 2; : > f) & echo now' >/dev/null; ls f 2>&-; echo end",
        "end",
    ),
    (
        "what it leaves behind keeps its mask",
        "$P sh -c 'sleep 2 >/dev/null & echo $! > p'; grep Cpus_allowed_list /proc/$(cat p)/status",
        "list",
    ),
    ("what it leaves behind lives on", "$P sh -c '(sleep 1; : > f) > /dev/null &'; sleep 1.5; ls f", "f\n"),
];

const AS_ROOT: Table = &[
    (
        "as the first process of a container",
        "unshare --pid --fork --mount-proc $P sh -c 'exit 3'; echo $?",
        "3",
    ),
    (
        "a child killed in a container",
        "unshare --pid --fork --mount-proc $P sh -c '(kill -9 $BASHPID); exit 4'; echo $?",
        "4",
    ),
    (
        "orphans in a container",
        "unshare --pid --fork --mount-proc $P sh -c '(sleep .1 &) ; sleep .3; exit 5'; echo $?",
        "5",
    ),
    ("/proc is that of another namespace", "unshare --pid --fork $P sh -c 'exit 6' 2>&-; echo $?", "6"),
    (
        "without /proc",
        "unshare --mount sh -c 'mount -t tmpfs none /proc; exec \"$@\"' sh \
         $P sh -c 'echo ran; exit 3' 2>&-; echo $?",
        "ran\n3",
    ),
    (
        "without /sys",
        "unshare --mount sh -c 'mount -t tmpfs none /sys; exec \"$@\"' sh \
         $P sh -c 'echo ran; exit 3' 2>&-; echo $?",
        "ran\n3",
    ),
    (
        "without /proc and /sys",
        "unshare --mount sh -c 'mount -t tmpfs none /proc; mount -t tmpfs none /sys; exec \"$@\"' sh \
         $P sh -c 'echo ran; exit 3' 2>&-; echo $?",
        "ran\n3",
    ),
    ("without a capability", "setpriv --bounding-set -sys_nice $P grep Cap /proc/self/status", "CapBnd"),
];
