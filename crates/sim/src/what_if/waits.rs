//! How long threads wait once they and others have become faster or slower.
//!
//! In the recording, in a window of some intervals, thread i wanted a PE for `r_i` and waited beside others
//! for `w_i`. Let `g_i` be the factor by which the time that i wants a PE has changed. The busiest thread
//! leads: the window grows by `G = max(g_i r_i) / max(r_i)`, and i now waits for `G (r_i + w_i) - g_i r_i`,
//! or not at all. This models a barrier at the end of each window, and is exact for fork-join programs whose
//! loops are short compared to it. A thread that never waited waits for no other. A wide window cannot
//! distinguish a serial part from the parallel one beside it; a narrow one cannot tell that the thread that
//! waits now worked a moment ago.

use super::history::{Histories, History};
use corewise_core::ids::AppId;
use std::collections::BTreeMap;

/// The waits of one thread, in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Waits {
    /// The wait before it begins.
    pub start_ns: f64,
    /// The wait in each of its segments.
    pub segments_ns: Vec<f64>,
}

/// Returns the recorded waits.
pub fn recorded(histories: &Histories) -> Vec<Waits> {
    let nothing = vec![1.0; histories.threads.len()];
    following(histories, &nothing, 1, &vec![false; histories.threads.len()])
}

/// Returns the waits of all threads, computed over `window` intervals at a time. `growth` is g of each
/// thread; the waits of `rigid` threads keep their durations.
pub fn following(histories: &Histories, growth: &[f64], window: usize, rigid: &[bool]) -> Vec<Waits> {
    let led = led(histories, growth, window);
    let of = |(index, thread): (usize, &History)| {
        let led = &led[&thread.app];
        let factors = if rigid[index] { Vec::new() } else { factors(thread, growth[index], led, window) };
        let factor = |interval: usize| factors.get(interval / window).copied().unwrap_or(1.0);
        let segments = thread.segments.iter();
        let segments_ns = segments.map(|s| s.wait.idle_ns + factor(s.interval) * s.wait.beside_ns);
        let first = thread.segments[0].interval;
        let before = histories.active[&thread.app][..first].iter().enumerate();
        let before = before.map(|(k, ns)| if rigid[index] { *ns } else { ns * led[k / window] });
        let start_ns = thread.start.idle_ns + before.sum::<f64>() + factor(first) * thread.start.beside_ns;
        Waits { start_ns, segments_ns: segments_ns.collect() }
    };
    histories.threads.iter().enumerate().map(of).collect()
}

/// Returns the factors by which the waits of a thread grow, by window.
fn factors(thread: &History, growth: f64, led: &[f64], window: usize) -> Vec<f64> {
    let mut wanted = vec![0.0; led.len()];
    let mut waited = wanted.clone();
    waited[thread.segments[0].interval / window] += thread.start.beside_ns;
    for segment in &thread.segments {
        wanted[segment.interval / window] += segment.wanted_ns as f64;
        waited[segment.interval / window] += segment.wait.beside_ns;
    }
    let of = |((wanted, waited), led): ((f64, f64), &f64)| {
        if waited > 0.0 { ((led * (wanted + waited) - growth * wanted) / waited).max(0.0) } else { 1.0 }
    };
    wanted.into_iter().zip(waited).zip(led).map(of).collect()
}

/// Returns the factors by which the windows of each application grow.
fn led(histories: &Histories, growth: &[f64], window: usize) -> BTreeMap<AppId, Vec<f64>> {
    let of = |app: &AppId, intervals: usize| {
        let mut most = vec![(0.0_f64, 0.0_f64); intervals.div_ceil(window)];
        for (thread, growth) in histories.threads.iter().zip(growth).filter(|(thread, _)| thread.app == *app)
        {
            for part in thread.segments.chunk_by(|a, b| a.interval / window == b.interval / window) {
                let wanted: f64 = part.iter().map(|segment| segment.wanted_ns as f64).sum();
                let most = &mut most[part[0].interval / window];
                *most = (most.0.max(wanted), most.1.max(growth * wanted));
            }
        }
        most.into_iter().map(|(before, after)| if before > 0.0 { after / before } else { 1.0 }).collect()
    };
    histories.active.iter().map(|(app, active)| (*app, of(app, active.len()))).collect()
}
