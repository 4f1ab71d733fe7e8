//! The drawing of which thread ran where, when and why.
//!
//! One row a thread, busiest first. A band's height is the share of the time in which the thread ran, which
//! is exact; its colour is the PE on which the thread was seen at the end of a look, which is all that is
//! known of the time between two. A solid band was bound by corewise, a hatched one was free to be moved by
//! the kernel; a diamond is a decision.

use super::{DECISIONS_SHOWN_MAX, THREADS_SHOWN_MAX};
use crate::page::markup::{Seconds, Share, Text, colour};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::report::{Decision, RanOn, Report, ThreadReport};
use std::fmt::{Display, Formatter, Result};

// Lengths are in units of the drawing, which is `WIDTH` wide and scales with the page.
pub const WIDTH: f64 = 1080.0;
pub const LABEL_WIDTH: f64 = 200.0;
const RIGHT_MARGIN: f64 = 10.0;
pub const TOP: f64 = 26.0;
const ROW_HEIGHT: f64 = 26.0;
const BAND_HEIGHT: f64 = 14.0;
/// Lower than this, a band would not be seen.
const BAND_HEIGHT_MIN: f64 = 1.5;
/// Narrower than this, a band carries no number.
const NUMBERED_WIDTH_MIN: f64 = 18.0;
/// With more PEs than this the legend would be longer than the drawing.
const LEGEND_PES_MAX: usize = 16;

/// The section with the drawing.
pub struct Timeline<'a>(pub &'a Report);

/// From nanoseconds to the drawing's units.
pub struct Scale {
    pub end_ns: u64,
}

impl Scale {
    /// Of the whole run.
    pub fn of(report: &Report) -> Self {
        Scale { end_ns: ((report.wall_seconds * 1e9) as u64).max(1) }
    }

    /// Rounded to half a unit, so that what is too short to be seen falls away.
    pub fn x(&self, at_ns: u64) -> f64 {
        let width = WIDTH - LABEL_WIDTH - RIGHT_MARGIN;
        let share = at_ns.min(self.end_ns) as f64 / self.end_ns as f64;
        ((LABEL_WIDTH + share * width) * 2.0).round() / 2.0
    }
}

impl Display for Timeline<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let report = self.0;
        let shown = &report.threads[..report.threads.len().min(THREADS_SHOWN_MAX)];
        let scale = Scale::of(report);
        let pes: CpuSet = shown.iter().flat_map(|t| t.ran_on.iter().filter_map(|ran| ran.pe)).collect();
        let pes: Vec<PeId> = pes.iter().collect();
        writeln!(f, "<section>\n<h2>Who ran where</h2>")?;
        legend(f, &pes)?;
        let height = TOP + ROW_HEIGHT * shown.len() as f64 + 6.0;
        writeln!(
            f,
            "<div class=\"scroll\">\n<svg class=\"timeline\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"Timeline of {} threads over {}; the tables below say the same in words\">",
            shown.len(),
            Seconds(report.wall_seconds),
        )?;
        // A name that is too long ends before the thread's id begins.
        let names = format!("<rect width=\"{}\" height=\"{height}\"/>", LABEL_WIDTH - 50.0);
        writeln!(f, "<defs>{HATCHING}<clipPath id=\"names\">{names}</clipPath></defs>")?;
        axis(f, &scale, height)?;
        for (index, thread) in shown.iter().enumerate() {
            let top = TOP + ROW_HEIGHT * index as f64;
            Row { thread, top, scale: &scale, pes: &pes }.draw(f)?;
        }
        for (index, decision) in report.decisions.iter().take(DECISIONS_SHOWN_MAX).enumerate() {
            if let Some(row) = shown.iter().position(|thread| thread.tid == decision.tid) {
                let top = TOP + ROW_HEIGHT * row as f64;
                mark(f, index, decision, scale.x(decision.at_ns), top)?;
            }
        }
        writeln!(f, "</svg>\n</div>")?;
        folded(f, report, &report.threads[shown.len()..])?;
        writeln!(f, "</section>")
    }
}

/// Stripes in the colour of the ground, laid over the band of a free thread.
const HATCHING: &str = "<pattern id=\"free\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
    patternTransform=\"rotate(45)\"><rect class=\"stripe\" width=\"3\" height=\"6\"/></pattern>";

fn legend(f: &mut Formatter<'_>, pes: &[PeId]) -> Result {
    writeln!(f, "<ul class=\"legend\">")?;
    for (index, pe) in pes.iter().take(LEGEND_PES_MAX).enumerate() {
        writeln!(f, "<li><span class=\"swatch\" style=\"background:{}\"></span>PE {pe}</li>", colour(index))?;
    }
    if let Some(more) = pes.len().checked_sub(LEGEND_PES_MAX).filter(|&more| more > 0) {
        writeln!(f, "<li>and {more} more PEs, numbered in the bands</li>")?;
    }
    writeln!(f, "<li>height: share of the time in which it ran</li>")?;
    f.write_str(
        "<li><span class=\"swatch bound\"></span>bound by corewise</li>\n\
         <li><span class=\"swatch free\"></span>free</li>\n\
         <li><span class=\"diamond\">◆</span>decision: bound</li>\n\
         <li><span class=\"diamond\">◇</span>decision: freed</li>\n</ul>\n",
    )
}

pub fn axis(f: &mut Formatter<'_>, scale: &Scale, height: f64) -> Result {
    let step = tick_step_ns(scale.end_ns);
    for at_ns in (0..=scale.end_ns).step_by(step as usize) {
        let x = scale.x(at_ns);
        writeln!(
            f,
            "<line class=\"grid\" x1=\"{x}\" x2=\"{x}\" y1=\"{}\" y2=\"{height}\"/>\
             <text class=\"tick\" x=\"{x}\" y=\"12\">{}</text>",
            TOP - 6.0,
            tick_label(at_ns),
        )?;
    }
    Ok(())
}

/// A round step (1, 2 or 5 times a power of ten nanoseconds) that makes four to ten of the whole.
fn tick_step_ns(end_ns: u64) -> u64 {
    let steps = (0..18).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    steps.into_iter().find(|step| end_ns / step <= 10).unwrap_or(end_ns.max(1))
}

/// A round time needs no more digits than it has.
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
    top: f64,
    scale: &'a Scale,
    /// The PEs in the order of their colours.
    pes: &'a [PeId],
}

impl Row<'_> {
    fn draw(&self, f: &mut Formatter<'_>) -> Result {
        let (thread, baseline) = (self.thread, self.top + 15.0);
        let used = Seconds(thread.cpu_seconds);
        writeln!(
            f,
            "<g class=\"row\"><title>{name}, thread {tid}: {used} of CPU time</title>\
             <text class=\"name\" x=\"0\" y=\"{baseline}\" clip-path=\"url(#names)\">{name}</text>\
             <text class=\"tid\" x=\"{tid_x}\" y=\"{baseline}\">{tid}</text>",
            name = Text(&thread.name),
            tid = thread.tid,
            tid_x = LABEL_WIDTH - 12.0,
        )?;
        for span in spans(thread) {
            self.band(f, &span)?;
        }
        for binding in &thread.bindings {
            self.outline(f, binding.from_ns, binding.to_ns, &binding.pes)?;
        }
        writeln!(f, "</g>")
    }

    fn band(&self, f: &mut Formatter<'_>, span: &Span) -> Result {
        let Span { ran, bound } = span;
        let (x, end) = (self.scale.x(ran.from_ns), self.scale.x(ran.to_ns));
        let (width, height) = (end - x, (ran.share * BAND_HEIGHT).max(BAND_HEIGHT_MIN));
        if width <= 0.0 {
            return Ok(());
        }
        let index = ran.pe.and_then(|pe| self.pes.iter().position(|&known| known == pe));
        let fill = index.map_or("var(--free)".to_owned(), colour);
        let pe = ran.pe.map_or("several PEs".to_owned(), |pe| format!("PE {pe}"));
        let y = self.top + 4.0 + BAND_HEIGHT - height;
        let place = format!("x=\"{x}\" y=\"{y:.1}\" width=\"{width}\" height=\"{height:.1}\"");
        let manner = if *bound { "bound" } else { "free" };
        let (from, to) = (Seconds(ran.from_ns as f64 / 1e9), Seconds(ran.to_ns as f64 / 1e9));
        let told = format!("on {pe}, {manner}, {from} to {to}, ran {} of the time", Share(ran.share));
        writeln!(f, "<rect {place} fill=\"{fill}\"><title>{told}</title></rect>")?;
        if !bound {
            writeln!(f, "<rect {place} fill=\"url(#free)\" pointer-events=\"none\"/>")?;
        }
        if let Some(pe) = ran.pe.filter(|_| width >= NUMBERED_WIDTH_MIN) {
            let (middle, baseline) = (x + width / 2.0, self.top + 15.0);
            writeln!(f, "<text class=\"pe\" x=\"{middle}\" y=\"{baseline}\">{pe}</text>")?;
        }
        Ok(())
    }

    fn outline(&self, f: &mut Formatter<'_>, from_ns: u64, to_ns: u64, pes: &CpuSet) -> Result {
        let (x, end) = (self.scale.x(from_ns), self.scale.x(to_ns));
        if end <= x {
            return Ok(());
        }
        let (y, width) = (self.top + 3.0, end - x);
        writeln!(
            f,
            "<rect class=\"binding\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{}\" rx=\"2\">\
             <title>bound to PE {pes}</title></rect>",
            BAND_HEIGHT + 2.0,
        )
    }
}

fn mark(f: &mut Formatter<'_>, index: usize, decision: &Decision, x: f64, top: f64) -> Result {
    let at = Seconds(decision.at_ns as f64 / 1e9);
    let (class, what) = match (&decision.setting, &decision.pes) {
        (Some(setting), _) => ("mark", Text(setting).to_string()),
        (None, Some(pes)) => ("mark", format!("bound to PE {pes}")),
        (None, None) => ("mark freed", "freed".to_owned()),
    };
    let y = top + 1.0;
    writeln!(
        f,
        "<a href=\"#decision-{index}\"><path class=\"{class}\" d=\"M{x} {y}l4.5 4.5l-4.5 4.5l-4.5 -4.5z\">\
         <title>{at}: {what}: {}</title></path></a>",
        Text(&decision.reason),
    )
}

fn folded(f: &mut Formatter<'_>, report: &Report, rest: &[ThreadReport]) -> Result {
    let groups = &report.more_threads;
    let count = rest.len() as u64 + groups.iter().map(|group| group.threads).sum::<u64>();
    if count == 0 {
        return Ok(());
    }
    let listed: f64 = rest.iter().map(|thread| thread.cpu_seconds).sum();
    let together = Seconds(listed + groups.iter().map(|group| group.cpu_seconds).sum::<f64>());
    writeln!(f, "<p class=\"quiet\">and {count} more threads, {together} of CPU time together</p>")
}

/// A span in which a thread ran, and whether it was bound then.
#[derive(Debug, PartialEq)]
struct Span {
    ran: RanOn,
    bound: bool,
}

/// The times in which a thread ran, cut where a binding begins or ends.
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
        let thread = crate::report::page::tests::thread(7, "t", &[(10, 50, 1, 0.5)], &[(20, 30, 1)]);
        let span = |from_ns, to_ns, bound| Span {
            ran: RanOn { from_ns, to_ns, pe: Some(PeId(1)), share: 0.5 },
            bound,
        };
        assert_eq!(spans(&thread), [span(10, 20, false), span(20, 30, true), span(30, 50, false)]);
    }
}
