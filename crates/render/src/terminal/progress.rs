//! Progress of long work: one line on a terminal, nothing in a pipe.

use corewise_core::calibrate::Progress;
use indicatif::ProgressStyle;
use std::time::Duration;

/// Steps of the bar.
const STEPS: u64 = 1000;

/// The progress line on standard error. It disappears at the end.
pub struct ProgressBar(indicatif::ProgressBar);

impl ProgressBar {
    /// Starts without progress. In a pipe it stays invisible.
    pub fn start() -> ProgressBar {
        let bar = indicatif::ProgressBar::new(STEPS);
        // The template has no variable that could be wrong; without colours, like all output of corewise.
        let style = ProgressStyle::with_template("{bar:28} {percent:>3} %  {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        ProgressBar(bar)
    }

    /// Shows what is being done, for work of unknown length.
    pub fn message(&self, words: String) {
        self.0.set_message(words);
    }

    /// Shows the progress of a calibration.
    pub fn show(&self, progress: &Progress) {
        self.0.set_position((progress.done * STEPS as f64) as u64);
        let left = remaining(progress.remaining);
        self.0.set_message(format!("{left} left at most, pass {}: {}", progress.pass, progress.cell));
    }

    /// Shows the progress as a share, and what is being done.
    pub fn advance(&self, done: f64, words: String) {
        self.0.set_position((done * STEPS as f64) as u64);
        self.0.set_message(words);
    }

    /// Prints a permanent line above the progress line.
    pub fn say(&self, words: &str) {
        self.0.suspend(|| crate::terminal::message(words));
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// The progress line of work of unknown length. It disappears at the end.
pub struct StatusLine(indicatif::ProgressBar);

impl StatusLine {
    /// Starts without text. In a pipe it stays invisible.
    pub fn start() -> StatusLine {
        let line = indicatif::ProgressBar::new_spinner();
        // The template holds no variable that could be wrong.
        line.set_style(
            ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        StatusLine(line)
    }

    /// Sets the text.
    pub fn show(&self, words: String) {
        self.0.set_message(format!("corewise: {words}"));
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// `4 min 05 s`.
pub fn remaining(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_is_printed_in_minutes() {
        let printed = [0, 59, 60, 245].map(|seconds| remaining(Duration::from_secs(seconds)));
        assert_eq!(printed, ["0 s", "59 s", "1 min 00 s", "4 min 05 s"]);
    }
}
