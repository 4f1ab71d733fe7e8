//! A machine profile as one HTML page and as single drawings.

mod figures;
mod tables;

#[cfg(test)]
mod tests;

use super::{comparisons::headline, words};
use crate::chart;
use crate::page::words::{Seconds, Share};
use crate::page::{self, known, text};
use corewise_core::profile::MachineProfile;
use maud::{Markup, html};

/// Renders the page.
pub fn render(profile: &MachineProfile) -> String {
    page::document(&title(profile), chart::STYLE, &body(profile))
}

/// Returns the page's drawings as files: names and contents.
pub fn drawings(profile: &MachineProfile) -> Vec<(String, String)> {
    let figures = figures::figures(profile).into_iter();
    figures.map(|figure| (format!("{}.svg", figure.file), figure.standalone(profile.evidence))).collect()
}

fn title(profile: &MachineProfile) -> String {
    let processor = profile.circumstances.processor.as_deref();
    processor.unwrap_or(&profile.reported.origin).to_owned()
}

fn body(profile: &MachineProfile) -> Markup {
    html! {
        (header(profile))
        (tables::machine(profile))
        @for figure in figures::figures(profile) {
            @let caption = format!("{} {}.", figure.caption, evidence(profile));
            (page::section(&figure.title, &html! { (figure.embedded()) (page::remark(caption)) }))
        }
        (page::list("Not measured", &words::missing(profile)))
        (page::list("Notes", &profile.circumstances.notes))
        (tables::deltas(profile))
        (tables::pairs(profile))
        (tables::speeds(profile))
        (tables::nas(profile))
    }
}

/// Returns the kind of evidence, which every figure states, as a sentence.
fn evidence(profile: &MachineProfile) -> String {
    let word = profile.evidence.to_string();
    word[..1].to_uppercase() + &word[1..]
}

fn header(profile: &MachineProfile) -> Markup {
    let about = &profile.circumstances;
    let facts = [
        ("Evidence", text(profile.evidence)),
        ("Machine", text(&profile.reported.origin)),
        ("When", known(about.unix_time.map(words::utc))),
        ("Duration", text(Seconds(about.seconds))),
        ("Kernel", known(about.kernel.as_ref())),
        ("Virtualisation", known(about.virtualisation.as_ref())),
        ("Frequency", known(about.frequency.as_ref())),
        ("Vector unit", known(about.vector_unit.as_ref())),
        ("Repetitions", text(format_args!("{} in {} passes", about.repetitions, about.passes))),
        ("Discarded", text(about.discarded)),
        ("Time lost to others", text(Share(about.lost_share))),
        ("corewise", text(&about.corewise)),
    ];
    let headline = html! {
        p.headline { (headline(profile)) }
        @if !profile.complete { p.headline { "Not everything that was planned was measured." } }
    };
    page::header("calibrate", &text(title(profile)), &facts, &headline)
}
