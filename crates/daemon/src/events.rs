//! What the daemon has done lately, for clients that want to know it as it happens.
//!
//! An event is a fact, not a plan: it is reported when the outcome of a change is known. It belongs to the
//! user of its process at that moment, as process IDs are used again.

use crate::socket::Peer;
use corewise_core::plan::{Change, Outcome, OutcomeKind};
use corewise_core::top::Top;
use corewise_sys::proc::Proc;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};
use varlink::Reply;

/// The number of events of each user that are kept for clients that ask later: nobody pushes out those of
/// others.
const KEPT_MAX: usize = 256;

/// An event, and whose it is.
#[derive(Debug, Clone)]
pub struct Event {
    /// The user whose process it is about; `None`: root's alone.
    uid: Option<u32>,
    content: Value,
}

/// The latest events.
#[derive(Debug, Default)]
pub struct Events {
    kept: VecDeque<Event>,
    /// Those that were not reported yet.
    news: Vec<Event>,
    /// What the guards had found before.
    findings: Vec<String>,
}

impl Event {
    fn new(uid: Option<u32>, what: &str, mut content: Value) -> Event {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        content["what"] = what.into();
        content["time"] = now.as_secs_f64().into();
        Event { uid, content }
    }

    fn concerns(&self, peer: Peer) -> bool {
        peer.uid == 0 || self.uid == Some(peer.uid)
    }
}

/// Returns the events of these that concern a peer, as a reply; `None` if there are none.
pub fn reply<'a>(events: impl IntoIterator<Item = &'a Event>, peer: Peer, continues: bool) -> Option<Reply> {
    let events = events.into_iter().filter(|event| event.concerns(peer)).map(|event| event.content.clone());
    let events: Vec<Value> = events.collect();
    let is_any = !events.is_empty();
    let parameters = Some(json!({"events": events}));
    is_any.then_some(Reply { continues: continues.then_some(true), error: None, parameters })
}

impl Events {
    /// Something happened to a process.
    pub fn add_of_process(&mut self, pid: u32, what: &str, content: Value) {
        self.add(Event::new(Proc::own().owner(pid).ok(), what, content));
    }

    /// Something happened to the daemon itself.
    pub fn add_of_daemon(&mut self, what: &str, text: &str) {
        let own = nix::unistd::geteuid().as_raw();
        self.add(Event::new(Some(own), what, json!({"text": text})));
    }

    fn add(&mut self, event: Event) {
        self.news.push(event);
    }

    /// Takes in a round of the loop, after `top` has.
    pub fn take(&mut self, outcomes: &[Outcome], top: &Top) {
        for outcome in outcomes.iter().filter(|outcome| outcome.result == OutcomeKind::Done) {
            let Some(thread) = top.threads.get(&outcome.thread) else { continue };
            let mut decided = thread.decisions.iter().rev();
            let reason = decided.find(|decided| decided.change == outcome.change).map(|found| &found.reason);
            let (what, text) = words(&outcome.change);
            let content = json!({
                "pid": thread.pid,
                "tid": outcome.thread.tid,
                "name": thread.name,
                "text": text,
                "reason": reason.map_or("", |reason| &**reason),
            });
            self.add_of_process(thread.pid, what, content);
        }
        for finding in &top.policy.findings {
            if !self.findings.contains(finding) {
                self.add_of_daemon("found", finding);
            }
        }
        self.findings.clone_from(&top.policy.findings);
    }

    /// Returns the latest that were reported.
    pub fn kept(&self) -> impl Iterator<Item = &Event> {
        self.kept.iter()
    }

    /// Returns those since the last call, to be reported now. A client that asks later finds them in
    /// [`Events::kept`].
    pub fn take_news(&mut self) -> Vec<Event> {
        let news = std::mem::take(&mut self.news);
        self.kept.extend(news.iter().cloned());
        let mut later: HashMap<Option<u32>, usize> = HashMap::new();
        let mut is_kept = |event: &Event| {
            let later = later.entry(event.uid).or_default();
            *later += 1;
            *later <= KEPT_MAX
        };
        // The latest first.
        let kept: Vec<Event> = self.kept.drain(..).rev().filter(|event| is_kept(event)).collect();
        self.kept.extend(kept.into_iter().rev());
        news
    }
}

/// What an event is called, and what it says.
fn words(change: &Change) -> (&'static str, String) {
    match change {
        Change::Bind(pes) => ("placed", format!("PEs {pes}")),
        Change::Move(pes) => ("placed", format!("moved to PEs {pes}; it may use all that its user permits")),
        Change::Free => ("freed", "the PEs that its user permits".to_owned()),
        Change::Set(setting) => ("changed", setting.to_string()),
        Change::Reset(kind) => ("reset", kind.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::plan::{Setting, SettingKind};

    #[test]
    fn users_see_events_of_their_processes_and_the_oldest_of_each_are_forgotten() {
        let mut events = Events::default();
        let uid = nix::unistd::geteuid().as_raw();
        events.add_of_process(u32::MAX, "placed", json!({"text": "of nobody"}));
        for number in 0..2 * KEPT_MAX {
            events.add_of_process(std::process::id(), "placed", json!({"text": number.to_string()}));
        }
        assert_eq!(events.kept().count(), 0, "they are news first");
        assert_eq!(events.take_news().len(), 2 * KEPT_MAX + 1);
        assert_eq!((events.kept().count(), events.take_news().len()), (KEPT_MAX + 1, 0));
        let first = events.kept().nth(1).unwrap();
        assert_eq!(first.content["text"], KEPT_MAX.to_string(), "the oldest ones of that user are gone");
        let count = |uid| {
            let reply = reply(events.kept(), Peer { uid, pid: 0 }, false);
            reply.map_or(0, |reply| reply.parameters.unwrap()["events"].as_array().unwrap().len())
        };
        let own = if uid == 0 { KEPT_MAX + 1 } else { KEPT_MAX };
        assert_eq!((count(0), count(uid), count(uid + 1)), (KEPT_MAX + 1, own, 0));
    }

    #[test]
    fn every_change_has_its_words() {
        let of = |change| words(&change).0;
        assert_eq!(of(Change::Bind("0".parse().unwrap())), "placed");
        assert_eq!(of(Change::Free), "freed");
        assert_eq!(words(&Change::Set(Setting::SpinCount(7))), ("changed", "spin count: 7".to_owned()));
        assert_eq!(of(Change::Reset(SettingKind::Turns)), "reset");
    }
}
