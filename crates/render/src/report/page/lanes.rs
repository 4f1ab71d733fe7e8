//! What each PE did in a run, below the parallelism of each application: shows phases and swaps, and threads
//! that compete for a shared FPU.
//!
//! There is one lane per PE: fast ones first, and PEs that share something next to each other. A column's
//! height is the share of the time in which threads of the run were seen running there, by application, the
//! part of FPU-intensive threads shaded. The line below a lane shows which application's threads corewise had
//! bound there: a thread that is bound to n PEs could be on any of them, and counts 1/n on each. An edge
//! marks threads with a raised weight, a tick each beginning of a binding.
//!
//! All of it is sums over columns of time, as in the report: what lasts less than a column shows as its share
//! of the column. Other programs are unknown here and not drawn.

use super::brackets;
use super::columns::{Colours, Columns};
use super::parallelism::Bands;
use super::timeline::{LABEL_WIDTH, Scale, TOP, WIDTH, axis};
use crate::page;
use crate::page::words::Seconds;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::report::Report;
use corewise_core::report::timeline::PeOverTime;
use maud::{Markup, html};

const COLUMN_HEIGHT: f64 = 16.0;
/// A lane without its line.
const LANE_HEIGHT: f64 = 20.0;
/// The line below, from the columns on, and its edge.
const LINE_GAP: f64 = 2.5;
const LINE_HEIGHT: f64 = 5.0;
const EDGE_HEIGHT: f64 = 2.0;
const LANES_MAX: usize = 64;
/// The maximum number of columns of all lanes, which limits the size of the page.
const COLUMNS_MAX: usize = 8_000;
/// The same of one lane: as many as can be distinguished.
const COLUMNS_PER_LANE_MAX: usize = 435;

/// Returns the section with the drawing.
pub fn section(report: &Report) -> Markup {
    let (scale, colours, all) = (Scale::of(report), Colours::of(report), pes(report));
    if all.is_empty() {
        return Markup::default();
    }
    let shown = &all[..all.len().min(LANES_MAX)];
    let columns = Columns::of(report, &scale, (COLUMNS_MAX / shown.len()).min(COLUMNS_PER_LANE_MAX));
    let bands = Bands::of(report, &colours);
    let lane = Lane { report, colours: &colours, columns: &columns, scale: &scale };
    let (top, lane_height) = (TOP + bands.height(), lane.height());
    let height = top + lane_height * shown.len() as f64 + 6.0;
    let drawing = html! {
        (axis(&scale, height))
        (bands.draw(&columns, TOP))
        (brackets::draw(report, shown, (top, lane_height)))
        @for (index, &pe) in shown.iter().enumerate() { (lane.draw(pe, top + lane_height * index as f64)) }
    };
    let label = format!("What {} PEs did, what they share, and how parallel applications were", shown.len());
    let content = html! {
        (legend(report, &colours))
        (page::drawing("timeline lanes", (WIDTH, height), &label, &drawing))
        (page::remark(format_args!(
            "One column is {}. What is shorter shows as its share of a column.",
            Seconds(columns.drawn_seconds())
        )))
        @if all.len() > shown.len() {
            (page::remark(format_args!("and {} more PEs", all.len() - shown.len())))
        }
    };
    page::section("What each PE did", &content)
}

fn legend(report: &Report, colours: &Colours) -> Markup {
    let (pes, runnable) = (&report.timeline.pes, &report.timeline.runnable);
    let has = |list: fn(&PeOverTime) -> &Vec<f64>| pes.iter().any(|row| !list(row).is_empty());
    let has_others = pes.iter().any(|row| colours.place(row.application) == colours.shown.len());
    let swatch = |place| format!("background:{}", colours.colour(place));
    html! {
        ul.legend {
            @for (place, index) in colours.shown.iter().enumerate() {
                li { span.swatch style=(swatch(place)) {} (report.applications[*index].name) }
            }
            @if has_others {
                li { span.swatch style=(swatch(colours.shown.len())) {} "other applications" }
            }
            @if has(|row| &row.fpu_intensive) { li { span.swatch.intensive {} "FPU-intensive threads" } }
            @if !runnable.is_empty() {
                li { "above: runnable threads; the line below them: share of the time with only one" }
            }
            li { "height: share of the time, by where threads were seen at each look" }
            @if has(|row| &row.bound) {
                li {
                    span.tick {}
                    "line below: bound by corewise, a thread on n PEs as 1/n of each; tick: newly"
                }
            }
            @if has(|row| &row.weighted) { li { span.swatch.weighted {} "bound, and with a raised weight" } }
        }
    }
}

/// Returns the PEs on which something ran and their close neighbours, and all PEs if there are fast and slow
/// ones: fast ones first, those that share something adjacent.
fn pes(report: &Report) -> Vec<PeId> {
    const CLOSE_MAX: usize = 8;
    let holders = |pe| report.shared.iter().filter(move |shared| shared.pes.contains(pe));
    let mut pes: CpuSet = report.timeline.pes.iter().map(|row| row.pe).collect();
    for pe in pes.clone().iter() {
        for close in holders(pe).filter(|shared| shared.pes.len() <= CLOSE_MAX) {
            pes = pes.union(&close.pes);
        }
    }
    if !pes.is_empty() {
        pes = report.kinds.iter().fold(pes, |all, kind| all.union(&kind.pes));
    }
    let mut order: Vec<PeId> = pes.iter().collect();
    order.sort_by_cached_key(|&pe| {
        let kind = report.kinds.iter().position(|kind| kind.pes.contains(pe));
        let mut widest_first: Vec<(usize, Option<PeId>)> =
            holders(pe).map(|shared| (usize::MAX - shared.pes.len(), shared.pes.first())).collect();
        widest_first.sort_unstable();
        // PEs that share nothing closer come after those that do.
        widest_first.push((usize::MAX, None));
        (kind.unwrap_or(usize::MAX), widest_first, pe)
    });
    order
}

struct Lane<'a> {
    report: &'a Report,
    colours: &'a Colours,
    columns: &'a Columns<'a>,
    scale: &'a Scale,
}

/// A row of the timeline above what is drawn of the rows before.
struct Stacked<'a> {
    row: &'a PeOverTime,
    /// Between which heights it ran, and up to which of these were FPU-intensive threads.
    ran: [Vec<f64>; 3],
    /// Between which heights it was bound, and up to which of these with a raised weight.
    bound: [Vec<f64>; 3],
}

impl Lane<'_> {
    fn height(&self) -> f64 {
        let is_bound = self.report.timeline.pes.iter().any(|row| !row.bound.is_empty());
        LANE_HEIGHT + if is_bound { LINE_GAP + LINE_HEIGHT + EDGE_HEIGHT } else { 0.0 }
    }

    /// Returns the rows of a PE one above the other, by application; not higher than the lane.
    fn stacked(&self, pe: PeId) -> Vec<Stacked<'_>> {
        let mut rows: Vec<&PeOverTime> = self.report.timeline.pes.iter().filter(|row| row.pe == pe).collect();
        rows.sort_by_key(|row| self.colours.place(row.application));
        let (mut ran, mut bound) = (self.columns.means(0, &[]), self.columns.means(0, &[]));
        let stacked = |row| Stacked {
            row,
            ran: self.above(&mut ran, row.first_column, (&row.ran, &row.fpu_intensive)),
            bound: self.above(&mut bound, row.first_column, (&row.bound, &row.weighted)),
        };
        rows.into_iter().map(stacked).collect()
    }

    /// Returns the heights of a list and of a part of it above those before, and adds the list to these.
    fn above(&self, before: &mut Vec<f64>, first: usize, (all, part): (&[f64], &[f64])) -> [Vec<f64>; 3] {
        let above = |before: &[f64], list: &[f64]| -> Vec<f64> {
            let means = self.columns.means(first, list);
            before.iter().zip(means).map(|(before, mean)| (before + mean).min(1.0)).collect()
        };
        let (part, all) = (above(before, part), above(before, all));
        [std::mem::replace(before, all.clone()), part, all]
    }

    fn draw(&self, pe: PeId, top: f64) -> Markup {
        let baseline = top + LANE_HEIGHT - 2.0;
        let kinds = &self.report.kinds;
        let is_fast = kinds.first().is_some_and(|fastest| fastest.pes.contains(pe));
        let (left, right) = (LABEL_WIDTH, self.scale.x(self.scale.end_ns));
        html! {
            @if is_fast {
                rect.fast x=(left) y=(top) width=(right - left) height=(self.height()) {}
            }
            text.tid x=(LABEL_WIDTH - 8.0) y=(baseline - 4.0) { "PE " (pe) }
            line.grid x1=(left) x2=(right) y1=(baseline) y2=(baseline) {}
            @for stacked in self.stacked(pe) { (self.row(&stacked, baseline)) }
        }
    }

    fn row(&self, Stacked { row, ran, bound }: &Stacked<'_>, baseline: f64) -> Markup {
        let colour = self.colours.colour(self.colours.place(row.application));
        let line = baseline + LINE_GAP;
        let edge = line + LINE_HEIGHT;
        let paths = [
            ("", &colour[..], self.columns.area(&ran[0], &ran[2], baseline, COLUMN_HEIGHT)),
            ("intensive", "", self.columns.area(&ran[0], &ran[1], baseline, COLUMN_HEIGHT)),
            ("", &colour[..], self.columns.area(&bound[0], &bound[2], line, -LINE_HEIGHT)),
            ("weighted", "", self.columns.area(&bound[0], &bound[1], edge, -EDGE_HEIGHT)),
            ("tick", "", self.ticks(row, line)),
        ];
        html! {
            g.did {
                title { (self.words(row)) }
                @for (class, colour, path) in paths.iter().filter(|(.., path)| !path.is_empty()) {
                    path class=[(!class.is_empty()).then_some(class)]
                        fill=[(!colour.is_empty()).then_some(colour)] d=(path) {}
                }
            }
        }
    }

    fn ticks(&self, row: &PeOverTime, line: f64) -> String {
        self.columns.ticks(&self.columns.means(row.first_column, &row.bindings), line, LINE_HEIGHT)
    }

    fn words(&self, row: &PeOverTime) -> String {
        let kind = self.report.kinds.iter().find(|kind| kind.pes.contains(row.pe));
        let kind = kind.map_or(String::new(), |kind| format!(" ({})", kind.name));
        let application = row.application.and_then(|index| self.report.applications.get(index));
        let name = application.map_or("other applications", |application| &application.name);
        let seconds = |list: &[f64]| Seconds(self.columns.seconds(list));
        let mut words = format!("PE {}{kind}, {name}: ran {}", row.pe, seconds(&row.ran));
        if !row.bound.is_empty() {
            let bindings: f64 = row.bindings.iter().sum();
            words += &format!(", bound {} in {bindings} bindings", seconds(&row.bound));
        }
        if !row.weighted.is_empty() {
            words += &format!(", with a raised weight {}", seconds(&row.weighted));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{SECOND_NS, phases, report, thread};
    use corewise_core::classify::FpuClass;
    use corewise_core::report::{Shared, ThreadReport};
    use corewise_core::topology::DomainKind;

    fn with_lane<T>(report: &Report, columns: usize, test: impl Fn(&Lane<'_>) -> T) -> T {
        let (scale, colours) = (Scale::of(report), Colours::of(report));
        let columns = Columns::of(report, &scale, columns);
        test(&Lane { report, colours: &colours, columns: &columns, scale: &scale })
    }

    #[test]
    fn a_lane_holds_what_ran_on_its_pe_and_nothing_twice() {
        let intensive = |thread| ThreadReport { fpu_class: FpuClass::Intensive, ..thread };
        let threads = vec![
            intensive(thread(1, "a", &[(0, 2 * SECOND_NS, 0, 0.5)], &[])),
            thread(2, "b", &[(SECOND_NS, 3 * SECOND_NS, 0, 0.25)], &[]),
        ];
        with_lane(&report(threads, Vec::new()), 11, |lane| {
            let rows = lane.stacked(PeId(0));
            assert_eq!((rows.len(), lane.stacked(PeId(1)).len()), (1, 0));
            let [below, intensive, all] = &rows[0].ran;
            assert_eq!((below[..4].iter().sum::<f64>(), &intensive[..4]), (0.0, &[0.5, 0.5, 0.0, 0.0][..]));
            assert_eq!(all[..4], [0.5, 0.75, 0.25, 0.0]);
        });
    }

    #[test]
    fn pes_that_share_something_are_neighbours() {
        let mut report = report(vec![thread(1, "a", &[(0, 9, 0, 1.0), (9, 12, 3, 1.0)], &[])], Vec::new());
        let pes_of = |list: &str| list.parse::<CpuSet>().unwrap();
        report.shared = vec![
            Shared { resource: DomainKind::Core, pes: pes_of("0,4") },
            Shared { resource: DomainKind::Core, pes: pes_of("1,5") },
            Shared { resource: DomainKind::L3, pes: pes_of("0-7") },
        ];
        let order: Vec<u32> = pes(&report).into_iter().map(|pe| pe.0).collect();
        assert_eq!(order, [0, 4, 1, 5, 2, 3, 6, 7]);
    }

    #[test]
    fn fast_pes_come_first_and_idle_ones_are_drawn_too() {
        let mut report = phases();
        report.timeline.pes.retain(|row| row.pe == PeId(0));
        assert_eq!(pes(&report), [2, 0, 1].map(PeId));
    }

    #[test]
    fn a_swap_changes_the_colour_of_the_fast_lane_and_a_claim_by_weight_has_an_edge() {
        let report = phases();
        with_lane(&report, COLUMNS_PER_LANE_MAX, |lane| {
            let (fast, slow) = (lane.draw(PeId(2), 0.0).into_string(), lane.draw(PeId(0), 0.0).into_string());
            let count = |text: &str, part: &str| text.matches(part).count();
            assert_eq!((count(&fast, "class=\"fast\""), count(&slow, "class=\"fast\"")), (1, 0));
            assert_eq!((count(&fast, "class=\"did\""), count(&slow, "class=\"did\"")), (2, 1));
            assert_eq!((count(&fast, "class=\"weighted\""), count(&slow, "class=\"weighted\"")), (1, 0));
            assert_eq!(count(&fast, "class=\"tick\""), 2);
            // From 4 to 6 s of 10.4, then before and after.
            let line = |from: &str, to: &str| format!("M{from} 20.5V25.5H{to}V20.5z");
            let (from, to) = ("534.5", "702");
            assert!(fast.contains(&line(from, to)), "{fast}");
            assert!(fast.contains(&(line("200", from) + &line(to, "1070"))), "{fast}");
            let words =
                "PE 2 (fast), pair.sh: ran 2.00 s, bound 2.00 s in 1 bindings, with a raised weight 2.00 s";
            assert!(fast.contains(words), "{fast}");
        });
    }
}
