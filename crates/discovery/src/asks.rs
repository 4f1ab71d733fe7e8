//! What bound threads have asked for and could not have, reported by the BPF programs.

use corewise_bpf as bpf;
use libbpf_rs::btf::{Btf, types::Func};
use libbpf_rs::{Link, Object, OpenObject};

/// The programs of `discovery.bpf.c` at these system calls, and the functions of the kernel whose ends they
/// see. A kernel may lack them, or be unable to attach programs to functions: then nothing is seen.
const AT_ASKS: [(&str, &str); 2] =
    [("on_mask_asked", "sched_getaffinity"), ("on_policy_set", "__sched_setscheduler")];

/// A process in which a bound thread has asked for what it could not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The process.
    pub pid: u32,
    /// The name of the thread (`comm`): the process may have ended since.
    pub name: String,
    /// What was asked for.
    pub asked: Asked,
}

/// What a bound thread cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A mask that says how many PEs its program may use.
    Mask,
    /// `SCHED_DEADLINE`.
    Deadline,
}

/// `struct ask` of `asks.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct RawAsk {
    tgid: u32,
    asked: u32,
    comm: [u8; 16],
}

impl From<RawAsk> for Ask {
    fn from(raw: RawAsk) -> Ask {
        let asked = if raw.asked == 0 { Asked::Mask } else { Asked::Deadline };
        let name = raw.comm.split(|byte| *byte == 0).next().unwrap_or_default();
        Ask { pid: raw.tgid, name: String::from_utf8_lossy(name).into_owned(), asked }
    }
}

/// Returns why asks cannot be seen here, if so: some systems permit no BPF programs at functions of the
/// kernel.
pub fn why_unseen() -> Option<String> {
    let load = || {
        let mut object = bpf::open(bpf::DISCOVERY)?;
        object.progs_mut().for_each(|mut program| program.set_autoload(false));
        choose(&mut object);
        let object = object.load().map_err(bpf::reason)?;
        (attach(&object).len() == AT_ASKS.len()).then_some(()).ok_or("the kernel lacks functions".to_owned())
    };
    load().err()
}

/// Returns whether a program is one of those that see asks.
pub(super) fn is_at_asks(program: &str) -> bool {
    AT_ASKS.iter().any(|(name, _)| *name == program)
}

/// Chooses the programs whose functions the kernel describes.
pub(super) fn choose(object: &mut OpenObject) {
    let Ok(kernel) = Btf::from_vmlinux() else { return };
    for mut program in object.progs_mut() {
        let at = AT_ASKS.iter().find(|(name, _)| program.name() == *name);
        let is_there = at.is_some_and(|(_, function)| kernel.type_by_name::<Func<'_>>(function).is_some());
        if at.is_some() {
            program.set_autoload(is_there);
        }
    }
}

/// Attaches the programs that were loaded.
pub(super) fn attach(object: &Object) -> Vec<Link> {
    let each = AT_ASKS.iter().map(|(name, _)| bpf::attach_those(object, |program| program == *name));
    each.filter_map(Result::ok).flatten().collect()
}
