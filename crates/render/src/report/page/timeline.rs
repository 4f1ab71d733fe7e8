//! Draws which thread ran where, when and why.
//!
//! There is one row per thread, busiest first. A band's height is the share of the time in which the thread
//! ran, which is exact. Its colour is the PE on which the thread was seen at the end of an observation
//! interval, as nothing more is known about the time in between. A solid band was bound by corewise, a
//! hatched one could be moved by the kernel; a diamond is a decision.

use super::super::programs::Labels;
use super::shown::{BINDINGS_SHOWN_MAX, DECISIONS_SHOWN_MAX, THREADS_SHOWN_MAX};
use crate::chart::palette::colour;
use crate::chart::tenth;
use crate::page;
use crate::page::words::{Seconds, Share};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::report::{Binding, Decision, RanOn, Report, ThreadReport};
use maud::{Markup, html};
use std::cmp::Reverse;

// Lengths are in units of the drawing, which is `WIDTH` wide and scales with the page.
pub const WIDTH: f64 = 1080.0;
pub const LABEL_WIDTH: f64 = 200.0;
const RIGHT_MARGIN: f64 = 10.0;
pub const TOP: f64 = 26.0;
const ROW_HEIGHT: f64 = 26.0;
const BAND_HEIGHT: f64 = 14.0;
/// The minimum visible height of a band.
const BAND_HEIGHT_MIN: f64 = 1.5;
/// The minimum width of a band with a number.
const NUMBERED_WIDTH_MIN: f64 = 18.0;
/// The maximum number of PEs in the legend.
const LEGEND_PES_MAX: usize = 16;

/// Maps nanoseconds to the drawing's units.
pub struct Scale {
    pub end_ns: u64,
}

impl Scale {
    /// Returns the scale of the whole run.
    pub fn of(report: &Report) -> Self {
        Scale { end_ns: ((report.wall_seconds * 1e9) as u64).max(1) }
    }

    /// Returns the position, rounded to half a unit, so that invisibly short times are dropped.
    pub fn x(&self, at_ns: u64) -> f64 {
        let width = WIDTH - LABEL_WIDTH - RIGHT_MARGIN;
        let share = at_ns.min(self.end_ns) as f64 / self.end_ns as f64;
        ((LABEL_WIDTH + share * width) * 2.0).round() / 2.0
    }
}

/// Returns the section with the drawing.
pub fn section(report: &Report) -> Markup {
    let first = &report.threads[..report.threads.len().min(THREADS_SHOWN_MAX)];
    let bindings_max = BINDINGS_SHOWN_MAX / first.len().max(1);
    let shown: Vec<ThreadReport> = first.iter().map(|thread| with_longest(thread, bindings_max)).collect();
    let bindings = |of: &[ThreadReport]| of.iter().map(|thread| thread.bindings.len()).sum::<usize>();
    let left_out = bindings(first) - bindings(&shown);
    let (scale, labels) = (Scale::of(report), Labels::of(report));
    let pes: CpuSet = shown.iter().flat_map(|t| t.ran_on.iter().filter_map(|ran| ran.pe)).collect();
    let pes: Vec<PeId> = pes.iter().collect();
    let height = TOP + ROW_HEIGHT * shown.len() as f64 + 6.0;
    let row_of = |decision: &Decision| shown.iter().position(|thread| thread.tid == decision.tid);
    let top = |row: usize| TOP + ROW_HEIGHT * row as f64;
    let drawing = html! {
        defs {
            (hatching())
            // A name that is too long ends before the thread's ID begins.
            clipPath #names { rect width=(LABEL_WIDTH - 50.0) height=(height) {} }
        }
        (axis(&scale, height))
        @for (index, thread) in shown.iter().enumerate() {
            (Row { thread, label: &labels.label(thread), top: top(index), scale: &scale, pes: &pes }.draw())
        }
        @for (index, decision) in report.decisions.iter().take(DECISIONS_SHOWN_MAX).enumerate() {
            @if let Some(row) = row_of(decision) {
                (mark(index, decision, scale.x(decision.at_ns), top(row)))
            }
        }
    };
    let label = format!(
        "Timeline of {} threads over {}; the tables below say the same in words",
        shown.len(),
        Seconds(report.wall_seconds)
    );
    let content = html! {
        (legend(&pes))
        (page::drawing("timeline", (WIDTH, height), &label, &drawing))
        @if left_out > 0 {
            (page::remark(format_args!("{left_out} short bindings are not drawn here, but below in sum.")))
        }
        (folded(report, &report.threads[shown.len()..]))
    };
    page::section("Which thread ran where", &content)
}

/// Returns the thread with the longest of its bindings.
fn with_longest(thread: &ThreadReport, most: usize) -> ThreadReport {
    let mut drawn = thread.clone();
    let lasts = |binding: &Binding| binding.to_ns.saturating_sub(binding.from_ns);
    drawn.bindings.sort_by_key(|binding| Reverse(lasts(binding)));
    drawn.bindings.truncate(most);
    drawn.bindings.sort_by_key(|binding| binding.from_ns);
    drawn
}

/// Returns stripes in the background colour for the band of a free thread.
fn hatching() -> Markup {
    html! {
        pattern #free width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
            rect.stripe width="3" height="6" {}
        }
    }
}

fn legend(pes: &[PeId]) -> Markup {
    html! {
        ul.legend {
            @for (index, pe) in pes.iter().take(LEGEND_PES_MAX).enumerate() {
                li { span.swatch style={ "background:" (colour(index)) } {} "PE " (pe) }
            }
            @if pes.len() > LEGEND_PES_MAX {
                li { "and " (pes.len() - LEGEND_PES_MAX) " more PEs, numbered in the bands" }
            }
            li { "height: share of the time in which it ran" }
            li { span.swatch.bound {} "bound by corewise" }
            li { span.swatch.free {} "free" }
            li { span.diamond { "◆" } "decision: bound" }
            li { span.diamond { "◇" } "decision: freed" }
        }
    }
}

/// Returns the times along the top, with lines down to the bottom.
pub fn axis(scale: &Scale, height: f64) -> Markup {
    let step = tick_step_ns(scale.end_ns);
    html! {
        @for at_ns in (0..=scale.end_ns).step_by(step as usize) {
            @let x = scale.x(at_ns);
            line.grid x1=(x) x2=(x) y1=(TOP - 6.0) y2=(height) {}
            text.tick x=(x) y="12" { (tick_label(at_ns)) }
        }
    }
}

/// Returns a round step (1, 2 or 5 times a power of ten nanoseconds) that divides the whole into four to ten.
fn tick_step_ns(end_ns: u64) -> u64 {
    let steps = (0..18).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    steps.into_iter().find(|step| end_ns / step <= 10).unwrap_or(end_ns.max(1))
}

/// Formats a round time without superfluous digits.
fn tick_label(at_ns: u64) -> String {
    match at_ns {
        0 => "0".to_owned(),
        ns if ns >= 100_000_000 => format!("{} s", ns as f64 / 1e9),
        ns if ns >= 100_000 => format!("{} ms", ns as f64 / 1e6),
        ns => format!("{} µs", ns as f64 / 1e3),
    }
}

struct Row<'a> {
    thread: &'a ThreadReport,
    label: &'a str,
    top: f64,
    scale: &'a Scale,
    /// The PEs in the order of their colours.
    pes: &'a [PeId],
}

impl Row<'_> {
    fn draw(&self) -> Markup {
        let (thread, baseline) = (self.thread, self.top + 15.0);
        html! {
            g.row {
                title {
                    (self.label) ", thread " (thread.tid) ": " (Seconds(thread.cpu_seconds)) " of CPU time"
                }
                text.name x="0" y=(baseline) clip-path="url(#names)" { (self.label) }
                text.tid x=(LABEL_WIDTH - 12.0) y=(baseline) { (thread.tid) }
                @for span in spans(thread) { (self.band(&span)) }
                @for binding in &thread.bindings {
                    (self.outline(binding.from_ns, binding.to_ns, &binding.pes))
                }
            }
        }
    }

    fn band(&self, span: &Span) -> Markup {
        let Span { ran, bound } = span;
        let (x, end) = (self.scale.x(ran.from_ns), self.scale.x(ran.to_ns));
        let (width, height) = (end - x, (ran.share * BAND_HEIGHT).max(BAND_HEIGHT_MIN));
        if width <= 0.0 {
            return Markup::default();
        }
        let index = ran.pe.and_then(|pe| self.pes.iter().position(|&known| known == pe));
        let fill = index.map_or("var(--free)".to_owned(), colour);
        let pe = ran.pe.map_or("several PEs".to_owned(), |pe| format!("PE {pe}"));
        let (y, height) = (tenth(self.top + 4.0 + BAND_HEIGHT - height), tenth(height));
        let manner = if *bound { "bound" } else { "free" };
        let (from, to) = (Seconds(ran.from_ns as f64 / 1e9), Seconds(ran.to_ns as f64 / 1e9));
        html! {
            rect x=(x) y=(y) width=(width) height=(height) fill=(fill) {
                title {
                    "on " (pe) ", " (manner) ", " (from) " to " (to) ", ran "
                    (Share(ran.share)) " of the time"
                }
            }
            @if !bound {
                rect x=(x) y=(y) width=(width) height=(height) fill="url(#free)" pointer-events="none" {}
            }
            @if let Some(pe) = ran.pe.filter(|_| width >= NUMBERED_WIDTH_MIN) {
                text.pe x=(x + width / 2.0) y=(self.top + 15.0) { (pe) }
            }
        }
    }

    fn outline(&self, from_ns: u64, to_ns: u64, pes: &CpuSet) -> Markup {
        let (x, end) = (self.scale.x(from_ns), self.scale.x(to_ns));
        if end <= x {
            return Markup::default();
        }
        html! {
            rect.binding x=(x) y=(self.top + 3.0) width=(end - x) height=(BAND_HEIGHT + 2.0) rx="2" {
                title { "bound to PE " (pes) }
            }
        }
    }
}

fn mark(index: usize, decision: &Decision, x: f64, top: f64) -> Markup {
    let at = Seconds(decision.at_ns as f64 / 1e9);
    let (freed, what) = match (&decision.setting, &decision.pes) {
        (Some(setting), _) => (false, setting.to_string()),
        (None, Some(pes)) => (false, format!("bound to PE {pes}")),
        (None, None) => (true, "freed".to_owned()),
    };
    html! {
        a href={ "#decision-" (index) } {
            path.mark.freed[freed] d=(format!("M{x} {}l4.5 4.5l-4.5 4.5l-4.5 -4.5z", top + 1.0)) {
                title { (at) ": " (what) ": " (decision.reason) }
            }
        }
    }
}

fn folded(report: &Report, rest: &[ThreadReport]) -> Markup {
    let groups = &report.more_threads;
    let count = rest.len() as u64 + groups.iter().map(|group| group.threads).sum::<u64>();
    if count == 0 {
        return Markup::default();
    }
    let listed: f64 = rest.iter().map(|thread| thread.cpu_seconds).sum();
    let together = Seconds(listed + groups.iter().map(|group| group.cpu_seconds).sum::<f64>());
    page::remark(format_args!("and {count} more threads, {together} of CPU time together"))
}

/// A period in which a thread ran, and whether it was bound then.
#[derive(Debug, PartialEq)]
struct Span {
    ran: RanOn,
    bound: bool,
}

/// Returns the periods in which a thread ran, split where a binding begins or ends.
fn spans(thread: &ThreadReport) -> Vec<Span> {
    let mut spans = Vec::new();
    for ran in &thread.ran_on {
        let bounds = thread.bindings.iter().flat_map(|binding| [binding.from_ns, binding.to_ns]);
        let mut cuts: Vec<u64> = bounds.filter(|&at| ran.from_ns < at && at < ran.to_ns).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let mut from_ns = ran.from_ns;
        for to_ns in cuts.into_iter().chain([ran.to_ns]) {
            let bound = thread.bindings.iter().any(|b| b.from_ns <= from_ns && to_ns <= b.to_ns);
            spans.push(Span { ran: RanOn { from_ns, to_ns, ..*ran }, bound });
            from_ns = to_ns;
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_has_four_to_ten_round_steps() {
        for (end_ns, step) in
            [(1, 1), (10, 1), (11, 2), (8_300_000_000, 1_000_000_000), (3_600_000_000_000, 500_000_000_000)]
        {
            assert_eq!(tick_step_ns(end_ns), step, "{end_ns}");
        }
        assert_eq!([0, 500_000_000, 20_000_000, 3_000].map(tick_label), ["0", "0.5 s", "20 ms", "3 µs"]);
    }

    #[test]
    fn a_run_is_cut_where_a_binding_begins_and_ends() {
        let thread = crate::report::fixture::thread(7, "t", &[(10, 50, 1, 0.5)], &[(20, 30, 1)]);
        let span = |from_ns, to_ns, bound| Span {
            ran: RanOn { from_ns, to_ns, pe: Some(PeId(1)), share: 0.5 },
            bound,
        };
        assert_eq!(spans(&thread), [span(10, 20, false), span(20, 30, true), span(30, 50, false)]);
    }
}
