//! The daemon's metrics: what an administrator wants to see over time.
//!
//! The number of series is bounded by the classes and rules, not by what runs: no label names a thread, a
//! process or a program. The present state is computed when somebody asks; what has happened is counted by
//! [`super::tally`]. `docs/metrics.md` lists all of them, and a test compares it with [`ALL`].

use super::Known;
use super::exposition::{Format, Metric, Samples, text as text_of};
use super::tally::{Tally, word};
use corewise_core::top::Top;
use corewise_sys::proc::Proc;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The label of threads that no rule matches.
const NO_RULE: &str = "no rule";

const CLASSES: &[&str] = &["fpu", "class"];
const ABOUT: &[&str] = &["about"];
const WHAT: &[&str] = &["what", "outcome"];

static THREADS: Metric = Metric::gauge(
    "corewise_threads",
    CLASSES,
    "Watched threads by FPU use and by the class of their program",
);
static PLACED: Metric = Metric::gauge(
    "corewise_threads_placed",
    CLASSES,
    "Those of them that are placed; in a dry run, that would be",
);
static STANDING: Metric = Metric::gauge(
    "corewise_threads_standing",
    &["standing"],
    "Watched threads by who decides where they run",
);
static RULE_THREADS: Metric =
    Metric::gauge("corewise_rule_threads", &["rule"], "Watched threads by the rule that applies to them");
static RULE_PLACED: Metric =
    Metric::gauge("corewise_rule_threads_placed", &["rule"], "Those of them that are placed");
static APPLICATIONS: Metric = Metric::gauge(
    "corewise_applications",
    &["class", "intensity"],
    "Running programs by class, and by what limits them",
);
static RUNNABLE: Metric = Metric::gauge(
    "corewise_runnable_threads",
    &["class"],
    "Parallelism: the mean number of runnable threads",
);
static PES: Metric = Metric::gauge("corewise_pes", &[], "Usable PEs");
static PES_BUSY: Metric = Metric::gauge("corewise_pes_busy", &[], "PEs that watched threads keep busy");
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
static INTERVAL: Metric =
    Metric::gauge("corewise_look_interval_seconds", &[], "Time until the next look, as of the last one");
pub static OWN_CPU: Metric = Metric::counter("corewise_cpu_seconds", &[], "CPU time of the daemon itself");
static OWN_MEMORY: Metric =
    Metric::gauge("corewise_resident_memory_bytes", &[], "Resident memory of the daemon itself");
static RULES: Metric = Metric::gauge("corewise_rules", &[], "Rules in force");
static LEFT_OUT: Metric =
    Metric::counter("corewise_log_left_out", &[], "Messages of the log that nobody took in time");
static CLIENTS: Metric = Metric::gauge("corewise_clients", &[], "Clients at the daemon's socket");
static CLIENTS_CPU: Metric =
    Metric::counter("corewise_clients_cpu_seconds", &[], "CPU time of the daemon for answers to clients");
static HTTP: Metric =
    Metric::counter("corewise_http_requests", &["code"], "Requests for metrics, by HTTP status");
static START: Metric =
    Metric::gauge("corewise_start_time_seconds", &[], "When the daemon started, since the epoch");
static BUILD_INFO: Metric =
    Metric::gauge("corewise_build_info", &["version", "discovery", "counters"], "1; version and sources");
static POLICY_INFO: Metric = Metric::gauge("corewise_policy_info", &["policy"], "1; the policy");

/// All metrics, in the order of the page.
static ALL: [&Metric; 26] = [
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

/// What was answered so far.
#[derive(Debug, Default)]
pub struct Answers {
    /// The clients at the socket.
    pub clients: usize,
    /// The CPU time of all answers.
    pub cpu: Duration,
    /// How many requests over HTTP got which status.
    pub http: BTreeMap<&'static str, u64>,
}

/// Returns the metrics as text; each sample has the labels `common`, too.
pub fn text(
    known: &Known,
    tally: &Tally,
    answers: &Answers,
    format: Format,
    common: &[(&str, &str)],
) -> String {
    let mut samples = tally.samples();
    add_threads(known, &mut samples);
    add_programs(&known.top, &mut samples);
    samples.add(&INTERVAL, &[], tally.interval.as_secs_f64());
    samples.add(&CLIENTS, &[], answers.clients as f64);
    samples.add(&CLIENTS_CPU, &[], answers.cpu.as_secs_f64());
    samples.add(&RULES, &[], known.treatments.borrow().rules().rules.len() as f64);
    samples.add(&LEFT_OUT, &[], super::log::left_out() as f64);
    for (code, count) in &answers.http {
        samples.add(&HTTP, &[code], *count as f64);
    }
    if let Some(bytes) = Proc::own().own_status().bytes("VmRSS") {
        samples.add(&OWN_MEMORY, &[], bytes as f64);
    }
    let began = SystemTime::now().checked_sub(known.began.elapsed());
    if let Some(since) = began.and_then(|began| began.duration_since(UNIX_EPOCH).ok()) {
        samples.add(&START, &[], since.as_secs_f64().round());
    }
    let sources = &known.sources;
    let version = env!("CARGO_PKG_VERSION");
    samples.add(&BUILD_INFO, &[version, &sources.discovery, &sources.counters], 1.0);
    if !known.top.policy.name.is_empty() {
        samples.add(&POLICY_INFO, &[&known.top.policy.name], 1.0);
    }
    text_of(&ALL, &samples, format, common)
}

fn add_threads(known: &Known, samples: &mut Samples) {
    let treatments = known.treatments.borrow();
    for thread in known.top.threads.values() {
        let placed = f64::from(u8::from(thread.assignment.is_some()));
        let class = known.top.applications.get(&thread.app).and_then(|app| app.class);
        let (fpu, class) = (word(&thread.class), word(&class));
        let rule = treatments.rule_of(thread.pid).unwrap_or(NO_RULE);
        samples.add(&THREADS, &[&fpu, &class], 1.0);
        samples.add(&PLACED, &[&fpu, &class], placed);
        samples.add(&STANDING, &[&word(&thread.standing)], 1.0);
        samples.add(&RULE_THREADS, &[rule], 1.0);
        samples.add(&RULE_PLACED, &[rule], placed);
    }
}

fn add_programs(top: &Top, samples: &mut Samples) {
    for application in top.applications.values() {
        let class = word(&application.class);
        samples.add(&APPLICATIONS, &[&class, &word(&application.intensity)], 1.0);
        samples.add(&RUNNABLE, &[&class], application.tlp);
    }
    for pe in top.pes.values().filter(|pe| pe.is_usable) {
        samples.add(&PES, &[], 1.0);
        samples.add(&PES_BUSY, &[], pe.busy);
    }
}

#[cfg(test)]
mod tests;
