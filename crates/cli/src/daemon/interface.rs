//! What the daemon answers: the interface `org.corewise.Daemon`, and the one that every varlink service has.
//!
//! A client is told about processes of its own user, root about all. Which process belongs to whom is read at
//! every call, as process IDs are used again.

use super::Known;
use super::socket::{Answer, Peer};
use corewise_core::classify::known_fpu_usage;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::AppId;
use corewise_core::top::ThreadState;
use corewise_sys::proc::Proc;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use varlink::{Reply, Request};

/// The interface.
pub const NAME: &str = "org.corewise.Daemon";
const DESCRIPTION: &str = include_str!("org.corewise.Daemon.varlink");

/// The interface of every service (<https://varlink.org/Service>).
const SERVICE: &str = "org.varlink.service";
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
pub fn answer(known: &Known, request: &Request<'_>, peer: Peer) -> Answer {
    let parameters = request.parameters.clone().unwrap_or(Value::Null);
    let follows = request.more == Some(true) && request.method == "org.corewise.Daemon.GetStatus";
    let reply = match request.method.rsplit_once('.') {
        Some((SERVICE, "GetInfo")) => Reply::parameters(Some(json!({
            "vendor": "corewise",
            "product": "corewise",
            "version": env!("CARGO_PKG_VERSION"),
            "url": env!("CARGO_PKG_REPOSITORY"),
            "interfaces": [SERVICE, NAME],
        }))),
        Some((SERVICE, "GetInterfaceDescription")) => describe(&parameters),
        Some((NAME, "GetStatus")) => status(known, peer, follows),
        Some((NAME, "ListThreads")) => threads(known, parameters, peer),
        Some((NAME, "Reload")) => reload(known, peer),
        Some((SERVICE | NAME, _)) => failure(SERVICE, "MethodNotFound", json!({"method": request.method})),
        other => {
            let interface = other.map_or(&*request.method, |(interface, _)| interface);
            failure(SERVICE, "InterfaceNotFound", json!({"interface": interface}))
        }
    };
    Answer { reply, follows }
}

fn failure(interface: &str, name: &str, parameters: Value) -> Reply {
    Reply { continues: None, error: Some(format!("{interface}.{name}").into()), parameters: Some(parameters) }
}

fn invalid(parameter: &str) -> Reply {
    failure(SERVICE, "InvalidParameter", json!({"parameter": parameter}))
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
    let theirs: Vec<&ThreadState> =
        top.threads.values().filter(|thread| owners.are_told(peer, thread.pid)).collect();
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
    let notes = [&known.notes[..], &known.consents.borrow().notes()].concat();
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
        "threads": theirs.len(),
        "bound": theirs.iter().filter(|thread| thread.assignment.is_some()).count(),
        "findings": top.policy.findings,
        "notes": notes,
        "applications": apps.iter().filter_map(application).collect::<Vec<_>>(),
    });
    let continues = continues.then_some(true);
    Reply { continues, error: None, parameters: Some(without_unknown(parameters)) }
}

fn reload(known: &Known, peer: Peer) -> Reply {
    if peer.uid != 0 && peer.uid != nix::unistd::geteuid().as_raw() {
        let reason = "only root, and the user whose daemon it is, may have the rules read again";
        return failure(NAME, "NotPermitted", json!({"reason": reason}));
    }
    match known.consents.borrow_mut().reload() {
        Ok(rules) => Reply::parameters(Some(json!({"rules": rules}))),
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
    let theirs = theirs.filter(|(_, thread)| owners.are_told(peer, thread.pid));
    let threads: Vec<Value> = theirs
        .map(|(id, thread)| {
            without_unknown(json!({
                "pid": thread.pid,
                "tid": id.tid,
                "name": thread.name,
                "program": top.program_of(thread),
                "pe": thread.pe.map(|pe| pe.0),
                "cpu": thread.cpu,
                "fpu": known_fpu_usage(&thread.usage).map(|estimate| estimate.value),
                "bound": thread.assignment.as_ref().map(|assignment| assignment.pes.to_string()),
                "reason": thread.assignment.as_ref().map(|assignment| &assignment.reason),
            }))
        })
        .collect();
    match pid {
        Some(pid) if threads.is_empty() => failure(NAME, "NoSuchProcess", json!({"pid": pid})),
        _ => Reply::parameters(Some(json!({"threads": threads}))),
    }
}

/// Leaves out what is not known, as varlink's optional fields want it.
fn without_unknown(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
    value
}

/// Whose processes are whose.
#[derive(Default)]
struct Owners(HashMap<u32, Option<u32>>);

impl Owners {
    fn are_told(&mut self, peer: Peer, pid: u32) -> bool {
        peer.uid == 0 || *self.0.entry(pid).or_insert_with(|| Proc::own().owner(pid).ok()) == Some(peer.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::consent::Consents;
    use corewise_core::report::Sources;
    use corewise_core::top::Top;
    use corewise_core::topology::Topology;
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Instant;

    fn known() -> Known {
        let sources = Sources { discovery: "bpf".to_owned(), counters: "none".to_owned() };
        let machine = Topology::synthetic("core:2 pu:1").unwrap();
        let consents = Consents::read(Vec::new(), machine).unwrap();
        let consents = Rc::new(RefCell::new(consents));
        Known { top: Top::default(), sources, notes: Vec::new(), consents, began: Instant::now() }
    }

    fn ask(method: &str, parameters: Value) -> Reply {
        let request = Request::create(method, Some(parameters));
        answer(&known(), &request, Peer { uid: 0 }).reply
    }

    #[test]
    fn processes_of_others_are_told_to_root_only() {
        let (own, uid) = (std::process::id(), nix::unistd::getuid().as_raw());
        let mut owners = Owners::default();
        let mut told = |uid| owners.are_told(Peer { uid }, own);
        assert_eq!((told(0), told(uid), told(uid + 1)), (true, true, false));
        assert!(!owners.are_told(Peer { uid: 1 }, u32::MAX), "nobody's");
    }

    #[test]
    fn rules_are_read_again_for_those_whose_daemon_it_is() {
        let other = nix::unistd::geteuid().as_raw() + 1;
        let reload = |uid| reload(&known(), Peer { uid });
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
        assert_eq!(methods(NAME), ["GetStatus", "ListThreads", "Reload"]);
        for method in methods(NAME) {
            assert_eq!(ask(&format!("{NAME}.{method}"), json!({})).error, None, "{method}");
        }
        assert_eq!(methods(SERVICE), ["GetInfo", "GetInterfaceDescription"]);
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
