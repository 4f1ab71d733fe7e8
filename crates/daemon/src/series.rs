//! The metrics that there are. `docs/metrics.md` lists all of them, and a test compares it with [`ALL`].

use crate::exposition::Metric;
use serde::Serialize;
use serde_json::Value;

const CLASSES: &[&str] = &["fpu", "class"];
const ABOUT: &[&str] = &["about"];
const WHAT: &[&str] = &["what", "outcome"];

pub static THREADS: Metric = Metric::gauge(
    "corewise_threads",
    CLASSES,
    "Watched threads by FPU use and by the class of their program",
);
pub static PLACED: Metric = Metric::gauge(
    "corewise_threads_placed",
    CLASSES,
    "Those of them that are placed; in a dry run, that would be",
);
pub static STANDING: Metric = Metric::gauge(
    "corewise_threads_standing",
    &["standing"],
    "Watched threads by who decides where they run",
);
pub static RULE_THREADS: Metric =
    Metric::gauge("corewise_rule_threads", &["rule"], "Watched threads by the rule that applies to them");
pub static RULE_PLACED: Metric =
    Metric::gauge("corewise_rule_threads_placed", &["rule"], "Those of them that are placed");
pub static APPLICATIONS: Metric = Metric::gauge(
    "corewise_applications",
    &["class", "intensity"],
    "Running programs by class, and by what limits them",
);
pub static RUNNABLE: Metric = Metric::gauge(
    "corewise_runnable_threads",
    &["class"],
    "Parallelism: the mean number of runnable threads",
);
pub static PES: Metric = Metric::gauge("corewise_pes", &[], "Usable PEs");
pub static PES_BUSY: Metric = Metric::gauge("corewise_pes_busy", &[], "PEs that watched threads keep busy");
pub static CHANGES: Metric =
    Metric::counter("corewise_changes", WHAT, "Changes of threads: placements, weights, waits");
pub static GIVEN_BACK: Metric = Metric::counter(
    "corewise_given_back",
    WHAT,
    "Changes that were undone: what was changed before is as it was",
);
pub static VERDICTS: Metric =
    Metric::counter("corewise_guard_verdicts", &["about", "verdict"], "What the guard has found");
pub static GUARD_SECONDS: Metric = Metric::counter(
    "corewise_guard_seconds",
    ABOUT,
    "Time in trials of placements, and in epochs without waits changed",
);
pub static GAIN: Metric = Metric::gauge(
    "corewise_guard_gain_ratio",
    ABOUT,
    "Progress gained by the last verdict; below 0 is a loss",
);
pub static LOOKS: Metric = Metric::counter("corewise_looks", &[], "Looks at all watched threads");
pub static INTERVAL: Metric =
    Metric::gauge("corewise_look_interval_seconds", &[], "Time until the next look, as of the last one");
pub static OWN_CPU: Metric = Metric::counter("corewise_cpu_seconds", &[], "CPU time of the daemon itself");
pub static OWN_MEMORY: Metric =
    Metric::gauge("corewise_resident_memory_bytes", &[], "Resident memory of the daemon itself");
pub static RULES: Metric = Metric::gauge("corewise_rules", &[], "Rules in force");
pub static LEFT_OUT: Metric =
    Metric::counter("corewise_log_left_out", &[], "Messages of the log that nobody took in time");
pub static CLIENTS: Metric = Metric::gauge("corewise_clients", &[], "Clients at the daemon's socket");
pub static CLIENTS_CPU: Metric =
    Metric::counter("corewise_clients_cpu_seconds", &[], "CPU time of the daemon for answers to clients");
pub static HTTP: Metric =
    Metric::counter("corewise_http_requests", &["code"], "Requests for metrics, by HTTP status");
pub static START: Metric =
    Metric::gauge("corewise_start_time_seconds", &[], "When the daemon started, since the epoch");
pub static BUILD_INFO: Metric =
    Metric::gauge("corewise_build_info", &["version", "discovery", "counters"], "1; version and sources");
pub static POLICY_INFO: Metric = Metric::gauge("corewise_policy_info", &["policy"], "1; the policy");

/// All metrics, in the order of the page.
pub static ALL: [&Metric; 26] = [
    &THREADS,
    &PLACED,
    &STANDING,
    &RULE_THREADS,
    &RULE_PLACED,
    &APPLICATIONS,
    &RUNNABLE,
    &PES,
    &PES_BUSY,
    &CHANGES,
    &GIVEN_BACK,
    &VERDICTS,
    &GUARD_SECONDS,
    &GAIN,
    &LOOKS,
    &INTERVAL,
    &OWN_CPU,
    &OWN_MEMORY,
    &RULES,
    &LEFT_OUT,
    &CLIENTS,
    &CLIENTS_CPU,
    &HTTP,
    &START,
    &BUILD_INFO,
    &POLICY_INFO,
];

/// Returns the word that recordings and reports have for a value without fields, or for the kind of one with
/// fields; "unknown" for what is not known.
pub fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(Value::Object(fields)) => fields.into_iter().next().map(|(word, _)| word).unwrap_or_default(),
        _ => "unknown".to_owned(),
    }
}
