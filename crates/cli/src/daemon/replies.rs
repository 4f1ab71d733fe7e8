//! What answers consist of, and which processes a client may see.

use super::socket::Peer;
use corewise_core::classify::known_fpu_usage;
use corewise_core::ids::ThreadId;
use corewise_core::top::{ThreadState, Top};
use corewise_sys::proc::Proc;
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
    let reason = assignment.map(|assignment| &*assignment.reason).or(thread.standing.why_not_placed());
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

/// Whose processes are whose.
#[derive(Default)]
pub struct Owners(HashMap<u32, Option<u32>>);

impl Owners {
    /// Returns whether a peer may see a process, and decide about it.
    pub fn may_see(&mut self, peer: Peer, pid: u32) -> bool {
        peer.uid == 0 || *self.0.entry(pid).or_insert_with(|| Proc::own().owner(pid).ok()) == Some(peer.uid)
    }
}
