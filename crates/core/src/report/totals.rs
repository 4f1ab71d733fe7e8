//! Sums over the threads of one application.

use crate::observe::ThreadReading;
use crate::view::Usage;

/// CPU time, and each rate weighted by the CPU time of the threads for which it is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    cpu_ns: u64,
    fpu: Mean,
    vector: Mean,
    l2_misses_per_100_cycles: Mean,
    ipc: Mean,
}

#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>, weight: f64) {
        if let Some(value) = value {
            self.sum += value * weight;
            self.weight += weight;
        }
    }

    fn join(&mut self, other: &Mean) {
        self.sum += other.sum;
        self.weight += other.weight;
    }

    fn value(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

impl Totals {
    /// Adds the last reading of a thread.
    pub fn add(&mut self, reading: &ThreadReading) {
        self.cpu_ns += reading.cpu_ns;
        let Some(counters) = &reading.counters else { return };
        let (usage, weight) = (Usage::between(None, counters), reading.cpu_ns as f64);
        self.fpu.add(usage.fpu.map(|e| e.value), weight);
        self.vector.add(usage.vector.map(|e| e.value), weight);
        self.l2_misses_per_100_cycles.add(usage.l2_misses_per_100_cycles.map(|e| e.value), weight);
        self.ipc.add(usage.ipc.map(|e| e.value), weight);
    }

    /// Adds the sums over other threads.
    pub fn join(&mut self, other: &Totals) {
        self.cpu_ns += other.cpu_ns;
        self.fpu.join(&other.fpu);
        self.vector.join(&other.vector);
        self.l2_misses_per_100_cycles.join(&other.l2_misses_per_100_cycles);
        self.ipc.join(&other.ipc);
    }

    /// Returns CPU time, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        self.cpu_ns as f64 / 1e9
    }

    /// Returns FPU usage, 0..1.
    pub fn fpu(&self) -> Option<f64> {
        self.fpu.value()
    }

    /// Returns usage of the shared vector unit, 0..1.
    pub fn vector(&self) -> Option<f64> {
        self.vector.value()
    }

    /// Returns L2 misses per 100 cycles.
    pub fn l2_misses_per_100_cycles(&self) -> Option<f64> {
        self.l2_misses_per_100_cycles.value()
    }

    /// Returns instructions per cycle.
    pub fn ipc(&self) -> Option<f64> {
        self.ipc.value()
    }
}
