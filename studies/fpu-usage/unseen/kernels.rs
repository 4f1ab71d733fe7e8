//! Kernels in Rust that the rules have not seen: rust NAME computes one of them for ever.
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hint::black_box;

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

enum Tree {
    Leaf(f64),
    Sum(Box<Tree>, Box<Tree>),
    Product(Box<Tree>, Box<Tree>),
}
impl Tree {
    fn grown(depth: u32, state: &mut u64) -> Tree {
        match (depth, random(state) % 2) {
            (0, _) => Tree::Leaf(0.5 + (random(state) % 100) as f64 / 100.0),
            (_, 0) => Tree::Sum(Box::new(Tree::grown(depth - 1, state)), Box::new(Tree::grown(depth - 1,
                    state))),
            _ => Tree::Product(Box::new(Tree::grown(depth - 1, state)), Box::new(Tree::grown(depth - 1,
                    state))),
        }
    }
    fn value(&self) -> f64 {
        match self {
            Tree::Leaf(value) => *value,
            Tree::Sum(left, right) => left.value() + right.value(),
            Tree::Product(left, right) => left.value() * right.value(),
        }
    }
}

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    let mut state = 88172645463325252u64;
    let state = &mut state;
    match name.as_str() {
        "trees" => {
            let tree = Tree::grown(12, state);
            loop {
                black_box(tree.value());
            }
        }
        "maps" => loop {
            let mut map = HashMap::new();
            for _ in 0..50_000 {
                *map.entry(random(state) % 5000).or_insert(0u64) += 1;
            }
            black_box(map.len());
        },
        "heap" => loop {
            let mut heap = BinaryHeap::new();
            for _ in 0..20_000 {
                heap.push(random(state) % 100_000);
            }
            while let Some(top) = heap.pop() {
                black_box(top);
            }
        },
        "statistics" => {
            let values: Vec<f64> = (0..10_000).map(|_| random(state) as f64 / 1e19).collect();
            loop {
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64;
                black_box(variance.sqrt());
            }
        }
        "closures" => {
            let steps: Vec<Box<dyn Fn(f64) -> f64>> = (0..100)
                .map(|i| -> Box<dyn Fn(f64) -> f64> {
                    match i % 3 {
                        0 => Box::new(|x| x * 0.9),
                        1 => Box::new(move |x| x + i as f64),
                        _ => Box::new(|x: f64| x.abs().sqrt()),
                    }
                })
                .collect();
            loop {
                black_box(steps.iter().fold(1.0, |x, step| step(x)));
            }
        }
        "format" => loop {
            let n = random(state);
            black_box(format!("{n} {:x} {:>10}", n >> 7, n % 1000));
        },
        "queue" => loop {
            let mut queue = VecDeque::new();
            for i in 0..100_000u64 {
                queue.push_back(random(state));
                if i % 3 == 0 {
                    black_box(queue.pop_front());
                }
            }
        },
        _ => std::process::exit(2),
    }
}
