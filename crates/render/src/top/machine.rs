//! The PEs, drawn as what they share.
//!
//! Approach: as long as each PE can have a line (in several columns if necessary), it has one with the
//! programs that run there, and brackets join PEs that share something. Larger machines have one mark per PE,
//! or per several ones, and one line for the PEs of each of the smallest domains that are few enough. Domains
//! are nested or disjoint, so brackets never cross.

use super::look::{Role, fit, fit_right};
use crate::terminal::Name;
use crate::terminal::live::Look;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::top::{PeState, Top};
use corewise_core::topology::{DomainKind, Topology};
use ratatui::text::{Line, Span};
use std::collections::BTreeSet;

/// The least width of a column of PEs.
const COLUMN_MIN: usize = 38;

/// The width of the bar of a PE.
const BAR: usize = 10;

/// The columns of a line of many PEs beside their marks: label, share, and the busiest program.
const LABEL: usize = 22;
const BUSIEST: usize = 18;

/// How many levels of sharing are drawn as brackets.
const LEVELS: usize = 2;

/// Returns the machine in a few words.
pub fn words(top: &Top) -> String {
    let usable = top.pes.values().filter(|pe| pe.is_usable).count();
    let all = top.pes.len();
    let of = if usable == all { String::new() } else { format!("{usable} of ") };
    let kinds =
        top.topology.iter().filter(|machine| machine.kinds.len() > 1).flat_map(|machine| &machine.kinds);
    let kinds = kinds.map(|kind| format!("{} {}", kind.pes.len(), kind.name));
    let kinds: Vec<String> = kinds.collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    format!("{of}{all} PE{}{kinds}", if all == 1 { "" } else { "s" })
}

/// Returns a heading and the PEs in at most `most` lines.
pub fn lines(top: &Top, look: &Look, width: usize, most: usize) -> Vec<Line<'static>> {
    let most = most.saturating_sub(1).max(1);
    let order = in_order(top);
    let columns = order.len().div_ceil(most).max(1);
    if columns * COLUMN_MIN <= width || columns == 1 {
        one_by_one(top, look, &order, (width, columns))
    } else {
        in_groups(top, look, &order, (width, most))
    }
}

/// The PEs in logical order, then those that the machine's model does not know.
fn in_order(top: &Top) -> Vec<PeId> {
    let mut order = top.topology.as_ref().map_or_else(Vec::new, Topology::pes_in_logical_order);
    let known: CpuSet = order.iter().copied().collect();
    order.extend(top.pes.keys().filter(|pe| !known.contains(**pe)));
    order
}

/// A way in which the machine is divided: the domains of a kind, as sets of two or more PEs.
struct Division<'a> {
    kind: DomainKind,
    domains: Vec<&'a CpuSet>,
}

/// Returns the ways in which the machine is divided into several parts, the closest first, without those
/// that divide it as a closer one does.
fn divisions(top: &Top) -> Vec<Division<'_>> {
    let Some(machine) = &top.topology else { return Vec::new() };
    let kinds: BTreeSet<DomainKind> = machine.domains.iter().map(|domain| domain.kind).collect();
    let mut divisions: Vec<Division<'_>> = Vec::new();
    for kind in kinds {
        let domains = machine.domains(kind).map(|domain| &domain.pes).filter(|pes| pes.len() > 1);
        let domains: Vec<&CpuSet> = domains.filter(|pes| **pes != machine.pes).collect();
        if !domains.is_empty() && !divisions.iter().any(|closer| closer.domains == domains) {
            divisions.push(Division { kind, domains });
        }
    }
    divisions
}

/// What all PEs share.
fn shared_by_all(top: &Top) -> Vec<&'static str> {
    let Some(machine) = top.topology.as_ref().filter(|machine| machine.pes.len() > 1) else {
        return Vec::new();
    };
    let kinds: BTreeSet<DomainKind> =
        machine.domains.iter().filter(|domain| domain.pes == machine.pes).map(|domain| domain.kind).collect();
    kinds.into_iter().map(resource).collect()
}

fn resource(kind: DomainKind) -> &'static str {
    match kind {
        DomainKind::Core => "core",
        DomainKind::L1 => "L1",
        DomainKind::Module => "FPU module",
        DomainKind::L2 => "L2",
        DomainKind::Cluster => "cluster",
        DomainKind::L3 => "L3",
        DomainKind::Die => "die",
        DomainKind::NumaNode => "memory",
        DomainKind::Package => "package",
    }
}

fn one_by_one(
    top: &Top,
    look: &Look,
    order: &[PeId],
    (width, columns): (usize, usize),
) -> Vec<Line<'static>> {
    let divisions: Vec<Division<'_>> = divisions(top).into_iter().take(LEVELS).collect();
    let kinds = top.topology.as_ref().filter(|machine| machine.kinds.len() > 1);
    let height = order.len().div_ceil(columns);
    // One space between columns.
    let column = (width + 1) / columns - 1;
    let cell = |pe: PeId| -> Vec<Span<'static>> {
        // The outer brackets stand to the left of the inner ones.
        let brackets = divisions.iter().rev().map(|division| bracket(look, order, &division.domains, pe));
        let brackets: String = brackets.collect();
        let kind = kinds.and_then(|machine| machine.kinds.iter().find(|kind| kind.pes.contains(pe)));
        let kind = kind.map_or(String::new(), |kind| fit(&kind.name, 5));
        let label = format!("{:>4} {brackets}{kind}", pe.0);
        pe_cell(top, look, label, (pe, column))
    };
    let heading = heading(top, &divisions, look, width);
    let rows = (0..height).map(|row| {
        let pes = (0..columns).filter_map(|column| order.get(column * height + row));
        let mut spans: Vec<Span<'static>> = Vec::new();
        for pe in pes {
            if !spans.is_empty() {
                spans.push(Span::raw(" "));
            }
            spans.extend(cell(*pe));
        }
        Line::from(spans)
    });
    std::iter::once(heading).chain(rows).collect()
}

/// Returns the mark that joins a PE with those in the lines above and below it.
fn bracket(look: &Look, order: &[PeId], domains: &[&CpuSet], pe: PeId) -> char {
    let Some(domain) = domains.iter().find(|domain| domain.contains(pe)) else { return ' ' };
    let [first, middle, last] = look.brackets();
    let mut within = order.iter().filter(|pe| domain.contains(**pe));
    match (within.next() == Some(&pe), within.next_back() == Some(&pe)) {
        (true, _) => first,
        (false, true) => last,
        (false, false) => middle,
    }
}

fn heading(top: &Top, divisions: &[Division<'_>], look: &Look, width: usize) -> Line<'static> {
    let mut words = vec!["PEs and who runs there".to_owned()];
    let named: Vec<&str> = divisions.iter().rev().map(|division| resource(division.kind)).collect();
    if !named.is_empty() {
        let [first, _, last] = look.brackets();
        words.push(format!("{first}{last} share: {}", named.join(" > ")));
    }
    let all = shared_by_all(top);
    if !all.is_empty() {
        words.push(format!("all share: {}", all.join(", ")));
    }
    Line::styled(fit(&words.join("; "), width), look.style(Role::Heading))
}

fn pe_cell(top: &Top, look: &Look, label: String, (pe, width): (PeId, usize)) -> Vec<Span<'static>> {
    let Some(state) = top.pes.get(&pe) else { return vec![Span::raw(fit(&label, width))] };
    let head = format!("{label} ");
    let rest = width.saturating_sub(head.chars().count() + BAR + 6);
    if !state.is_usable && state.busy == 0.0 {
        let words = format!("{head}{} offline, or not allowed here", look.unusable());
        return vec![Span::styled(fit(&words, width), look.style(Role::Quiet))];
    }
    // Where there is room, the bar has its history beside it.
    let history = if rest > 50 { 20 } else { 0 };
    let rest = rest.saturating_sub(history);
    let bar = look.bar(state.busy, BAR) + &look.history(&state.history, 1.0, history);
    let share = format!("{:>4.0}% ", 100.0 * state.busy);
    let programs =
        if state.is_known { busiest(top, state) } else { format!("(new) {}", busiest(top, state)) };
    vec![Span::raw(head), Span::styled(bar, look.style(Role::Busy)), Span::raw(share + &fit(&programs, rest))]
}

/// The programs that run on a PE: the busiest by name, the threads of others as a number.
fn busiest(top: &Top, state: &PeState) -> String {
    const NAMED_MAX: usize = 2;
    let mut named: Vec<(&str, u32)> = Vec::new();
    let mut others = 0;
    for thread in state.who.iter().filter_map(|thread| top.threads.get(thread)) {
        let name = top.program_of(thread);
        match named.iter().position(|(of, _)| *of == name) {
            Some(at) => named[at].1 += 1,
            None if named.len() < NAMED_MAX => named.push((name, 1)),
            None => others += 1,
        }
    }
    let times = |count| if count > 1 { format!(" x{count}") } else { String::new() };
    let words: Vec<String> =
        named.into_iter().map(|(name, count)| format!("{}{}", Name(name), times(count))).collect();
    if others > 0 { format!("{} +{others}", words.join(", ")) } else { words.join(", ") }
}

/// A line of many PEs.
struct Group {
    label: String,
    pes: Vec<PeId>,
}

/// The closest domains that are few enough, else equal parts of the machine.
fn groups(top: &Top, order: &[PeId], most: usize) -> Vec<Group> {
    let divisions = divisions(top);
    let fits = |division: &&Division<'_>| {
        let covered: usize = division.domains.iter().map(|domain| domain.len()).sum();
        division.domains.len() <= most && covered == order.len()
    };
    let label = |name: &str, pes: &[PeId]| {
        let set: CpuSet = pes.iter().copied().collect();
        format!("{name} {set}")
    };
    match divisions.iter().find(fits) {
        Some(division) => division
            .domains
            .iter()
            .map(|domain| {
                let pes: Vec<PeId> = order.iter().copied().filter(|pe| domain.contains(*pe)).collect();
                Group { label: label(resource(division.kind), &pes), pes }
            })
            .collect(),
        None => order
            .chunks(order.len().div_ceil(most))
            .map(|pes| Group { label: label("PEs", pes), pes: pes.to_vec() })
            .collect(),
    }
}

fn in_groups(top: &Top, look: &Look, order: &[PeId], (width, most): (usize, usize)) -> Vec<Line<'static>> {
    let groups = groups(top, order, most);
    let room = width.saturating_sub(LABEL + BUSIEST + 8).max(8);
    let largest = groups.iter().map(|group| group.pes.len()).max().unwrap_or(1);
    let pes_per_mark = largest.div_ceil(room);
    let marks = largest.div_ceil(pes_per_mark);
    let each = if pes_per_mark == 1 { "one PE".to_owned() } else { format!("{pes_per_mark} PEs") };
    let words = format!("PEs: how busy each is (a mark is {each}), the mean, and the busiest program");
    let heading = Line::styled(fit(&words, width), look.style(Role::Heading));
    let lines = groups.iter().map(|group| {
        let states: Vec<&PeState> = group.pes.iter().filter_map(|pe| top.pes.get(pe)).collect();
        let shown: String = states.chunks(pes_per_mark).map(|states| mark(states, look)).collect();
        let busy = mean(&states);
        let busiest = states.iter().flat_map(|state| state.who.first());
        let busiest = busiest.filter_map(|thread| top.threads.get(thread));
        let busiest = busiest.max_by(|a, b| a.cpu.total_cmp(&b.cpu));
        let busiest = busiest.map_or("", |thread| top.program_of(thread));
        Line::from(vec![
            Span::raw(fit(&group.label, LABEL - 1) + "["),
            Span::styled(fit(&shown, marks), look.style(Role::Busy)),
            Span::raw(format!("]{}% ", fit_right(&format!("{:.0}", 100.0 * busy), 4))),
            Span::raw(fit(busiest, BUSIEST)),
        ])
    });
    std::iter::once(heading).chain(lines).collect()
}

fn mean(states: &[&PeState]) -> f64 {
    states.iter().fold(0.0, |sum, state| sum + state.busy) / states.len().max(1) as f64
}

fn mark(states: &[&PeState], look: &Look) -> char {
    let is_usable = states.iter().any(|state| state.is_usable);
    if is_usable { look.level(mean(states)) } else { look.unusable() }
}
