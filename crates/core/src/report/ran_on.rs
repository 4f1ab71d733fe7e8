//! Where a thread ran, in bounded memory.
//!
//! Problem: one entry per interval and thread grows without bound. Approach: neighbouring spans on one PE
//! with about the same share are merged. Beyond [`SPANS_MAX`] spans, pairs of neighbours are merged, which
//! halves the resolution each time. The CPU time of all spans together stays exact.

use super::RanOn;

/// The maximum number of spans of one thread: more than a chart has columns.
pub const SPANS_MAX: usize = 512;

/// Spans are merged if their shares differ by at most this.
const ALIKE: f64 = 0.1;

/// Adds a span; spans come in order of time. A span in which the thread did not run is dropped.
pub fn push(spans: &mut Vec<RanOn>, span: RanOn) {
    if span.share <= 0.0 || span.to_ns <= span.from_ns {
        return;
    }
    match spans.last_mut() {
        Some(last)
            if last.to_ns == span.from_ns
                && last.pe == span.pe
                && (last.share - span.share).abs() <= ALIKE =>
        {
            *last = joined(last, &span);
        }
        _ => spans.push(span),
    }
    if spans.len() > SPANS_MAX {
        *spans =
            spans.chunks(2).map(|pair| pair.iter().skip(1).fold(pair[0], |a, b| joined(&a, b))).collect();
    }
}

/// Merges two spans, including the pause between them.
fn joined(first: &RanOn, second: &RanOn) -> RanOn {
    let ran_ns = |span: &RanOn| span.share * (span.to_ns - span.from_ns) as f64;
    RanOn {
        from_ns: first.from_ns,
        to_ns: second.to_ns,
        pe: first.pe.filter(|_| first.pe == second.pe),
        share: (ran_ns(first) + ran_ns(second)) / (second.to_ns - first.from_ns) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PeId;

    fn span(from_ns: u64, to_ns: u64, pe: u32, share: f64) -> RanOn {
        RanOn { from_ns, to_ns, pe: Some(PeId(pe)), share }
    }

    #[test]
    fn like_neighbours_are_one_span_and_others_are_not() {
        let mut spans = Vec::new();
        for next in [
            span(0, 10, 0, 1.0),
            span(10, 20, 0, 0.9),
            span(20, 30, 1, 0.9),
            span(30, 40, 1, 0.2),
            span(40, 50, 1, 0.0),
            span(50, 60, 1, 0.2),
        ] {
            push(&mut spans, next);
        }
        assert_eq!(
            spans,
            [span(0, 20, 0, 0.95), span(20, 30, 1, 0.9), span(30, 40, 1, 0.2), span(50, 60, 1, 0.2)]
        );
    }

    #[test]
    fn a_long_life_keeps_its_cpu_time_in_bounded_memory() {
        let mut spans = Vec::new();
        for at in 0..100_000 {
            push(&mut spans, span(10 * at, 10 * at + 10, at as u32 % 2, 0.5));
        }
        assert!(spans.len() <= SPANS_MAX, "{}", spans.len());
        let ran: f64 = spans.iter().map(|s| s.share * (s.to_ns - s.from_ns) as f64).sum();
        assert!((ran - 500_000.0).abs() < 1.0, "{ran}");
        assert!(spans.windows(2).all(|pair| pair[0].to_ns <= pair[1].from_ns));
        assert_eq!(spans[0].pe, None, "it was on two PEs");
    }
}
