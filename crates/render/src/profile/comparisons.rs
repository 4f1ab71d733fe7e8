//! The comparisons of a profile's Δs: the series of its figures.

use crate::profile::words;
use corewise_core::profile::{Delta, MachineProfile, Measurement, PairResult, Preference, Subject};

/// The maximum number of series whose colours can be distinguished.
const SERIES_MAX: usize = 6;

/// Close against distant, or together against alone.
pub struct Comparison {
    /// `same core against same L3`.
    pub name: String,
    /// Whether the comparison is against running alone.
    pub alone: bool,
    /// One entry for each workload.
    pub cells: Vec<Cell>,
}

/// One Δ.
pub struct Cell {
    /// The workload.
    pub subject: Subject,
    /// The Δ.
    pub delta: Measurement,
    /// The preference; `None` against running alone, where there is no choice.
    pub preference: Option<Preference>,
}

impl Cell {
    /// Returns whether the noise is larger than the value, even where there is no choice.
    pub fn is_uncertain(&self) -> bool {
        Preference::of(&self.delta) == Preference::Unknown
    }
}

impl Comparison {
    /// Returns the Δ of one workload.
    pub fn cell(&self, subject: Subject) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.subject == subject)
    }
}

/// Returns the comparisons of classes, neighbouring ones first; or against running alone if there is no Δ
/// between classes.
pub fn comparisons(profile: &MachineProfile) -> Vec<Comparison> {
    let mut pairs: Vec<(usize, usize)> = profile.deltas.iter().map(|d| (d.close, d.distant)).collect();
    pairs.sort_by_key(|&(close, distant)| (distant.saturating_sub(close), close));
    pairs.dedup();
    if pairs.is_empty() {
        let all = (0..profile.classes.len()).map(|class| against_alone(profile, class));
        return all.filter(|comparison| !comparison.cells.is_empty()).collect();
    }
    pairs.into_iter().take(SERIES_MAX).map(|(close, distant)| between(profile, close, distant)).collect()
}

fn between(profile: &MachineProfile, close: usize, distant: usize) -> Comparison {
    let of_pair = profile.deltas.iter().filter(|d| (d.close, d.distant) == (close, distant));
    Comparison {
        name: format!("{} against {}", words::class(profile, close), words::class(profile, distant)),
        alone: false,
        cells: of_pair
            .map(|d| Cell { subject: d.subject, delta: d.delta, preference: Some(d.preference) })
            .collect(),
    }
}

fn against_alone(profile: &MachineProfile, class: usize) -> Comparison {
    let of_class = profile.pairs.iter().filter(|pair| pair.class == class);
    Comparison {
        name: format!("{} against alone", words::class(profile, class)),
        alone: true,
        cells: of_class
            .filter_map(|pair| {
                let subject = Subject::Workload(pair.workload);
                Some(Cell { subject, delta: pair.delta_alone?, preference: None })
            })
            .collect(),
    }
}

/// Summarises a calibration in one sentence: whether it matters where threads run, and how much at most.
pub fn headline(profile: &MachineProfile) -> String {
    let begin = if profile.complete { "" } else { "as far as was measured, " };
    let sentence = match profile.classes.len() {
        0 if profile.reported.pes.len() < 2 => "with a single PE there is nothing to place".to_owned(),
        0 => "no pair of PEs was measured, so nothing is known of what they share".to_owned(),
        _ if profile.deltas.is_empty() => alike(profile),
        _ => different(profile),
    };
    let sentence = format!("{begin}{sentence}{}", slow_pes(profile));
    let mut letters = sentence.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// Describes a machine whose pairs of PEs are all alike: there is no choice, only a cost.
fn alike(profile: &MachineProfile) -> String {
    let costly =
        |pair: &&PairResult| pair.delta_alone.is_some_and(|d| Preference::of(&d) == Preference::Distant);
    let slowdown = |pair: &PairResult| pair.slowdowns.map_or(1.0, |(a, b)| a.value.max(b.value));
    let worst = profile.pairs.iter().filter(costly).max_by(|a, b| slowdown(a).total_cmp(&slowdown(b)));
    let cost = match worst {
        Some(pair) => format!(
            "two busy neighbours take at most {:.2} times as long as alone ({}{})",
            slowdown(pair),
            pair.workload,
            pair.delta_alone.map_or(String::new(), |delta| format!(", Δ {:+.2}", delta.value))
        ),
        None => {
            "nothing that two busy neighbours share costs them anything that stands out of the noise".into()
        }
    };
    format!("all pairs of PEs are alike, so no placement is better than another; {cost}")
}

/// Describes a machine where some pairs share more than others: the maximum cost and gain.
fn different(profile: &MachineProfile) -> String {
    let of = |preference| profile.deltas.iter().filter(move |delta| delta.preference == preference);
    let by_size = |a: &&Delta, b: &&Delta| a.delta.value.abs().total_cmp(&b.delta.value.abs());
    let reported = |word: &str, delta: &Delta| {
        let (close, distant) = (words::class(profile, delta.close), words::class(profile, delta.distant));
        let (gain, value) = (percent(delta.delta.value.abs()), delta.delta.value);
        let subject = delta.subject;
        format!("{word} is up to {gain} faster ({subject}, Δ {value:+.2}, {close} against {distant})")
    };
    let apart = of(Preference::Distant).max_by(by_size).map(|delta| reported("apart", delta));
    let together = of(Preference::Close).max_by(by_size).map(|delta| reported("close together", delta));
    let found: Vec<String> = apart.into_iter().chain(together).collect();
    if found.is_empty() {
        let count = profile.deltas.len();
        return format!(
            "where threads run makes no difference that stands out of the noise ({count} comparisons)"
        );
    }
    format!("it matters where threads run: {}", found.join("; "))
}

/// Describes PEs that differ in speed.
fn slow_pes(profile: &MachineProfile) -> String {
    let slowest = profile.speeds.iter().min_by(|a, b| a.relative.high.total_cmp(&b.relative.high));
    match slowest {
        Some(speed) if speed.relative.high < SLOW_BELOW => format!(
            "; the slowest PE, {}, has {} of the fastest one's speed ({})",
            speed.pe,
            percent(speed.relative.value),
            speed.kernel.name()
        ),
        _ => String::new(),
    }
}

/// A PE that is certainly slower than this share of the fastest is mentioned.
const SLOW_BELOW: f64 = 0.95;

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::fixture;

    #[test]
    fn a_profile_is_summed_up_in_one_sentence() {
        let two = fixture::two_pes();
        assert_eq!(
            headline(&two),
            "All pairs of PEs are alike, so no placement is better than another; two busy neighbours take at \
             most 3.06 times as long as alone (read 256 KiB, Δ -2.06)."
        );
        let mut noisy = two;
        for pair in &mut noisy.pairs {
            pair.delta_alone = pair.delta_alone.map(|d| Measurement { low: -0.5, high: 0.5, ..d });
        }
        assert!(headline(&noisy).contains("nothing that two busy neighbours share"), "{}", headline(&noisy));
    }

    #[test]
    fn what_is_smaller_than_its_noise_is_faint_also_where_there_is_no_choice() {
        let mut profile = fixture::two_pes();
        let is_faint = |profile: &MachineProfile| comparisons(profile)[0].cells[0].is_uncertain();
        assert!(!is_faint(&profile));
        let first = profile.pairs.iter_mut().find(|pair| pair.delta_alone.is_some()).unwrap();
        first.delta_alone = Some(Measurement { value: 0.1, low: -0.3, high: 0.5, repetitions: 5 });
        assert!(is_faint(&profile));
    }
}
