//! `Explain`: what the daemon does with one process, and why.

use crate::known::Known;
use crate::replies::{self, NAME, Owners, failure, invalid, without_unknown};
use crate::socket::Peer;
use corewise_core::top::ThreadState;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use varlink::Reply;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    pid: u32,
}

/// Explains a process.
pub fn explain(known: &Known, parameters: Value, peer: Peer) -> Reply {
    let Ok(Named { pid }) = serde_json::from_value(parameters) else { return invalid("pid") };
    let top = &known.top;
    let mut owners = Owners::default();
    let threads = top.threads.iter().filter(|(_, of)| of.pid == pid);
    let threads: Vec<_> =
        threads.filter(|(id, of)| owners.may_see_thread(peer, (*id, of.pid), &known.seen)).collect();
    let Some((_, first)) = threads.first() else {
        return failure(NAME, "NoSuchProcess", json!({"pid": pid}));
    };
    let found = known.treatments.borrow_mut().found(pid).clone();
    let treatment = &found.treatment;
    let application = top.applications.get(&first.app);
    let thread_replies = threads.iter().map(|(id, thread)| replies::thread(top, id, thread));
    let parameters = json!({
        "pid": pid,
        "program": top.program_of(first),
        "executed_by": application.and_then(|of| of.executed_by.as_ref()),
        "class": application.and_then(|of| of.class),
        "rule": found.rule,
        "placed_among": treatment.pes.as_ref().map(|pes| pes.to_string()),
        "left_alone": treatment.left_alone,
        "waits_may_change": treatment.waits.any(),
        "waits_permitted": treatment.waits.word(),
        "waits": waits(threads.iter().map(|(_, thread)| *thread)),
        "nothing_to_gain": top.policy.nothing_to_gain,
        "findings": top.policy.findings,
        "threads": thread_replies.collect::<Vec<_>>(),
    });
    Reply::parameters(Some(without_unknown(parameters)))
}

/// Returns how the threads of a process are treated apart from where they run, each setting once.
fn waits<'a>(threads: impl Iterator<Item = &'a ThreadState>) -> Vec<String> {
    let settings: BTreeMap<&str, &str> =
        threads.flat_map(|thread| &thread.settings).map(|(words, reason)| (&**words, &**reason)).collect();
    settings.into_iter().map(|(words, reason)| format!("{words} ({reason})")).collect()
}
