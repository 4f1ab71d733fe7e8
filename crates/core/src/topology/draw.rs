//! Draws a machine as a text tree.
//!
//! Domains are nested or disjoint, so they form a tree. Two rules keep a large machine on one screen: domains
//! of the same PEs are drawn on one line (`L2 2 MiB + FPU module`), and neighbours that look alike are drawn
//! once, with their number in front and the PEs of each at the end (`2 × package   0-15 | 16-31`).

use super::{Domain, DomainKind, Topology};
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The number of columns for the PE lists of one line, beyond which they are shortened.
const PES_COLUMNS_MAX: usize = 48;

/// The domains of one set of PEs, largest kind first, and its children.
struct Node<'a> {
    domains: Vec<&'a Domain>,
    /// Indices in the list of nodes.
    children: Vec<usize>,
    /// The appearance of the whole subtree without indices; subtrees with equal looks are drawn once.
    look: String,
}

impl Node<'_> {
    fn pes(&self) -> &CpuSet {
        &self.domains[0].pes
    }
}

impl Topology {
    /// Returns the machine as a tree with cache sizes, FPU modules and kinds. PEs and memory nodes that the
    /// cpuset forbids are marked.
    pub fn draw(&self) -> String {
        let mut text = format!("machine with {}", plural(self.pes.len(), "PE"));
        let forbidden = self.pes.difference(&self.allowed);
        if !forbidden.is_empty() {
            let _ = write!(text, ", forbidden: {forbidden}");
        }
        text.push('\n');
        let (mut nodes, roots) = self.tree();
        // Children come after their parent, so going backwards their looks are ready first.
        for index in (0..nodes.len()).rev() {
            nodes[index].look = self.look(&nodes[index], &nodes);
        }
        draw_children(&nodes, &roots, "", &mut text);
        text
    }

    /// Returns every node, parents before children, and the indices of the outermost ones.
    fn tree(&self) -> (Vec<Node<'_>>, Vec<usize>) {
        let mut domains: Vec<&Domain> = self.domains.iter().collect();
        domains.sort_by_key(|d| (Reverse(d.pes.len()), Reverse(d.kind), d.logical));
        let (mut nodes, mut roots): (Vec<Node>, Vec<usize>) = (Vec::new(), Vec::new());
        // The innermost node so far of each PE. Larger domains come first, so it is the parent of the next
        // one.
        let mut innermost: BTreeMap<PeId, usize> = BTreeMap::new();
        for domain in domains {
            let parent = domain.pes.first().and_then(|pe| innermost.get(&pe).copied());
            if let Some(parent) = parent.filter(|&parent| nodes[parent].pes() == &domain.pes) {
                nodes[parent].domains.push(domain);
                continue;
            }
            let place = nodes.len();
            nodes.push(Node { domains: vec![domain], children: Vec::new(), look: String::new() });
            parent.map_or(&mut roots, |parent| &mut nodes[parent].children).push(place);
            innermost.extend(domain.pes.iter().map(|pe| (pe, place)));
        }
        let order = |&place: &usize, nodes: &[Node]| {
            let outer = nodes[place].domains[0];
            (Reverse(outer.kind), outer.logical)
        };
        roots.sort_by_key(|place| order(place, &nodes));
        for index in 0..nodes.len() {
            let mut children = std::mem::take(&mut nodes[index].children);
            children.sort_by_key(|place| order(place, &nodes));
            nodes[index].children = children;
        }
        (nodes, roots)
    }

    fn look(&self, node: &Node, nodes: &[Node]) -> String {
        let names: Vec<String> = node.domains.iter().map(|domain| label(domain)).collect();
        let mut look = names.join(" + ");
        if node.domains.iter().any(|domain| domain.kind == DomainKind::Core) {
            look += &self.core_details(node.pes());
        }
        for alike in groups(nodes, &node.children) {
            let _ = write!(look, "[{} × {}]", alike.len(), nodes[alike[0]].look);
        }
        look
    }

    /// Returns the details of a core: number of PEs, kind if there is more than one, and number of forbidden
    /// PEs.
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

/// Groups neighbours that look alike.
fn groups<'a>(nodes: &[Node], places: &'a [usize]) -> Vec<&'a [usize]> {
    places.chunk_by(|&a, &b| nodes[a].look == nodes[b].look).collect()
}

fn draw_children(nodes: &[Node], places: &[usize], indent: &str, text: &mut String) {
    let groups = groups(nodes, places);
    for (index, alike) in groups.iter().enumerate() {
        let last = index + 1 == groups.len();
        let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let first = &nodes[alike[0]];
        // The look of a node starts with its own label; its contents follow in brackets.
        let own_look = first.look.split('[').next().unwrap_or_default();
        let times = if alike.len() > 1 { format!("{} × ", alike.len()) } else { String::new() };
        let _ = writeln!(text, "{indent}{branch}{times}{own_look}   {}", pe_lists(nodes, alike));
        draw_children(nodes, &first.children, &format!("{indent}{below}"), text);
    }
}

/// Returns the PEs of each node, shortened in the middle if there are many.
fn pe_lists(nodes: &[Node], places: &[usize]) -> String {
    let lists: Vec<String> = places.iter().map(|&place| short_list(nodes[place].pes())).collect();
    let all = lists.join(" | ");
    match lists.as_slice() {
        [first, second, .., last] if all.len() > PES_COLUMNS_MAX => {
            format!("{first} | {second} | … | {last}")
        }
        _ => all,
    }
}

/// Returns a kernel list, or `0-30:1/2` for PEs in equal steps: even and odd PEs are often the two packages.
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
        DomainKind::Cluster => "cluster",
        DomainKind::L3 => "L3",
        DomainKind::Die => "die",
        DomainKind::NumaNode => "NUMA node",
        DomainKind::Package => "package",
    };
    let bytes = domain.bytes.map_or(String::new(), |bytes| format!(" {}", size(bytes)));
    let forbidden = if domain.forbidden { " (FORBIDDEN)" } else { "" };
    format!("{name}{bytes}{forbidden}")
}

/// Formats bytes in the largest binary unit that gives at least 1, with one decimal if it is meaningful. It
/// is omitted for many GiB, since nodes of equal memory differ by what the kernel reserves.
pub fn size(bytes: u64) -> String {
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
