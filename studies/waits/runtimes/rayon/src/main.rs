//! Rayon: so many parallel loops of some 50 µs on two threads: regions COUNT outside|inside. "outside" calls
//! from the main thread, which blocks until the pool's threads are done; "inside" runs all in the pool.
use rayon::prelude::*;

const N: usize = 65536;

fn regions(count: usize) -> f64 {
    let mut x = vec![0.0_f64; N];
    let mut sum = 0.0;
    for region in 0..count {
        x.par_chunks_mut(N / 8).enumerate().for_each(|(part, x)| {
            for (i, x) in x.iter_mut().enumerate() {
                *x = *x * 0.999 + (part * N / 8 + i) as f64 / (1.0 + *x * *x);
            }
        });
        sum += x[region % N];
    }
    sum
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let count = arguments[1].parse().unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2);
    if arguments[2] == "inside" {
        println!("{:.9}", pool.build().unwrap().install(|| regions(count)));
    } else {
        pool.build_global().unwrap();
        println!("{:.9}", regions(count));
    }
}
