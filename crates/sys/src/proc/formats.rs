//! The contents of the files of `/proc`.

use std::collections::HashMap;

/// `PF_EXITING` of the kernel's `sched.h`, a flag of ending tasks.
pub const EXITING: u32 = 0x4;
/// Flags of the kernel's `sched.h` of what it runs, by itself or in the name of a process: `PF_KTHREAD`,
/// `PF_IO_WORKER` (workers and pollers of io_uring, since Linux 5.12), `PF_USER_WORKER` (those of vhost and
/// KVM, since 6.4; before 5.18 the bit marked who loads modules).
pub const KERNELS: u32 = 0x0020_0000 | 0x10 | 0x4000;

/// The used fields of `stat` (proc_pid_stat(5)), of a process or of one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The thread's name (`comm`).
    pub name: String,
    /// One letter: `R` is runnable, `Z` and `X` have ended.
    pub state: char,
    /// The parent process.
    pub parent: u32,
    /// The kernel's flags (`PF_…`).
    pub(super) flags: u32,
    /// CPU time in user and kernel mode, in clock ticks.
    pub cpu_ticks: u64,
    /// The nice level: a process with a higher one leaves PEs to others.
    pub nice: i64,
    /// The number of threads of the process.
    pub threads: u64,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
    /// Page faults of the child processes that it has waited for: not 0 if there ever was one.
    pub children_faults: u64,
    /// The address of its first stack, which tells one program that it executes from the next; `None` if
    /// hidden, and while it executes one: until that is loaded, the address changes more than once.
    pub stack: Option<u64>,
    /// The PE that it ran on last.
    pub last_pe: u32,
}

impl Stat {
    pub(super) fn parse(text: &str) -> Option<Stat> {
        // The name may contain anything, including parentheses and spaces; the last parenthesis ends it.
        let (head, tail) = text.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        // proc_pid_stat(5) counts from 1 and the state is the third field.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Stat {
            name,
            state: fields.first()?.chars().next()?,
            parent: u32::try_from(number(4)?).ok()?,
            flags: u32::try_from(number(9)?).ok()?,
            cpu_ticks: number(14)? + number(15)?,
            nice: fields.get(19 - 3)?.parse().ok()?,
            threads: number(20)?,
            start_ticks: number(22)?,
            children_faults: number(11)?,
            // The kernel sets the address of the code right before the final one of the stack.
            stack: Some(number(28)?).filter(|stack| *stack != 0 && number(26) > Some(1)),
            last_pe: u32::try_from(number(39)?).ok()?,
        })
    }

    /// Returns whether the kernel runs it: a thread of its own, or one in the name of a process, which shows
    /// it among its threads.
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & KERNELS != 0
    }

    /// Returns whether only its status is left, for its parent.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Returns whether it has ended, or has released its memory in order to end.
    pub fn has_ended(&self) -> bool {
        self.is_zombie() || self.flags & EXITING != 0
    }
}

/// `schedstat` of a thread, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedstat {
    /// Time on a PE.
    pub run_ns: u64,
    /// Time waiting for a PE.
    pub wait_ns: u64,
    /// How often it was given one.
    pub timeslices: u64,
}

impl Schedstat {
    pub(super) fn parse(text: &[u8]) -> Option<Schedstat> {
        let mut fields = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
        let mut number = || fields.next()?.parse().ok();
        Some(Schedstat { run_ns: number()?, wait_ns: number()?, timeslices: number()? })
    }
}

/// `status` (proc_pid_status(5)): lines of a name and a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status(String);

impl Status {
    /// Creates it from the file's text.
    pub fn new(text: String) -> Status {
        Status(text)
    }

    /// Returns a value by its name.
    pub fn field(&self, name: &str) -> Option<&str> {
        let value = |line| str::strip_prefix(line, name)?.strip_prefix(':');
        self.0.lines().find_map(value).map(str::trim)
    }

    /// Returns a value that is a set of bits.
    pub fn bits(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.field(name)?, 16).ok()
    }

    /// Returns a value that is an amount of memory, in bytes.
    pub fn bytes(&self, name: &str) -> Option<u64> {
        Some(self.field(name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    }

    /// Returns the process that the thread belongs to.
    pub fn process(&self) -> Option<u32> {
        self.field("Tgid")?.parse().ok()
    }
}

/// `environ`: the variables that a process was started with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment(Vec<u8>);

impl Environment {
    /// Creates it from the file's bytes.
    pub fn new(bytes: Vec<u8>) -> Environment {
        Environment(bytes)
    }

    /// Returns the variables with their values. Bytes that are not valid UTF-8 are replaced.
    pub fn variables(&self) -> impl Iterator<Item = (String, String)> {
        let entries = self.0.split(|&byte| byte == 0).map(String::from_utf8_lossy);
        entries.filter_map(|entry| entry.split_once('=').map(|(name, value)| (name.into(), value.into())))
    }

    /// Returns the value of a variable.
    pub fn get(&self, name: &str) -> Option<String> {
        self.variables().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}

/// `cgroup` (cgroups(7)): the groups of a process, in both versions of their hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControlGroups(HashMap<String, String>);

impl ControlGroups {
    /// Parses the file's text: `4:memory:/a/b` in version 1, `0::/a/b` in version 2.
    pub fn new(text: &str) -> ControlGroups {
        let group = |line: &str| {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
        };
        ControlGroups(text.lines().filter_map(group).collect())
    }

    /// Returns the group in the hierarchy of version 2, from its root.
    pub fn unified(&self) -> Option<&str> {
        self.0.get("").map(String::as_str)
    }

    /// Returns the group in the hierarchy of systemd: that of version 2, or its own where only version 1 is
    /// mounted.
    pub fn of_systemd(&self) -> Option<&str> {
        self.unified().or_else(|| self.0.get("name=systemd").map(String::as_str))
    }

    /// Returns all groups, each with the hierarchy's controllers (separated by commas; empty in version 2).
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(controllers, group)| (controllers.as_str(), group.as_str()))
    }
}

/// `autogroup` (sched(7)): the threads of a session, which share a part of the PEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Autogroup {
    /// Its number.
    pub number: u64,
    /// Its nice level.
    pub nice: i64,
}

impl Autogroup {
    /// Parses text such as `/autogroup-25 nice 0`.
    pub(super) fn parse(text: &str) -> Option<Autogroup> {
        let (number, nice) = text.trim().strip_prefix("/autogroup-")?.split_once(" nice ")?;
        Some(Autogroup { number: number.parse().ok()?, nice: nice.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_parentheses_and_spaces() {
        let text = "7 (a) b (c) S 5 7 7 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 3 0 9001 1 2 3 4 5 6 7 8 9 0 \
                    0 0 0 0 0 17 3 0 0 0 0 0";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(stat.name, "a) b (c");
        assert_eq!(
            (stat.state, stat.parent, stat.cpu_ticks, stat.start_ticks, stat.last_pe),
            ('S', 5, 42, 9001, 3)
        );
        assert!(!stat.is_kernel_thread() && !stat.has_ended());
        let with_flags = |flags: u32| Stat::parse(&text.replace("4194560", &flags.to_string())).unwrap();
        assert!(with_flags(KERNELS).is_kernel_thread() && with_flags(EXITING).has_ended());
        assert!(Stat::parse(&text.replace(") S", ") Z")).unwrap().is_zombie());
        assert_eq!(Stat::parse("7 (x"), None);
    }

    #[test]
    fn a_status_tells_values_by_their_names() {
        let status = Status::new("Name:\tTgid: 9\nTgid:\t7\nVmHWM:\t  12 kB\nSigCgt:\t0a\n".to_owned());
        assert_eq!(
            (status.process(), status.bytes("VmHWM"), status.bits("SigCgt")),
            (Some(7), Some(12288), Some(10))
        );
        assert_eq!((status.field("Vm"), status.field("Absent")), (None, None));
    }

    #[test]
    fn an_environment_tells_variables_by_their_names() {
        let environment = Environment::new(b"A=1\0noise\0AB=x=y\0B\xff=2\0".to_vec());
        assert_eq!((environment.get("AB"), environment.get("A")), (Some("x=y".into()), Some("1".into())));
        assert_eq!((environment.get("noise"), environment.variables().count()), (None, 3));
    }

    #[test]
    fn groups_of_both_versions_are_found() {
        let groups = ControlGroups::new("4:cpu,cpuacct:/a:b\n1:name=systemd:/x\n0::/c d\n");
        assert_eq!(groups.unified(), Some("/c d"));
        let mut all: Vec<_> = groups.all().collect();
        all.sort();
        assert_eq!(all, [("", "/c d"), ("cpu,cpuacct", "/a:b"), ("name=systemd", "/x")]);
        assert_eq!(ControlGroups::new("nonsense").unified(), None);
        assert_eq!(Autogroup::parse("/autogroup-25 nice -3\n"), Some(Autogroup { number: 25, nice: -3 }));
        assert_eq!(Autogroup::parse("/autogroup-25"), None);
    }
}
