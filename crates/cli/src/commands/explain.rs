//! `corewise explain`: explains in words why threads are where they are.

use crate::report_file;
use anyhow::{Result, bail};
use corewise_core::report::{Report, ThreadReport};
use corewise_render::report::explanation;
use corewise_render::report::programs::Labels;
use corewise_render::terminal::{Name, print};
use std::path::PathBuf;

/// The number of busiest threads to suggest if the requested one is not listed.
const NAMED_MAX: usize = 5;

/// Explain a report: why threads were where they were, and whether it helped.
///
/// It also tells what was not done, and why. A report is made by `corewise run --report FILE.json`, or of a
/// recording by `corewise replay`.
#[derive(Debug, clap::Args)]
pub struct Explain {
    /// The report
    #[arg(value_name = "REPORT")]
    file: PathBuf,
    /// One thread, with everything that was decided about it
    #[arg(long, value_name = "TID", value_parser = crate::values::whole(1..=u32::MAX))]
    tid: Option<u32>,
}

impl Explain {
    /// Explains the report; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        let report = report_file::read(&self.file)?;
        let text = match self.tid {
            None => explanation::of_run(&report),
            Some(tid) => match explanation::of_thread(&report, tid) {
                Some(text) => text,
                None => bail!("{} lists no thread {tid}: {}", self.file.display(), listed(&report)),
            },
        };
        print(&text)?;
        Ok(0)
    }
}

/// Describes which threads the report lists.
fn listed(report: &Report) -> String {
    let labels = Labels::of(report);
    let name = |thread: &ThreadReport| format!("{} {}", Name(&labels.label(thread)), thread.tid);
    let named: Vec<String> = report.threads.iter().take(NAMED_MAX).map(name).collect();
    let summed_up: u64 = report.more_threads.iter().map(|group| group.threads).sum();
    let mut text = match report.threads.len() {
        0 => "it lists none".to_owned(),
        1..=NAMED_MAX => format!("there are {}", named.join(", ")),
        all => format!("there are {all}, the busiest are {}", named.join(", ")),
    };
    if summed_up > 0 {
        text += &format!("; only sums are kept of {summed_up} that ended after little work");
    }
    text
}
