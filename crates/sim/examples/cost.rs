//! What simulating costs, by number of PEs and threads: a table, and a drawing of it.
//!
//! `cargo run --release -p corewise-sim --example cost -- docs/sim-cost.svg`. Each line is the best of five
//! runs in CPU time of this thread, which other programs disturb least; the start of all threads is part of
//! it. Memory is what the process held at most until then, so the sizes grow from line to line.

#[path = "../benches/mixture/mod.rs"]
mod mixture;

use corewise_core::time::Time;
use nix::time::{ClockId, clock_gettime};
use std::fmt::Write;
use std::fs;
use std::time::Duration;

const PES: [u32; 8] = [2, 4, 8, 16, 64, 128, 256, 512];
const THREADS_PER_PE: [u32; 4] = [1, 2, 4, 8];

/// One line of the table.
struct Line {
    pes: u32,
    threads: u32,
    events: u64,
    /// CPU time of one simulated second.
    seconds: f64,
    peak_mib: f64,
}

fn main() {
    println!("| PEs | threads | events | CPU time | simulated seconds a second | events a second | memory |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut lines = Vec::new();
    for pes in PES {
        // Fewer than 16 threads have none among them that wait.
        for per_pe in THREADS_PER_PE.into_iter().filter(|per_pe| pes * per_pe >= 16) {
            let line = measure(pes, pes * per_pe);
            let Line { threads, events, seconds, peak_mib, .. } = line;
            let (ms, rate, millions) = (1e3 * seconds, 1.0 / seconds, events as f64 / seconds / 1e6);
            print!("| {pes} | {threads} | {events} | {ms:.2} ms | {rate:.0} | {millions:.1} M ");
            println!("| {peak_mib:.0} MiB |");
            lines.push(line);
        }
    }
    if let Some(path) = std::env::args().nth(1) {
        fs::write(&path, drawing(&lines)).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}

/// The cheapest of five runs; small machines are simulated for longer.
fn measure(pes: u32, threads: u32) -> Line {
    let scenario = mixture::scenario(pes, threads);
    let simulated = (256 / pes).clamp(1, 32);
    let mut best = (f64::INFINITY, 0);
    for _ in 0..5 {
        let mut sim = mixture::started(&scenario);
        let before = cpu_seconds();
        sim.run_until(Time(u64::from(simulated) * 1_000_000_000));
        let seconds = (cpu_seconds() - before) / f64::from(simulated);
        best = if seconds < best.0 { (seconds, sim.events() / u64::from(simulated)) } else { best };
    }
    Line { pes, threads, events: best.1, seconds: best.0, peak_mib: peak_mib() }
}

/// CPU time of this thread so far.
fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    Duration::from(now).as_secs_f64()
}

/// The most memory that the process held so far.
fn peak_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim_end_matches("kB").trim().parse::<f64>().expect("a number") / 1024.0
}

/// CPU time against PEs, both logarithmic, a curve for each number of threads per PE.
fn drawing(lines: &[Line]) -> String {
    const COLOURS: [&str; 4] = ["#3f7fd6", "#e08a1e", "#2aa179", "#c2569a"];
    let x = |pes: f64| 70.0 + 60.0 * (pes / 2.0).log2();
    let y = |ms: f64| 320.0 - 70.0 * (ms / 0.1).log10();
    let mut svg =
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 660 380\" width=\"660\" height=\"380\" \
                   font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"660\" height=\"380\" \
                   fill=\"#fff\"/>\n<text x=\"70\" y=\"22\" font-size=\"14\">CPU time of a simulated second \
                   (measured)</text>\n"
            .to_owned();
    let mut put = |element: String| writeln!(svg, "{element}").expect("a String takes everything");
    for ms in [0.1, 1.0, 10.0, 100.0, 1000.0] {
        let y = y(ms);
        put(format!("<path d=\"M70 {y:.1}H550\" stroke=\"#ddd\"/>"));
        put(format!("<text x=\"62\" y=\"{:.1}\" text-anchor=\"end\">{ms} ms</text>", y + 4.0));
    }
    for pes in PES {
        let x = x(f64::from(pes));
        put(format!("<text x=\"{x:.1}\" y=\"340\" text-anchor=\"middle\">{pes}</text>"));
    }
    put("<text x=\"310\" y=\"362\" text-anchor=\"middle\">PEs</text>".to_owned());
    for (per_pe, colour) in THREADS_PER_PE.into_iter().zip(COLOURS) {
        let of_curve = lines.iter().filter(|line| line.threads == per_pe * line.pes);
        let points = of_curve.map(|line| (x(f64::from(line.pes)), y(line.seconds * 1e3)));
        let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        put(format!("<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"));
        let y = 60 + 18 * per_pe.ilog2();
        put(format!("<text x=\"80\" y=\"{y}\" fill=\"{colour}\">threads per PE: {per_pe}</text>"));
    }
    put("</svg>".to_owned());
    svg
}
