//! What the rounds of a loop hand on to each other.
//!
//! A value that is computed from itself, once around, gets on: a counter, a pointer that advances, a sum. It
//! is found by following which definitions (of registers and stack slots) reach which uses, and looking for
//! definitions that come back to themselves. Two kinds get nowhere. One is set to a fixed start again within
//! the loop: the index of a scan over several queues, when the scan is what repeats, and there is no wait
//! behind it that does without the scan. The other is a counter
//! of rounds: nothing but itself feeds it, and it feeds nothing but decisions, not the address of what is
//! read.

use super::graph::{Graph, Node};
use corewise_code::{Flow, Instruction, Store};
use rustc_hash::FxHashMap;

/// Registers that a called function gives back as they were, and the stack and frame pointers.
const PRESERVED: u32 = if cfg!(target_arch = "aarch64") { 0x3ff8_0000 } else { 0xf028 };
const STACK: u32 = if cfg!(target_arch = "aarch64") { 1 << 29 } else { 1 << 4 | 1 << 5 };

/// Something that holds a value: a register or a stack slot, of a function if it is the function's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Holder {
    Register(usize, u32),
    Slot(usize, u32, i32),
}

/// A set of definitions.
#[derive(Clone, PartialEq)]
struct Set(Vec<u64>);

impl Set {
    fn new(size: usize) -> Set {
        Set(vec![0; size.div_ceil(64)])
    }

    fn add(&mut self, member: usize) {
        self.0[member / 64] |= 1 << (member % 64);
    }

    fn holds(&self, member: usize) -> bool {
        self.0[member / 64] >> (member % 64) & 1 == 1
    }

    /// Whether there were new ones among them.
    fn add_all(&mut self, other: &Set) -> bool {
        let mut grows = false;
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            grows |= other & !*word != 0;
            *word |= other;
        }
        grows
    }

    fn meets(&self, other: &Set) -> bool {
        self.0.iter().zip(&other.0).any(|(word, other)| word & other != 0)
    }

    fn members(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            // The lowest member is taken out, one after the other.
            let rests = std::iter::successors(Some(word), |&rest| (rest != 0).then(|| rest & (rest - 1)));
            rests.take_while(|&rest| rest != 0).map(move |rest| index * 64 + rest.trailing_zeros() as usize)
        })
    }

    fn in_both(&self, other: &Set) -> Set {
        Set(self.0.iter().zip(&other.0).map(|(word, other)| word & other).collect())
    }
}

struct Definition {
    /// Index in [`Loop::members`].
    member: usize,
    holder: Holder,
}

/// The instructions of a loop with what they define and use.
struct Loop<'a> {
    graph: &'a Graph,
    members: &'a [usize],
    definitions: Vec<Definition>,
    /// For each member: what it uses, with the definitions that reach it.
    uses: Vec<Vec<(Holder, Set)>>,
    /// For each definition: those that it enters, directly or through others.
    enters: Vec<Set>,
}

/// Whether an instruction looks at something that others may change.
pub fn polls(instruction: &Instruction) -> bool {
    instruction.loads
        && instruction.flow != Flow::Return
        && !on_stack(instruction)
        && !matches!(instruction.flow, Flow::JumpThrough(_) | Flow::CallThrough(_))
}

fn on_stack(instruction: &Instruction) -> bool {
    instruction.slot.is_some() || (instruction.address != 0 && instruction.address & !STACK == 0)
}

/// The nodes of a loop that get on: without them, each of its rounds is like the one before.
pub fn lasting(graph: &Graph, members: &[usize]) -> Vec<usize> {
    let round = Loop::new(graph, members);
    let groups = round.groups();
    let mut lasting: Vec<usize> = (0..groups.len())
        .filter(|&group| match round.set_again(&groups[group]) {
            again if again.is_empty() => !round.may_count(&groups, group),
            again => round.is_address(&groups[group]) && round.waits_without(&groups[group], &again),
        })
        .flat_map(|group| round.members_of(&groups[group]))
        .collect();
    let varying = round.varying(groups.iter());
    let stores = |member: &usize| round.node(*member).instruction.store == Store::Data;
    let varies = |member: &usize| round.uses[*member].iter().any(|(_, reached)| reached.meets(&varying));
    lasting.extend((0..members.len()).filter(stores).filter(varies));
    lasting.into_iter().map(|member| members[member]).collect()
}

impl<'a> Loop<'a> {
    fn new(graph: &'a Graph, members: &'a [usize]) -> Loop<'a> {
        let mut definitions = Vec::new();
        for (member, &node) in members.iter().enumerate() {
            let defined = defines(&graph.nodes[node]);
            definitions.extend(defined.map(|holder| Definition { member, holder }));
        }
        let of_holder = of_holder(&definitions);
        let reaching = reaching(graph, members, &definitions, &of_holder);
        let uses = members.iter().zip(&reaching).map(|(&node, reaching)| {
            let reached = |holder: &Holder| of_holder.get(holder).map(|ours| ours.in_both(reaching));
            let or_none = |holder| (holder, reached(&holder).unwrap_or_else(|| Set::new(definitions.len())));
            uses(&graph.nodes[node]).map(or_none).collect()
        });
        let uses = uses.collect();
        let mut round = Loop { graph, members, definitions, uses, enters: Vec::new() };
        round.enters = round.entered();
        round
    }

    /// See [`Loop::enters`].
    fn entered(&self) -> Vec<Set> {
        let size = self.definitions.len();
        let mut directly = vec![Vec::new(); size];
        for (to, definition) in self.definitions.iter().enumerate() {
            for (_, reached) in &self.uses[definition.member] {
                reached.members().for_each(|from| directly[from].push(to));
            }
        }
        let from_each = (0..size).map(|from| {
            let mut entered = Set::new(size);
            let mut open = vec![from];
            while let Some(definition) = open.pop() {
                for &to in &directly[definition] {
                    if !entered.holds(to) {
                        entered.add(to);
                        open.push(to);
                    }
                }
            }
            entered
        });
        from_each.collect()
    }

    /// The definitions that come back to themselves, those together that do so through each other.
    fn groups(&self) -> Vec<Set> {
        let mut groups: Vec<Set> = Vec::new();
        for first in 0..self.definitions.len() {
            let entered = &self.enters[first];
            if !entered.holds(first) || groups.iter().any(|group| group.holds(first)) {
                continue;
            }
            let mut group = Set::new(self.definitions.len());
            let together = entered.members().filter(|&other| self.enters[other].holds(first));
            together.for_each(|other| group.add(other));
            groups.push(group);
        }
        groups
    }

    fn members_of(&self, group: &Set) -> Vec<usize> {
        group.members().map(|definition| self.definitions[definition].member).collect()
    }

    fn node(&self, member: usize) -> &Node {
        &self.graph.nodes[self.members[member]]
    }

    /// The members that set the group's value anew, from elsewhere.
    fn set_again(&self, group: &Set) -> Vec<usize> {
        let uses = self.members_of(group).into_iter().flat_map(|member| &self.uses[member]);
        uses.filter(|(_, reached)| reached.meets(group))
            .flat_map(|(_, reached)| reached.members().filter(|&definition| !group.holds(definition)))
            .map(|definition| self.definitions[definition].member)
            .collect()
    }

    /// Whether there is a way around that looks at something, and neither takes the group's steps nor sets
    /// it anew: then the wait is there, and the group's steps are work before it.
    fn waits_without(&self, group: &Set, again: &[usize]) -> bool {
        let mut allowed = vec![false; self.graph.nodes.len()];
        self.members.iter().for_each(|&node| allowed[node] = true);
        for member in self.members_of(group).iter().chain(again) {
            allowed[self.members[*member]] = false;
        }
        let looks = |&node: &usize| allowed[node] && polls(&self.graph.nodes[node].instruction);
        self.members.iter().copied().filter(looks).any(|node| self.graph.returns(node, &allowed))
    }

    /// What the group's values enter, and the group.
    fn all_from(&self, group: &Set) -> Set {
        let mut all = group.clone();
        for definition in group.members() {
            all.add_all(&self.enters[definition]);
        }
        all
    }

    /// Whether the group's values enter the address of memory that is read or written.
    fn is_address(&self, group: &Set) -> bool {
        let all = self.all_from(group);
        (0..self.members.len()).any(|member| {
            let Node { instruction, call, .. } = *self.node(member);
            let in_address =
                |holder: &Holder| registers(instruction.address, call).any(|register| register == *holder);
            !on_stack(&instruction)
                && self.uses[member].iter().any(|(holder, set)| in_address(holder) && set.meets(&all))
        })
    }

    /// Whether a group counts rounds, in a loop that looks at something. Where it looks at a whole range, the
    /// counter may be of work: a search that is repeated.
    fn may_count(&self, groups: &[Set], group: usize) -> bool {
        let any = |wanted: fn(&Instruction) -> bool| {
            (0..self.members.len()).any(|member| wanted(&self.node(member).instruction))
        };
        let scans = |other: &Set| !self.set_again(other).is_empty() && self.is_address(other);
        let waits = any(|instruction| instruction.waits);
        let others = groups.iter().enumerate().filter(|&(other, _)| other != group).map(|(_, other)| other);
        (waits || any(polls) && !groups.iter().any(scans))
            && self.counts_iterations(&groups[group], &self.varying(others), waits)
    }

    /// `others`: what varies in the loop besides the group. `waits`: whether the loop pauses, which says more
    /// than what it compares.
    fn counts_iterations(&self, group: &Set, others: &Set, waits: bool) -> bool {
        let all = self.all_from(group);
        let steps = |member: usize| self.uses[member].len() == 1;
        let uses = |member: &usize| self.uses[*member].iter().any(|(_, reached)| reached.meets(&all));
        let alone = |member: usize| {
            (waits && self.compares(member))
                || !self.uses[member].iter().any(|(_, reached)| reached.meets(others))
        };
        self.members_of(group).into_iter().all(steps)
            && (0..self.members.len()).filter(uses).all(alone)
            && self.decides(group)
            && !self.is_address(group)
    }

    fn compares(&self, member: usize) -> bool {
        let instruction = &self.node(member).instruction;
        instruction.writes == 0 && instruction.store == Store::None
    }

    /// Whether the values are compared, or a branch comes right behind their definition.
    fn decides(&self, group: &Set) -> bool {
        let all = self.all_from(group);
        let compared = |member: usize| {
            self.compares(member) && self.uses[member].iter().any(|(_, reached)| reached.meets(&all))
        };
        let is_branch = |node: usize| matches!(self.graph.nodes[node].instruction.flow, Flow::Branch(_));
        (0..self.members.len()).any(compared)
            || self
                .members_of(group)
                .into_iter()
                .any(|member| self.graph.next(self.members[member]).any(is_branch))
    }

    /// What may differ from round to round: what is looked at, the groups, and what is computed of these.
    fn varying<'s>(&self, groups: impl Iterator<Item = &'s Set>) -> Set {
        let mut varying = Set::new(self.definitions.len());
        for group in groups {
            varying.add_all(&self.all_from(group));
        }
        for (index, definition) in self.definitions.iter().enumerate() {
            if polls(&self.node(definition.member).instruction) {
                varying.add(index);
                varying.add_all(&self.enters[index]);
            }
        }
        varying
    }
}

/// The definitions of each holder.
fn of_holder(definitions: &[Definition]) -> FxHashMap<Holder, Set> {
    let mut of_holder: FxHashMap<Holder, Set> = FxHashMap::default();
    for (index, definition) in definitions.iter().enumerate() {
        of_holder.entry(definition.holder).or_insert_with(|| Set::new(definitions.len())).add(index);
    }
    of_holder
}

/// For each member, the definitions that reach it.
fn reaching(
    graph: &Graph,
    members: &[usize],
    definitions: &[Definition],
    of_holder: &FxHashMap<Holder, Set>,
) -> Vec<Set> {
    let size = definitions.len();
    let mut index = vec![None; graph.nodes.len()];
    members.iter().enumerate().for_each(|(at, &node)| index[node] = Some(at));
    let mut own = vec![Set::new(size); members.len()];
    for (definition, Definition { member, .. }) in definitions.iter().enumerate() {
        own[*member].add(definition);
    }
    let mut reaching = vec![Set::new(size); members.len()];
    let mut open: Vec<usize> = (0..members.len()).collect();
    while let Some(member) = open.pop() {
        let mut behind = reaching[member].clone();
        for holder in defines(&graph.nodes[members[member]]) {
            behind.0.iter_mut().zip(&of_holder[&holder].0).for_each(|(word, killed)| *word &= !killed);
        }
        behind.add_all(&own[member]);
        for next in graph.next(members[member]).filter_map(|next| index[next]) {
            if reaching[next].add_all(&behind) {
                open.push(next);
            }
        }
    }
    reaching
}

fn registers(mask: u32, call: usize) -> impl Iterator<Item = Holder> {
    let own = move |register: u32| if PRESERVED >> register & 1 == 1 { call } else { 0 };
    let members = (0..32).filter(move |register| mask >> register & 1 == 1);
    members.map(move |register| Holder::Register(own(register), register))
}

fn slot(node: &Node) -> Option<Holder> {
    node.instruction.slot.map(|displacement| Holder::Slot(node.call, node.instruction.address, displacement))
}

fn defines(node: &Node) -> impl Iterator<Item = Holder> {
    let stored = slot(node).filter(|_| node.instruction.store == Store::Stack);
    registers(node.instruction.writes, node.call).chain(stored)
}

fn uses(node: &Node) -> impl Iterator<Item = Holder> {
    // The address of a slot is the frame's: it does not enter the value.
    let frame = if on_stack(&node.instruction) { node.instruction.address } else { 0 };
    let loaded = slot(node).filter(|_| node.instruction.loads);
    registers(node.instruction.reads & !frame, node.call).chain(loaded)
}
