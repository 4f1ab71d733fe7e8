//! A machine drawn as a tree of text.
//!
//! Domains are nested or disjoint, so they form a tree. Two things keep a large machine on one screen: domains
//! of the same PEs stand on one line (`L2 2 MiB + module`), and neighbours that look alike are drawn once, with
//! their number in front and the PEs of each behind (`4 × package 0-3   0-15 | 16-31 | 32-47 | 48-63`).

use super::{Domain, DomainKind, Topology};
use crate::cpuset::CpuSet;
use std::fmt::Write;

/// Columns that the PE lists of one line may take before they are cut short.
const PES_COLUMNS_MAX: usize = 48;

/// The domains of one set of PEs, largest kind first, and what is within.
struct Node<'a> {
    domains: Vec<&'a Domain>,
    pes: CpuSet,
    children: Vec<Node<'a>>,
    /// What the whole subtree looks like, without indices: equal for subtrees that can be drawn as one.
    look: String,
}

impl Topology {
    /// The machine as a tree: caches with their sizes, FPU modules, kinds; PEs that the cpuset forbids are marked.
    pub fn draw(&self) -> String {
        let mut domains: Vec<&Domain> = self.domains.iter().collect();
        domains.sort_by_key(|d| (std::cmp::Reverse(d.pes.len()), d.pes.first(), std::cmp::Reverse(d.kind)));
        let mut text = format!("machine with {}", plural(self.pes.len(), "PE"));
        let forbidden = self.pes.difference(&self.allowed);
        if !forbidden.is_empty() {
            let _ = write!(text, ", forbidden: {forbidden}");
        }
        text.push('\n');
        draw_children(&self.nodes(&domains), "", &mut text);
        text
    }

    /// The outermost of the given domains (sorted: larger sets first) with everything within them.
    fn nodes<'a>(&self, domains: &[&'a Domain]) -> Vec<Node<'a>> {
        let mut nodes = Vec::new();
        let mut rest = domains.to_vec();
        while let Some(&outer) = rest.first() {
            let (inside, outside): (Vec<_>, Vec<_>) =
                rest.into_iter().partition(|domain| domain.pes.is_subset(&outer.pes));
            let (same, within): (Vec<_>, Vec<_>) = inside.into_iter().partition(|d| d.pes == outer.pes);
            let children = self.nodes(&within);
            let mut node = Node { domains: same, pes: outer.pes.clone(), children, look: String::new() };
            node.look = self.look(&node);
            nodes.push(node);
            rest = outside;
        }
        let logical = |node: &Node| node.domains.first().map(|domain| domain.logical);
        nodes.sort_by_key(|node| (node.domains.first().map(|d| std::cmp::Reverse(d.kind)), logical(node)));
        nodes
    }

    fn look(&self, node: &Node) -> String {
        let names: Vec<String> = node.domains.iter().map(|domain| label(domain)).collect();
        let mut look = names.join(" + ");
        if node.domains.iter().any(|domain| domain.kind == DomainKind::Core) {
            look += &self.core_details(&node.pes);
        }
        for child in &node.children {
            let _ = write!(look, "[{}]", child.look);
        }
        look
    }

    /// Of a core: number of PEs, kind where there is more than one, and how many PEs are forbidden.
    fn core_details(&self, pes: &CpuSet) -> String {
        let mut details = vec![plural(pes.len(), "PE")];
        if self.kinds.len() > 1 {
            let kinds = self.kinds.iter().filter(|kind| kind.pes.intersects(pes));
            details.extend(kinds.map(|kind| kind.name.clone()));
        }
        match pes.difference(&self.allowed).len() {
            0 => {}
            all if all == pes.len() => details.push("FORBIDDEN".to_owned()),
            some => details.push(format!("{some} FORBIDDEN")),
        }
        format!(" ({})", details.join(", "))
    }
}

fn draw_children(children: &[Node], indent: &str, text: &mut String) {
    let alike: Vec<&[Node]> = children.chunk_by(|a, b| a.look == b.look).collect();
    for (index, group) in alike.iter().enumerate() {
        let last = index + 1 == alike.len();
        let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        // The look of a node starts with its own label; what it contains follows in brackets.
        let own_look = group[0].look.split('[').next().unwrap_or_default();
        let times = if group.len() > 1 { format!("{} × ", group.len()) } else { String::new() };
        let _ = writeln!(text, "{indent}{branch}{times}{own_look}   {}", pe_lists(group));
        draw_children(&group[0].children, &format!("{indent}{below}"), text);
    }
}

/// The PEs of each node, shortened in the middle where they are many.
fn pe_lists(nodes: &[Node]) -> String {
    let lists: Vec<String> = nodes.iter().map(|node| short_list(&node.pes)).collect();
    let all = lists.join(" | ");
    match lists.as_slice() {
        [first, second, .., last] if all.len() > PES_COLUMNS_MAX => {
            format!("{first} | {second} | … | {last}")
        }
        _ => all,
    }
}

/// A kernel list, or `0-30:1/2` for PEs in equal steps: even and odd PEs are often the two packages.
fn short_list(pes: &CpuSet) -> String {
    let indices: Vec<u32> = pes.iter().map(|pe| pe.0).collect();
    match indices.as_slice() {
        [first, second, .., last] if indices.len() > 2 && second - first > 1 => {
            let step = second - first;
            let equal = indices.windows(2).all(|pair| pair[1] - pair[0] == step);
            if equal { format!("{first}-{last}:1/{step}") } else { pes.to_string() }
        }
        _ => pes.to_string(),
    }
}

fn label(domain: &Domain) -> String {
    let name = match domain.kind {
        DomainKind::Core => "core",
        DomainKind::L1 => "L1",
        DomainKind::Module => "FPU module",
        DomainKind::L2 => "L2",
        DomainKind::L3 => "L3",
        DomainKind::Die => "die",
        DomainKind::NumaNode => "NUMA node",
        DomainKind::Package => "package",
    };
    match domain.bytes {
        Some(bytes) => format!("{name} {}", size(bytes)),
        None => name.to_owned(),
    }
}

/// Bytes in the largest binary unit that leaves at least 1, with one decimal where it says something: not for
/// many GiB, because nodes of equal memory differ by what the kernel keeps for itself.
fn size(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let (unit, factor) = units.into_iter().find(|&(_, factor)| bytes >= factor).unwrap_or(("B", 1));
    let tenths = (bytes as f64 / factor as f64 * 10.0).round() as u64;
    if tenths.is_multiple_of(10) || (unit == "GiB" && tenths > 100) {
        format!("{} {unit}", (tenths + 5) / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bulldozer_is_drawn() {
        let text = "pack:2 l3:2(size=6MB) l2:4(size=2MB) module:1 l1:2(size=16kB) core:1 pu:1";
        let mut machine = Topology::synthetic(text).unwrap();
        insta::assert_snapshot!("bulldozer", machine.draw());
        machine.allowed = "0-4,6-31".parse().unwrap();
        insta::assert_snapshot!("bulldozer_with_a_forbidden_pe", machine.draw());
    }

    #[test]
    fn equal_steps_are_drawn_short() {
        for (list, expected) in [("0,2,4,6", "0-6:1/2"), ("0,2", "0,2"), ("0-3", "0-3"), ("0,2,5", "0,2,5")] {
            let pes: CpuSet = list.parse().unwrap();
            assert_eq!(short_list(&pes), expected);
            assert_eq!(expected.parse(), Ok(pes));
        }
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, expected) in [
            (1, "1 B"),
            (512, "512 B"),
            (49152, "48 KiB"),
            (1280 << 10, "1.3 MiB"),
            (126 << 30, "126 GiB"),
            ((126 << 30) - (400 << 20), "126 GiB"),
            (1 << 40, "1024 GiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }
}
