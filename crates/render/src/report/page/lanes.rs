//! The activity of each PE in a run, and which PEs share something: shows threads that compete for a shared
//! FPU.
//!
//! There is one lane per PE, with PEs that share something next to each other. A column's height is the share
//! of the time in which threads of the run were seen running there, with FPU-intensive ones at the bottom.
//! Other programs are unknown here and not drawn.

use super::timeline::{LABEL_WIDTH, Scale, TOP, WIDTH, axis};
use crate::chart::tenth;
use crate::page;
use crate::page::words::Share;
use corewise_core::classify::FpuClass;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::report::{Report, Shared};
use maud::{Markup, html};
use std::collections::BTreeMap;

const LANE_HEIGHT: f64 = 20.0;
const COLUMN_HEIGHT: f64 = 16.0;
const LANES_MAX: usize = 64;
/// The maximum number of columns of all lanes, which limits the size of the page.
const COLUMNS_MAX: usize = 4_000;
const COLUMNS_PER_LANE_MAX: usize = 160;
/// The maximum number of brackets for shared resources left of the lanes, the widest sharing outermost.
const BRACKETS_MAX: usize = 4;
const BRACKET_WIDTH: f64 = 34.0;

/// The share of a column's time in which threads ran: FPU-intensive ones, and all.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Column {
    intensive: f64,
    all: f64,
}

/// Returns the section with the drawing.
pub fn section(report: &Report) -> Markup {
    let scale = Scale::of(report);
    let all = pes(report);
    let count = (COLUMNS_MAX / all.len().max(1)).clamp(1, COLUMNS_PER_LANE_MAX);
    let lanes = lanes(report, scale.end_ns, count);
    let shown = &all[..all.len().min(LANES_MAX)];
    if lanes.is_empty() {
        return Markup::default();
    }
    let height = TOP + LANE_HEIGHT * shown.len() as f64 + 6.0;
    let drawing = html! {
        (axis(&scale, height))
        (brackets(&report.shared, shown))
        @for (index, &pe) in shown.iter().enumerate() {
            (lane(pe, TOP + LANE_HEIGHT * index as f64, lanes.get(&pe).map_or(&[], Vec::as_slice), &scale))
        }
    };
    let label = format!("What {} PEs did, and what they share", shown.len());
    let content = html! {
        ul.legend {
            li { span.swatch.intensive {} "FPU-intensive threads" }
            li { span.swatch.other {} "other threads of the run" }
            li { "height: share of the time, by where threads were seen at each look" }
        }
        (page::drawing("timeline lanes", (WIDTH, height), &label, &drawing))
        @if all.len() > shown.len() {
            (page::remark(format_args!("and {} more PEs", all.len() - shown.len())))
        }
    };
    page::section("What each PE did", &content)
}

/// Returns the PEs on which something ran and their close neighbours, ordered so that PEs that share
/// something are adjacent.
fn pes(report: &Report) -> Vec<PeId> {
    const CLOSE_MAX: usize = 8;
    let holders = |pe| report.shared.iter().filter(move |shared| shared.pes.contains(pe));
    let ran = report.threads.iter().flat_map(|thread| thread.ran_on.iter().filter_map(|ran| ran.pe));
    let mut pes: CpuSet = ran.collect();
    for pe in pes.clone().iter() {
        for close in holders(pe).filter(|shared| shared.pes.len() <= CLOSE_MAX) {
            pes = pes.union(&close.pes);
        }
    }
    let mut order: Vec<PeId> = pes.iter().collect();
    order.sort_by_cached_key(|&pe| {
        let mut widest_first: Vec<(usize, Option<PeId>)> =
            holders(pe).map(|shared| (usize::MAX - shared.pes.len(), shared.pes.first())).collect();
        widest_first.sort_unstable();
        // PEs that share nothing closer come after those that do.
        widest_first.push((usize::MAX, None));
        (widest_first, pe)
    });
    order
}

/// Returns each PE's columns, `count` of equal width over the whole run.
fn lanes(report: &Report, end_ns: u64, count: usize) -> BTreeMap<PeId, Vec<Column>> {
    let mut lanes: BTreeMap<PeId, Vec<Column>> = BTreeMap::new();
    let width = end_ns as f64 / count as f64;
    for thread in &report.threads {
        for ran in &thread.ran_on {
            let Some(pe) = ran.pe else { continue };
            let columns = lanes.entry(pe).or_insert_with(|| vec![Column::default(); count]);
            let first = (ran.from_ns as f64 / width) as usize;
            for (index, column) in columns.iter_mut().enumerate().skip(first) {
                let begin = (index as f64 * width).max(ran.from_ns as f64);
                let end = ((index + 1) as f64 * width).min(ran.to_ns as f64);
                if end <= begin {
                    break;
                }
                let share = ran.share * (end - begin) / width;
                column.all += share;
                if thread.fpu_class == FpuClass::Intensive {
                    column.intensive += share;
                }
            }
        }
    }
    lanes
}

fn brackets(shared: &[Shared], shown: &[PeId]) -> Markup {
    let mut kinds: Vec<_> = shared.iter().map(|shared| shared.resource).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let depth = |domain: &Shared| kinds.iter().position(|&kind| kind == domain.resource).unwrap_or_default();
    html! {
        @for domain in shared.iter().filter(|domain| depth(domain) < BRACKETS_MAX) {
            @let first = shown.iter().position(|&pe| domain.pes.contains(pe));
            @let last = shown.iter().rposition(|&pe| domain.pes.contains(pe));
            @if let Some((first, last)) = first.zip(last) {
                @let x = LABEL_WIDTH - 50.0 - BRACKET_WIDTH * depth(domain) as f64;
                @let top = TOP + LANE_HEIGHT * first as f64 + 2.0;
                @let bottom = TOP + LANE_HEIGHT * (last + 1) as f64 - 2.0;
                g.bracket {
                    title { "PEs " (domain.pes) " share: " (domain.resource.word()) }
                    path d=(format!("M{x} {top}h-5V{bottom}h5")) {}
                    text x=(x - 8.0) y=((top + bottom) / 2.0 + 3.5) { (domain.resource.word()) }
                }
            }
        }
    }
}

fn lane(pe: PeId, top: f64, columns: &[Column], scale: &Scale) -> Markup {
    let baseline = top + LANE_HEIGHT - 2.0;
    let at = |index: usize| scale.x((scale.end_ns as f64 * index as f64 / columns.len() as f64) as u64);
    html! {
        text.tid x=(LABEL_WIDTH - 8.0) y=(baseline - 4.0) { "PE " (pe) }
        line.grid x1=(LABEL_WIDTH) x2=(scale.x(scale.end_ns)) y1=(baseline) y2=(baseline) {}
        @for (index, column) in columns.iter().enumerate().filter(|(_, column)| column.all > 0.0) {
            @for (class, share) in [("other", column.all), ("intensive", column.intensive)] {
                @let height = share.min(1.0) * COLUMN_HEIGHT;
                @if height >= 0.05 {
                    rect class=(class) x=(at(index)) y=(tenth(baseline - height))
                        width=(at(index + 1) - at(index)) height=(tenth(height)) {
                        title { "PE " (pe) ": " (Share(column.all.min(1.0))) " busy with this run" }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{SECOND_NS, report, thread};
    use corewise_core::topology::DomainKind;

    #[test]
    fn a_lane_holds_what_ran_on_its_pe_and_nothing_twice() {
        let intensive =
            |thread| corewise_core::report::ThreadReport { fpu_class: FpuClass::Intensive, ..thread };
        let threads = vec![
            intensive(thread(1, "a", &[(0, 2 * SECOND_NS, 0, 0.5)], &[])),
            thread(2, "b", &[(SECOND_NS, 3 * SECOND_NS, 0, 0.25)], &[]),
        ];
        let lanes = lanes(&report(threads, Vec::new()), 4 * SECOND_NS, 4);
        let column = |intensive, all| Column { intensive, all };
        assert_eq!(lanes.len(), 1);
        assert_eq!(
            lanes[&PeId(0)],
            [column(0.5, 0.5), column(0.5, 0.75), column(0.0, 0.25), column(0.0, 0.0)]
        );
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
}
