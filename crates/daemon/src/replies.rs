//! What answers consist of, and which processes a client may see.

use crate::socket::Peer;
use corewise_core::classify::known_fpu_usage;
use corewise_core::ids::ThreadId;
use corewise_core::top::{ThreadState, Top};
use corewise_sys::proc::Proc;
use corewise_sys::task::{self, Task};
use serde_json::{Value, json};
use std::collections::HashMap;
use varlink::Reply;

/// The interface.
pub const NAME: &str = "org.corewise.Daemon";

/// The interface of every service (<https://varlink.org/Service>).
pub const SERVICE: &str = "org.varlink.service";

/// An error of an interface.
pub fn failure(interface: &str, name: &str, parameters: Value) -> Reply {
    Reply { continues: None, error: Some(format!("{interface}.{name}").into()), parameters: Some(parameters) }
}

/// A parameter is missing, or has no sense.
pub fn invalid(parameter: &str) -> Reply {
    failure(SERVICE, "InvalidParameter", json!({"parameter": parameter}))
}

/// The caller may not do that.
pub fn not_permitted(reason: &str) -> Reply {
    failure(NAME, "NotPermitted", json!({"reason": reason}))
}

/// Tells of a thread.
pub fn thread(top: &Top, id: &ThreadId, thread: &ThreadState) -> Value {
    let assignment = thread.assignment.as_ref();
    let reason = assignment.map(|assignment| &*assignment.reason).or(thread.why_not_placed());
    without_unknown(json!({
        "pid": thread.pid,
        "tid": id.tid,
        "name": thread.name,
        "program": top.program_of(thread),
        "pe": thread.pe.map(|pe| pe.0),
        "cpu": thread.cpu,
        "fpu": known_fpu_usage(&thread.usage).map(|estimate| estimate.value),
        "bound": assignment.map(|assignment| assignment.pes.to_string()),
        "reason": reason,
    }))
}

/// Leaves out what is not known, as varlink's optional fields want it.
pub fn without_unknown(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
    value
}

/// When each thread was seen first, in units of start times.
#[derive(Default)]
pub struct Seen(HashMap<ThreadId, u64>);

impl Seen {
    /// Takes in those of an observation.
    pub fn take(&mut self, top: &Top) {
        let (before, now) = (std::mem::take(&mut self.0), task::now());
        let first = |thread: &ThreadId| before.get(thread).copied().unwrap_or(now);
        self.0 = top.threads.keys().map(|thread| (*thread, first(thread))).collect();
    }
}

/// Whose processes are whose.
#[derive(Default)]
pub struct Owners {
    uids: HashMap<u32, Option<u32>>,
    starts: HashMap<u32, Option<u64>>,
}

impl Owners {
    /// Returns whether a peer may see a process, and decide about it.
    pub fn may_see(&mut self, peer: Peer, pid: u32) -> bool {
        let owner = || Proc::own().owner(pid).ok();
        peer.uid == 0 || *self.uids.entry(pid).or_insert_with(owner) == Some(peer.uid)
    }

    /// Returns whether a peer may see what is known of a thread. Its process may have ended since, and its
    /// number may be that of a process of the peer: that one has started after the thread was seen.
    pub fn may_see_thread(&mut self, peer: Peer, (thread, pid): (&ThreadId, u32), seen: &Seen) -> bool {
        if peer.uid == 0 || !self.may_see(peer, pid) {
            return peer.uid == 0;
        }
        // It is read after the owner: if it is that of the known process, so is the owner.
        let start = || Task::of(pid).ok().flatten().map(|task| task.start);
        let start = *self.starts.entry(pid).or_insert_with(start);
        start.zip(seen.0.get(thread)).is_some_and(|(start, first)| start <= *first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_gets_the_number_of_another_one_shows_nothing_of_it() {
        let (own, uid) = (Task::own().unwrap(), 12_345);
        let (thread, mut seen) = (ThreadId { tid: own.id, generation: 0 }, Seen::default());
        let may_see = |seen: &Seen, uid| {
            // The owner is known already.
            let mut owners = Owners { uids: HashMap::from([(own.id, Some(12_345))]), ..Owners::default() };
            owners.may_see_thread(Peer { uid, pid: 0 }, (&thread, own.id), seen)
        };
        assert!(!may_see(&seen, uid), "it was never seen");
        for (first, expected) in [(own.start - 1, false), (own.start, true), (own.start + 1, true)] {
            seen.0.insert(thread, first);
            let may = [uid, 0, uid + 1].map(|uid| may_see(&seen, uid));
            assert_eq!(may, [expected, true, false]);
        }
        seen.take(&Top::default());
        assert!(seen.0.is_empty(), "what has ended is forgotten");
    }
}
