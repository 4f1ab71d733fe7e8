//! The daemon's metrics: what an administrator wants to see over time.
//!
//! The number of series is bounded by the classes and rules, not by what runs: no label names a thread, a
//! process or a program. The present state is computed when somebody asks; what has happened is counted by
//! [`crate::tally`].

use crate::exposition::{Format, Samples, text as text_of};
use crate::known::Known;
use crate::series::{
    ALL, APPLICATIONS, BUILD_INFO, CLIENTS, CLIENTS_CPU, HTTP, INTERVAL, LEFT_OUT, OWN_MEMORY, PES, PES_BUSY,
    PLACED, POLICY_INFO, RULE_PLACED, RULE_THREADS, RULES, RUNNABLE, STANDING, START, THREADS, word,
};
use crate::tally::Tally;
use corewise_core::top::Top;
use corewise_sys::proc::Proc;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The label of threads that no rule matches.
const NO_RULE: &str = "no rule";

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
    samples.add(&LEFT_OUT, &[], crate::log::left_out() as f64);
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
