//! What the daemon answers: the interface `org.corewise.Daemon`, and the one that every varlink service has.
//!
//! A client sees the processes of its own user, root sees all. The owner of a process is read at every
//! call, as process IDs are used again; so is its start, as what is known may be of its predecessor.

use crate::known::Known;
use crate::replies::{NAME, Owners, SERVICE, failure, invalid, not_permitted, thread, without_unknown};
use crate::socket::{Answer, Follows, Peer};
use crate::{events, explain, trees};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::AppId;
use corewise_core::top::ThreadState;
use corewise_live::Trees;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use varlink::{Reply, Request};

const DESCRIPTION: &str = include_str!("org.corewise.Daemon.varlink");

const SERVICE_DESCRIPTION: &str = "\
# What every varlink service tells about itself.
interface org.varlink.service

method GetInfo() -> (vendor: string, product: string, version: string, url: string, interfaces: []string)
method GetInterfaceDescription(interface: string) -> (description: string)

error InterfaceNotFound (interface: string)
error MethodNotFound (method: string)
error InvalidParameter (parameter: string)
";

/// Answers a request.
pub fn answer(known: &mut Known, world: &mut dyn Trees, request: &Request<'_>, peer: Peer) -> Answer {
    let parameters = request.parameters.clone().unwrap_or(Value::Null);
    let more = request.more == Some(true);
    let mut follows = None;
    let reply = match request.method.rsplit_once('.') {
        Some((SERVICE, "GetInfo")) => Reply::parameters(Some(json!({
            "vendor": "corewise",
            "product": "corewise",
            "version": env!("CARGO_PKG_VERSION"),
            "url": env!("CARGO_PKG_REPOSITORY"),
            "interfaces": [SERVICE, NAME],
        }))),
        Some((SERVICE, "GetInterfaceDescription")) => describe(&parameters),
        Some((NAME, "GetStatus")) => {
            follows = more.then_some(Follows::States);
            status(known, peer, more)
        }
        Some((NAME, "GetEvents")) => {
            follows = more.then_some(Follows::Events);
            let none = Some(json!({"events": []}));
            let none = || Reply { continues: more.then_some(true), error: None, parameters: none };
            events::reply(known.events.kept(), peer, more).unwrap_or_else(none)
        }
        Some((NAME, "ListThreads")) => threads(known, parameters, peer),
        Some((NAME, "Explain")) => explain::explain(known, parameters, peer),
        Some((NAME, "Attach")) => trees::decide((known, world), parameters, peer, false),
        Some((NAME, "Detach")) => trees::decide((known, world), parameters, peer, true),
        Some((NAME, "Reload")) => reload(known, world, peer),
        Some((SERVICE | NAME, _)) => failure(SERVICE, "MethodNotFound", json!({"method": request.method})),
        other => {
            let interface = other.map_or(&*request.method, |(interface, _)| interface);
            failure(SERVICE, "InterfaceNotFound", json!({"interface": interface}))
        }
    };
    Answer { reply, follows }
}

fn describe(parameters: &Value) -> Reply {
    let description = match parameters["interface"].as_str() {
        Some(NAME) => DESCRIPTION,
        Some(SERVICE) => SERVICE_DESCRIPTION,
        Some(other) => return failure(SERVICE, "InterfaceNotFound", json!({"interface": other})),
        None => return invalid("interface"),
    };
    Reply::parameters(Some(json!({"description": description})))
}

/// Returns the present state; whether another one follows.
pub fn status(known: &Known, peer: Peer, continues: bool) -> Reply {
    let top = &known.top;
    let mut owners = Owners::default();
    let theirs =
        top.threads.iter().filter(|(id, of)| owners.may_see_thread(peer, (*id, of.pid), &known.seen));
    let theirs: Vec<&ThreadState> = theirs.map(|(_, thread)| thread).collect();
    let apps: BTreeSet<AppId> = theirs.iter().map(|thread| thread.app).collect();
    let application = |app: &AppId| {
        let of = top.applications.get(app)?;
        Some(without_unknown(json!({
            "name": of.name,
            "executed_by": of.executed_by,
            "threads": of.threads,
            "cpu": of.cpu,
            "tlp": of.tlp,
            "class": of.class,
            "fpu": of.fpu,
        })))
    };
    let notes = [&known.notes[..], &known.treatments.borrow().notes()].concat();
    let usable = top.pes.iter().filter(|(_, state)| state.is_usable).map(|(pe, _)| *pe);
    let parameters = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "policy": top.policy.name,
        "nothing_to_gain": top.policy.nothing_to_gain,
        "seconds": known.began.elapsed().as_secs_f64(),
        "pes": usable.collect::<CpuSet>().to_string(),
        "discovery": known.sources.discovery,
        "counters": known.sources.counters,
        "own_cpu": top.own_share,
        "interval": top.interval.as_secs_f64(),
        "looks_rarer": top.looks_rarer,
        "threads": theirs.len(),
        "bound": theirs.iter().filter(|thread| thread.assignment.is_some()).count(),
        "findings": top.policy.findings,
        "notes": notes,
        "applications": apps.iter().filter_map(application).collect::<Vec<_>>(),
    });
    let continues = continues.then_some(true);
    Reply { continues, error: None, parameters: Some(without_unknown(parameters)) }
}

fn reload(known: &mut Known, world: &mut dyn Trees, peer: Peer) -> Reply {
    if peer.uid != 0 && peer.uid != nix::unistd::geteuid().as_raw() {
        let reason = "only root, and the user whose daemon it is, may have the rules read again";
        known.refusals.log(peer.uid, format_args!("user {} is refused: {reason}", peer.uid));
        return not_permitted(reason);
    }
    let read = known.treatments.borrow_mut().reload();
    match read {
        Ok(rules) => {
            let processes: BTreeSet<u32> = known.top.threads.values().map(|thread| thread.pid).collect();
            world.reconsider(&processes.into_iter().collect::<Vec<_>>());
            known.events.add_of_daemon("rules", &format!("{rules} rules were read"));
            Reply::parameters(Some(json!({"rules": rules})))
        }
        Err(errors) => failure(NAME, "BadRules", json!({"errors": errors.to_string()})),
    }
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct ListThreads {
    pid: Option<u32>,
}

fn threads(known: &Known, parameters: Value, peer: Peer) -> Reply {
    let asked = match parameters {
        Value::Null => Ok(ListThreads::default()),
        // Else a list would do, too.
        parameters @ Value::Object(_) => serde_json::from_value(parameters),
        _ => return invalid("parameters"),
    };
    let Ok(ListThreads { pid }) = asked else { return invalid("pid") };
    let top = &known.top;
    let mut owners = Owners::default();
    let theirs = top.threads.iter().filter(|(_, thread)| pid.is_none_or(|pid| pid == thread.pid));
    let theirs = theirs.filter(|(id, of)| owners.may_see_thread(peer, (*id, of.pid), &known.seen));
    let threads: Vec<Value> = theirs.map(|(id, of)| thread(top, id, of)).collect();
    match pid {
        Some(pid) if threads.is_empty() => failure(NAME, "NoSuchProcess", json!({"pid": pid})),
        _ => Reply::parameters(Some(json!({"threads": threads}))),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::treatments::Treatments;
    use corewise_core::random::Random;
    use corewise_core::report::Sources;
    use corewise_core::topology::Topology;
    use corewise_discovery::FollowError;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Knows of no process.
    pub fn known() -> Known {
        let sources = Sources { discovery: "bpf".to_owned(), counters: "none".to_owned() };
        let machine = Topology::synthetic("core:2 pu:1").unwrap();
        let treatments = Treatments::read(Vec::new(), machine).unwrap();
        let treatments = Rc::new(RefCell::new(treatments));
        Known::new((sources, Vec::new()), treatments, true)
    }

    const ROOT: Peer = Peer { uid: 0, pid: 0 };

    /// A world that follows nobody.
    struct Nobody;

    impl Trees for Nobody {
        fn follows(&self, _: u32) -> bool {
            false
        }

        fn attach(&mut self, _: u32) -> Result<(), FollowError> {
            Err(FollowError::Fixed)
        }

        fn reconsider(&mut self, _: &[u32]) {}
    }

    fn ask(method: &str, parameters: Value) -> Reply {
        let request = Request::create(method, Some(parameters));
        answer(&mut known(), &mut Nobody, &request, ROOT).reply
    }

    #[test]
    fn only_root_sees_processes_of_others() {
        let (own, uid) = (std::process::id(), nix::unistd::getuid().as_raw());
        let mut owners = Owners::default();
        let mut may_see = |uid| owners.may_see(Peer { uid, pid: 0 }, own);
        assert_eq!((may_see(0), may_see(uid), may_see(uid + 1)), (true, true, false));
        assert!(!owners.may_see(Peer { uid: 1, pid: 0 }, u32::MAX), "nobody's");
    }

    #[test]
    fn rules_are_read_again_for_those_whose_daemon_it_is() {
        let other = nix::unistd::geteuid().as_raw() + 1;
        let reload = |uid| reload(&mut known(), &mut Nobody, Peer { uid, pid: 0 });
        assert_eq!(reload(0).parameters, Some(json!({"rules": 0})));
        assert_eq!(reload(other).error.unwrap(), "org.corewise.Daemon.NotPermitted");
    }

    #[test]
    fn the_service_describes_itself_and_every_method_that_it_describes_is_there() {
        let info = ask("org.varlink.service.GetInfo", json!({})).parameters.unwrap();
        assert_eq!(info["interfaces"], json!([SERVICE, NAME]));
        let methods = |interface: &str| -> Vec<String> {
            let describe = json!({"interface": interface});
            let text = ask("org.varlink.service.GetInterfaceDescription", describe).parameters.unwrap();
            let lines = text["description"].as_str().unwrap().lines();
            lines
                .filter_map(|line| Some(line.strip_prefix("method ")?.split_once('(')?.0.to_owned()))
                .collect()
        };
        let all = ["GetStatus", "GetEvents", "ListThreads", "Explain", "Attach", "Detach", "Reload"];
        assert_eq!(methods(NAME), all);
        for method in methods(NAME) {
            let error = ask(&format!("{NAME}.{method}"), json!({})).error.unwrap_or_default();
            assert!(!error.ends_with("MethodNotFound"), "{method}");
        }
        assert_eq!(methods(SERVICE), ["GetInfo", "GetInterfaceDescription"]);
    }

    #[test]
    fn ten_thousand_calls_without_sense_are_answered_and_change_nothing() {
        let (mut known, mut chance) = (known(), Random::new(1, 0));
        let stranger = Peer { uid: u32::MAX - 1, pid: 0 };
        let own = std::process::id();
        let keys = ["pid", "interface", "tid", ""];
        let values = [json!(own), json!(1), json!(-1), json!(1e300), json!(NAME), json!([[]]), json!(null)];
        let methods = [
            "GetStatus",
            "GetEvents",
            "ListThreads",
            "Explain",
            "Attach",
            "Detach",
            "Reload",
            "GetInfo",
            ".",
            "",
        ];
        for _ in 0..10_000 {
            let mut pick = |count: usize| chance.below(count);
            let interface = [NAME, SERVICE, "a.b", ""][pick(4)];
            let mut parameters = json!({});
            for _ in 0..pick(3) {
                parameters[keys[pick(keys.len())]] = values[pick(values.len())].clone();
            }
            let parameters = [parameters, values[pick(values.len())].clone()][pick(2)].clone();
            let method = format!("{interface}.{}", methods[pick(methods.len())]);
            let mut request = Request::create(method, Some(parameters));
            request.more = [None, Some(true), Some(false)][pick(3)];
            let Answer { reply, .. } = answer(&mut known, &mut Nobody, &request, stranger);
            assert!(reply.error.is_some() || reply.parameters.is_some());
        }
        assert!(known.events.take_news().is_empty());
        assert!(known.treatments.borrow_mut().found(own).treatment.left_alone.is_none());
    }

    #[test]
    fn what_is_not_understood_gets_the_error_that_varlink_has_for_it() {
        let error = |method, parameters| ask(method, parameters).error.unwrap().into_owned();
        assert_eq!(error("org.corewise.Daemon.Obey", json!({})), "org.varlink.service.MethodNotFound");
        assert_eq!(error("com.example.Other", json!({})), "org.varlink.service.InterfaceNotFound");
        assert_eq!(error("nonsense", json!({})), "org.varlink.service.InterfaceNotFound");
        for parameters in [json!({"pid": "x"}), json!({"pid": -1}), json!({"tid": 1}), json!([])] {
            let parameter = error("org.corewise.Daemon.ListThreads", parameters);
            assert_eq!(parameter, "org.varlink.service.InvalidParameter");
        }
        let nobody = error("org.corewise.Daemon.ListThreads", json!({"pid": 1}));
        assert_eq!(nobody, "org.corewise.Daemon.NoSuchProcess");
    }
}
