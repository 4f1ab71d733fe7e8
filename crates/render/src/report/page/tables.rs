//! The tables of threads and of decisions: everything that the drawing shows, in words and figures.

use super::{DECISIONS_SHOWN_MAX, THREADS_SHOWN_MAX};
use crate::page::markup::{Known, Seconds, Share, Text};
use corewise_core::cpuset::CpuSet;
use corewise_core::observe::Standing;
use corewise_core::report::{Decision, Report, ThreadReport};
use std::fmt::{Display, Formatter, Result};

/// The table of threads.
pub struct Threads<'a>(pub &'a Report);

impl Display for Threads<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let threads = &self.0.threads;
        let columns = [
            ("Thread", ""),
            ("tid", ""),
            ("CPU time", ""),
            (
                "FPU usage",
                "share of cycles with floating-point work in flight; the thin line is the confidence",
            ),
            ("Vector", "share of cycles with vector arithmetic in flight, floating-point or integer"),
            ("Spinning", "share of user time spent busy-waiting"),
            ("IPC", "instructions per cycle"),
            ("L2 misses", "per 100 cycles"),
            ("Ran on PE", "where it was seen running"),
            ("Bound to PE", "by corewise, at one time or another"),
        ];
        writeln!(
            f,
            "<section>\n<h2 id=\"threads\">Threads</h2>\n<div class=\"scroll\">\n<table>\n<thead><tr>"
        )?;
        for (name, meaning) in columns {
            writeln!(f, "<th scope=\"col\" title=\"{meaning}\">{name}</th>")?;
        }
        writeln!(f, "</tr></thead>\n<tbody>")?;
        for thread in threads.iter().take(THREADS_SHOWN_MAX) {
            write!(f, "{}", ThreadRow(thread))?;
        }
        writeln!(f, "</tbody>\n</table>\n</div>")?;
        left_out(f, threads.len(), THREADS_SHOWN_MAX, "threads, the busiest")?;
        if let Some(source) = threads.iter().find_map(|thread| thread.fpu_usage_source.as_deref()) {
            writeln!(f, "<p class=\"quiet\">Source of the FPU usage: {}.</p>", Text(source))?;
        }
        writeln!(f, "</section>")
    }
}

struct ThreadRow<'a>(&'a ThreadReport);

impl Display for ThreadRow<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let thread = self.0;
        let two = |value: Option<f64>| Known(value.map(|x| format!("{x:.2}")));
        writeln!(f, "<tr><th scope=\"row\"><bdi>{}</bdi></th>", Text(&thread.name))?;
        writeln!(f, "<td class=\"figure quiet\">{}</td>", thread.tid)?;
        writeln!(f, "<td class=\"figure\">{}</td>", Seconds(thread.cpu_seconds))?;
        let meter = thread.fpu_usage.map(|usage| Meter { usage, confidence: thread.fpu_usage_confidence });
        writeln!(f, "<td>{}</td>", Known(meter))?;
        writeln!(f, "<td class=\"figure\">{}</td>", Known(thread.vector_usage.map(Share)))?;
        writeln!(f, "<td class=\"figure\">{}</td>", Known(thread.spin_share.map(Share)))?;
        writeln!(f, "<td class=\"figure\">{}</td>", two(thread.ipc))?;
        writeln!(f, "<td class=\"figure\">{}</td>", two(thread.l2_misses_per_100_cycles))?;
        let seen: CpuSet = thread.ran_on.iter().filter_map(|ran| ran.pe).collect();
        writeln!(f, "<td>{}</td>", Known((!seen.is_empty()).then_some(seen)))?;
        writeln!(f, "<td>{}</td></tr>", BoundTo(thread))
    }
}

/// A bar for the value, under it a thin one for how far the value can be trusted.
struct Meter {
    usage: f64,
    confidence: Option<f64>,
}

impl Display for Meter {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let percent = |share: f64| (share * 100.0).clamp(0.0, 100.0);
        let trust =
            self.confidence.map_or("not known".to_owned(), |confidence| Share(confidence).to_string());
        write!(
            f,
            "<span class=\"meter\" title=\"confidence {trust}\"><span class=\"value\">{usage}</span>\
             <span class=\"bar\" style=\"width:{usage_width:.0}%\"></span>\
             <span class=\"trust\" style=\"width:{trust_width:.0}%\"></span></span>",
            usage = Share(self.usage),
            usage_width = percent(self.usage),
            trust_width = percent(self.confidence.unwrap_or(0.0)),
        )
    }
}

/// The PEs that a thread was bound to, or why corewise left it alone.
struct BoundTo<'a>(&'a ThreadReport);

impl Display for BoundTo<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let bound = self.0.bindings.iter().fold(CpuSet::new(), |all, binding| all.union(&binding.pes));
        match self.0.standing {
            Standing::SelfPinned => f.write_str("it pinned itself"),
            Standing::UserPlaced => f.write_str("its user placed it"),
            Standing::Free | Standing::Bound | Standing::Inherited if bound.is_empty() => f.write_str("free"),
            Standing::Free | Standing::Bound | Standing::Inherited => write!(f, "{bound}"),
        }
    }
}

/// The table of decisions.
pub struct Decisions<'a>(pub &'a Report);

impl Display for Decisions<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let decisions = &self.0.decisions;
        writeln!(f, "<section>\n<h2>Decisions</h2>")?;
        if decisions.is_empty() {
            return writeln!(
                f,
                "<p class=\"quiet\">None: every thread ran where the kernel put it.</p>\n</section>"
            );
        }
        writeln!(f, "<div class=\"scroll\">\n<table class=\"decisions\">\n<thead><tr>")?;
        for name in ["When", "Thread", "PE", "Why", "Outcome"] {
            writeln!(f, "<th scope=\"col\">{name}</th>")?;
        }
        writeln!(f, "</tr></thead>\n<tbody>")?;
        for (index, decision) in decisions.iter().take(DECISIONS_SHOWN_MAX).enumerate() {
            let name = self.0.threads.iter().find(|thread| thread.tid == decision.tid).map(|t| &*t.name);
            decision_row(f, index, decision, name.unwrap_or_default())?;
        }
        writeln!(f, "</tbody>\n</table>\n</div>")?;
        left_out(f, decisions.len(), DECISIONS_SHOWN_MAX, "decisions, the first")?;
        writeln!(f, "</section>")
    }
}

fn decision_row(f: &mut Formatter<'_>, index: usize, decision: &Decision, name: &str) -> Result {
    writeln!(
        f,
        "<tr id=\"decision-{index}\"><td class=\"figure\">{}</td>",
        Seconds(decision.at_ns as f64 / 1e9)
    )?;
    writeln!(
        f,
        "<th scope=\"row\"><bdi>{}</bdi> <span class=\"quiet\">{}</span></th>",
        Text(name),
        decision.tid
    )?;
    match (&decision.setting, &decision.pes) {
        (Some(setting), _) => writeln!(f, "<td>{}</td>", Text(setting))?,
        (None, Some(pes)) => writeln!(f, "<td>{pes}</td>")?,
        (None, None) => writeln!(f, "<td class=\"quiet\">freed</td>")?,
    }
    let outcome = decision.outcome.as_deref().map(Text);
    writeln!(f, "<td>{}</td><td>{}</td></tr>", Text(&decision.reason), Known(outcome))
}

/// Says how many of how many are shown, if not all are.
fn left_out(f: &mut Formatter<'_>, all: usize, shown: usize, what: &str) -> Result {
    if all <= shown {
        return Ok(());
    }
    let rest = all - shown;
    writeln!(f, "<p class=\"quiet\">{shown} of {all} {what}. {rest} more are in the JSON report.</p>")
}
