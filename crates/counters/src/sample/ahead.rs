//! What lies ahead of a sample where the code alone does not tell: behind returns, jump tables, function
//! pointers.
//!
//! Problem. The code ahead of a sampled instruction is known up to the first transfer to an address that
//! only the running program knows. To take nothing as known behind it for "no work" misses the
//! floating-point work of interpreters and of whatever calls through pointers; to leave such samples out
//! keeps those that met work before.
//!
//! Approach. Behind such a transfer the thread is where it could have been sampled as well. So the rest
//! of a window is like the beginning of the thread's other windows: with `met(i)` and `lost(i)`, the
//! mean probabilities that the thread's windows meet work, or lose the way, in their step `i`, a window
//! of `n` steps meets work with probability
//!
//! ```text
//! usual(n) = sum over i < n of met(i) + lost(i) * usual(n - i)
//! ```
//!
//! which is a renewal equation (Feller, "An Introduction to Probability Theory", volume 1, chapter
//! XIII), solved from small `n` to large. Windows cut short are so weighted as censored observations
//! are, not as empty ones.
//!
//! Limits. The place where a transfer leads may be unlike the thread's average. How much of a window was
//! taken from others is reported as its unseen share; the confidence of what is estimated is lower by that.

/// Steps that a window is divided into.
pub const STEPS: usize = 12;

/// Samples after which older ones count half: what a thread does changes.
const SAMPLES_MAX: f64 = 256.0;

/// Below this share of samples whose code is known for a step, nothing is known.
const KNOWN_MIN: f64 = 0.02;

/// Probabilities, by step, that a window meets one kind of work there, or loses the way before it has
/// met any.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Ahead {
    /// First meets work.
    pub met: [f32; STEPS],
    /// Goes where the code does not tell.
    pub lost: [f32; STEPS],
}

/// The mean of a thread's windows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usual {
    sum: Ahead,
    samples: f64,
}

impl Ahead {
    /// The share of the window that cannot be seen.
    pub fn unseen(&self) -> f64 {
        let rest = |(step, &lost): (usize, &f32)| f64::from(lost) * (STEPS - step) as f64 / STEPS as f64;
        self.lost.iter().enumerate().map(rest).sum()
    }
}

impl Ahead {
    /// Goes on, with the probabilities `exit` by step, to what lies `behind`.
    pub fn go_on(&mut self, exit: &[f32; STEPS], behind: &Ahead) {
        for step in (0..STEPS).filter(|&step| exit[step] > 0.0) {
            for later in step..STEPS {
                self.met[later] += exit[step] * behind.met[later - step];
                self.lost[later] += exit[step] * behind.lost[later - step];
            }
        }
    }

    /// Goes on, with the probabilities `exit` by step, to what is not known.
    pub fn lose(&mut self, exit: &[f32; STEPS]) {
        self.lost.iter_mut().zip(exit).for_each(|(lost, exit)| *lost += exit);
    }
}

impl Usual {
    /// Where windows go that begin like these: the solution of the equation, step by step. `None` as long
    /// as too little is known for that, of fewer than `samples_min`.
    pub fn profile(&self, samples_min: f64) -> Option<Ahead> {
        let usual = self.by_length().filter(|_| self.samples >= samples_min)?;
        let mut profile = Ahead::default();
        for step in 0..STEPS {
            profile.met[step] = (usual[step + 1] - usual[step]) as f32;
        }
        Some(profile)
    }

    /// Takes in a window; the probability that it meets work, `None` as long as too little is known for
    /// that.
    pub fn take(&mut self, ahead: &Ahead) -> Option<f64> {
        if self.samples >= SAMPLES_MAX {
            self.scale(0.5);
        }
        self.samples += 1.0;
        for step in 0..STEPS {
            self.sum.met[step] += ahead.met[step];
            self.sum.lost[step] += ahead.lost[step];
        }
        let met: f32 = ahead.met.iter().sum();
        let lost: f32 = ahead.lost.iter().sum();
        if lost == 0.0 {
            return Some(f64::from(met));
        }
        let usual = self.by_length()?;
        let rest = |(step, &lost): (usize, &f32)| f64::from(lost) * usual[STEPS - step];
        Some((f64::from(met) + ahead.lost.iter().enumerate().map(rest).sum::<f64>()).clamp(0.0, 1.0))
    }

    /// The solution of the equation, for windows of 0 to [`STEPS`] steps.
    fn by_length(&self) -> Option<[f64; STEPS + 1]> {
        let mean = |sum: f32| f64::from(sum) / self.samples;
        let known = 1.0 - mean(self.sum.lost[0]);
        if known < KNOWN_MIN {
            return None;
        }
        let mut usual = [0.0; STEPS + 1];
        for length in 1..=STEPS {
            let met: f32 = self.sum.met[..length].iter().sum();
            let later: f64 = (1..length).map(|step| mean(self.sum.lost[step]) * usual[length - step]).sum();
            // What is lost in the first step is like the whole again.
            usual[length] = (mean(met) + later) / known;
        }
        Some(usual)
    }

    fn scale(&mut self, by: f32) {
        self.samples *= f64::from(by);
        self.sum.met.iter_mut().chain(&mut self.sum.lost).for_each(|sum| *sum *= by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(met: &[(usize, f32)], lost: &[(usize, f32)]) -> Ahead {
        let mut ahead = Ahead::default();
        met.iter().for_each(|&(step, share)| ahead.met[step] = share);
        lost.iter().for_each(|&(step, share)| ahead.lost[step] = share);
        ahead
    }

    #[test]
    fn windows_cut_short_are_like_the_threads_others() {
        let work = ahead(&[(0, 1.0)], &[]);
        let none = ahead(&[], &[]);
        let at_return = ahead(&[], &[(0, 1.0)]);
        let mut usual = Usual::default();
        assert_eq!(usual.take(&at_return), None, "nothing is known of the thread yet");
        for window in [work, work, work, none] {
            usual.take(&window);
        }
        let rest = usual.take(&at_return).unwrap();
        assert!((rest - 0.75).abs() < 1e-6, "{rest}");
        assert!((at_return.unseen() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn an_interpreters_windows_are_continued_behind_its_jumps() {
        // Every third handler computes; each jumps to the next one in its third step.
        let computes = ahead(&[(1, 1.0)], &[]);
        let other = ahead(&[], &[(2, 1.0)]);
        let mut usual = Usual::default();
        let last = (0..300).map(|n| usual.take(if n % 3 == 0 { &computes } else { &other })).last();
        let others = last.flatten().unwrap();
        // Five handlers fit into the ten steps behind the jump.
        let expected = 1.0 - (2.0f64 / 3.0).powi(5);
        assert!((others - expected).abs() < 0.02, "{others}, not {expected}");
    }

    #[test]
    fn a_thread_that_changes_is_what_it_became() {
        let mut usual = Usual::default();
        for _ in 0..2000 {
            usual.take(&ahead(&[(0, 1.0)], &[]));
        }
        for _ in 0..2000 {
            usual.take(&ahead(&[], &[]));
        }
        let rest = usual.take(&ahead(&[], &[(0, 1.0)])).unwrap();
        assert!(rest < 0.01, "{rest}");
    }
}
