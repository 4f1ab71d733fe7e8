//! Kernels of programs that the rules have not seen, in Rust: one of them for ever.
use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

fn btree(seed: &mut u64) {
    let mut map = BTreeMap::new();
    for _ in 0..50_000 {
        *map.entry(random(seed) % 20_000).or_insert(0u32) += 1;
    }
    black_box(map.len());
}

fn words(seed: &mut u64) {
    let text: Vec<String> = (0..5000).map(|_| format!("w{}", random(seed) % 999)).collect();
    let text = text.join(" ");
    let mut counts: HashMap<&str, u32> = HashMap::new();
    for word in text.split(' ') {
        *counts.entry(word).or_default() += 1;
    }
    black_box(counts.len());
}

trait Filter {
    fn apply(&mut self, sample: f64) -> f64;
}
struct Gain(f64);
struct Pole(f64, f64);
impl Filter for Gain {
    fn apply(&mut self, sample: f64) -> f64 {
        sample * self.0
    }
}
impl Filter for Pole {
    fn apply(&mut self, sample: f64) -> f64 {
        self.1 = self.0 * self.1 + (1.0 - self.0) * sample;
        self.1
    }
}

fn filters(seed: &mut u64) {
    let mut chain: Vec<Box<dyn Filter>> =
        vec![Box::new(Gain(1.1)), Box::new(Pole(0.9, 0.0)), Box::new(Gain(0.9)), Box::new(Pole(0.5, 0.0))];
    for _ in 0..100_000 {
        let sample = random(seed) as i32 as f64;
        black_box(chain.iter_mut().fold(sample, |sample, filter| filter.apply(sample)));
    }
}

fn numbers(seed: &mut u64) {
    let text: Vec<String> = (0..2000).map(|_| format!("{:.4}", random(seed) as f64 / 1e15)).collect();
    for _ in 0..20 {
        black_box(text.iter().map(|word| word.parse::<f64>().unwrap()).sum::<f64>());
    }
}

fn matrix(seed: &mut u64) {
    const N: usize = 96;
    let a: Vec<f32> = (0..N * N).map(|_| random(seed) as f32).collect();
    let mut c = vec![0f32; N * N];
    for i in 0..N {
        for k in 0..N {
            for j in 0..N {
                c[i * N + j] += a[i * N + k] * a[k * N + j];
            }
        }
    }
    black_box(c);
}

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    let kernel = match name.as_str() {
        "btree" => btree,
        "words" => words,
        "filters" => filters,
        "numbers" => numbers,
        "matrix" => matrix,
        _ => panic!("no such kernel"),
    };
    let mut seed = 88_172_645_463_325_252;
    loop {
        kernel(&mut seed);
    }
}
