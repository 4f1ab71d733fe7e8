//! `Attach` and `Detach`: clients name processes that the daemon is to follow, or to leave alone.
//!
//! Whose process it is, is read while a descriptor of it shows that it lives ([`Held`]), so that no later
//! process with its ID is meant. The tree of a process is it and what descends from it, as far as that
//! belongs to the caller; root may decide about all.

use crate::known::Known;
use crate::replies::{NAME, Owners, failure, invalid, not_permitted};
use crate::socket::Peer;
use corewise_live::Trees;
use corewise_sys::held::Held;
use corewise_sys::proc::Proc;
use corewise_sys::task::Task;
use serde::Deserialize;
use serde_json::{Value, json};
use varlink::Reply;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    pid: Option<u32>,
}

/// Follows and places a process, or with `is_detached` gives back what was changed of it and leaves it alone.
/// Without a number it is the caller's.
pub fn decide(
    (known, trees): (&mut Known, &mut dyn Trees),
    parameters: Value,
    peer: Peer,
    is_detached: bool,
) -> Reply {
    let named = match parameters {
        Value::Null => Ok(Named { pid: None }),
        // Else a list would do, too.
        parameters @ Value::Object(_) => serde_json::from_value(parameters),
        _ => return invalid("parameters"),
    };
    let Ok(Named { pid }) = named else { return invalid("pid") };
    let pid = pid.unwrap_or(peer.pid);
    let gone = || failure(NAME, "NoSuchProcess", json!({"pid": pid}));
    let (Ok(held), Ok(Some(task))) = (Held::of(pid), Task::of(pid)) else { return gone() };
    let mut owners = Owners::default();
    let is_theirs = owners.may_see(peer, pid);
    // What was read since it is held is true of it.
    if !held.lives() {
        return gone();
    }
    if !is_theirs {
        return not_permitted(&format!("process {pid} is another user's, about which only root may decide"));
    }
    let is_new = !trees.follows(pid);
    if is_new && is_detached {
        return failure(NAME, "NotFollowed", json!({"pid": pid}));
    }
    if is_new && let Err(error) = trees.attach(pid) {
        return failure(NAME, "NotAttachable", json!({"pid": pid, "reason": error.to_string()}));
    }
    let tree = tree_of(task, &mut owners, peer);
    if !held.lives() {
        // Nobody meant a process that has its number now.
        let other = Task::of(pid).ok().flatten().filter(|_| is_new);
        known.treatments.borrow_mut().detach(other.as_slice(), true);
        return gone();
    }
    known.treatments.borrow_mut().detach(&tree, is_detached);
    trees.reconsider(&tree.iter().map(|task| task.id).collect::<Vec<_>>());
    let what = if is_detached { "detached" } else { "attached" };
    known.events.add_of_process(pid, what, json!({"pid": pid, "text": "with what descends from it"}));
    let is_left = known.treatments.borrow_mut().found(pid).treatment.left_alone.is_some();
    Reply::parameters(Some(json!({"pid": pid, "processes": tree.len(), "acts": known.acts && !is_left})))
}

/// Returns a process, and what descends from it and belongs to the peer.
fn tree_of(task: Task, owners: &mut Owners, peer: Peer) -> Vec<Task> {
    let (proc, below) = (Proc::own(), |above: u32| (above == task.id).then_some(()));
    let processes = proc.processes().unwrap_or_default();
    let below = proc.descendants(&processes, below, &[]).unwrap_or_default();
    let theirs = below.into_keys().filter(|pid| owners.may_see(peer, *pid));
    [task].into_iter().chain(theirs.filter_map(|pid| Task::of(pid).ok().flatten())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::tests::known;
    use crate::treatments::Treatments;
    use corewise_core::topology::Topology;
    use corewise_discovery::FollowError;
    use std::cell::RefCell;
    use std::collections::HashSet;
    use std::process::{Child, Command};
    use std::rc::Rc;

    /// A world that follows every process that it should, and notes what it has to reconsider.
    #[derive(Default)]
    struct Forest {
        followed: HashSet<u32>,
        reconsidered: Vec<u32>,
    }

    impl Trees for Forest {
        fn follows(&self, pid: u32) -> bool {
            self.followed.contains(&pid)
        }

        fn attach(&mut self, pid: u32) -> Result<(), FollowError> {
            self.followed.insert(pid);
            Ok(())
        }

        fn reconsider(&mut self, pids: &[u32]) {
            self.reconsidered = pids.to_vec();
        }
    }

    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Sleeper {
            Sleeper(Command::new("sleep").arg("60").spawn().unwrap())
        }

        fn end(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    fn error(reply: &Reply) -> &str {
        reply.error.as_deref().unwrap_or_default()
    }

    #[test]
    fn a_tree_is_detached_and_attached_again() {
        let (mut known, mut forest) = (known(), Forest::default());
        let (own, mut sleeper) = (std::process::id(), Sleeper::start());
        let child = sleeper.0.id();
        let peer = Peer { uid: nix::unistd::getuid().as_raw(), pid: own };
        let mut call = |forest: &mut Forest, parameters, is_detached| {
            let reply = decide((&mut known, forest), parameters, peer, is_detached);
            let left = [own, child]
                .map(|pid| known.treatments.borrow_mut().found(pid).treatment.left_alone.is_some());
            (error(&reply).to_owned(), left)
        };
        let done = |left: [bool; 2]| (String::new(), left);
        let refused = call(&mut forest, json!({"pid": own}), true).0;
        assert_eq!(refused, "org.corewise.Daemon.NotFollowed");
        // Without a number it is the caller's.
        assert_eq!(call(&mut forest, json!({}), false), done([false, false]));
        assert!(forest.followed.contains(&own));
        assert_eq!(call(&mut forest, json!({"pid": own}), true), done([true, true]));
        assert!(forest.reconsidered.contains(&own) && forest.reconsidered.contains(&child));
        forest.followed.insert(child);
        assert_eq!(call(&mut forest, json!({"pid": child}), false), done([true, false]));
        assert_eq!(forest.reconsidered, [child]);
        sleeper.end();
        let refused = call(&mut forest, json!({"pid": child}), false).0;
        assert_eq!(refused, "org.corewise.Daemon.NoSuchProcess");
    }

    #[test]
    fn a_process_that_a_rule_leaves_alone_is_attached_and_it_is_said_that_it_is_not_placed() {
        let rules = "[[rule]]\nname = 'alone'\nmatch.user = '*'\nleave-alone = true\n";
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("rules.toml"), rules).unwrap();
        let own = std::process::id();
        for (directories, acts) in [(Vec::new(), true), (vec![directory.path().to_owned()], false)] {
            let (mut known, mut forest) = (known(), Forest::default());
            let treatments = Treatments::read(directories, Topology::synthetic("core:2 pu:1").unwrap());
            known.treatments = Rc::new(RefCell::new(treatments.unwrap()));
            let peer = Peer { uid: nix::unistd::getuid().as_raw(), pid: own };
            let reply = decide((&mut known, &mut forest), Value::Null, peer, false);
            assert_eq!(reply.parameters.unwrap()["acts"], acts);
        }
    }

    #[test]
    fn users_decide_about_their_own_processes_only() {
        let (mut known, mut forest) = (known(), Forest::default());
        let mut sleeper = Sleeper::start();
        forest.followed.insert(sleeper.0.id());
        let other = Peer { uid: nix::unistd::getuid().as_raw() + 1, pid: std::process::id() };
        for is_detached in [false, true] {
            let named = json!({"pid": sleeper.0.id()});
            let reply = decide((&mut known, &mut forest), named, other, is_detached);
            assert_eq!(error(&reply), "org.corewise.Daemon.NotPermitted");
        }
        assert!(forest.reconsidered.is_empty() && known.events.take_news().is_empty());
        sleeper.end();
    }

    #[test]
    fn nonsense_is_refused() {
        let (mut known, mut forest) = (known(), Forest::default());
        let peer = Peer { uid: 0, pid: 0 };
        let mut error_of = |parameters| {
            let reply = decide((&mut known, &mut forest), parameters, peer, false);
            error(&reply).to_owned()
        };
        for parameters in [json!({"pid": "x"}), json!({"pid": -1}), json!({"tid": 1}), json!([])] {
            assert_eq!(error_of(parameters), "org.varlink.service.InvalidParameter");
        }
        // Nobody knows the caller's process.
        assert_eq!(error_of(Value::Null), "org.corewise.Daemon.NoSuchProcess");
    }
}
