//! A machine profile as one HTML page and as single drawings, for people.

mod figures;
mod tables;

#[cfg(test)]
mod tests;

use crate::chart;
use crate::page::{
    self,
    markup::{Known, Seconds, Share, Text},
};
use crate::profile::{comparisons::verdict, words};
use corewise_core::profile::MachineProfile;
use std::fmt::{Display, Formatter, Result};

/// The page.
pub fn render(profile: &MachineProfile) -> String {
    page::document(&title(profile), chart::STYLE, Body(profile))
}

/// The page's drawings as files: names and contents.
pub fn drawings(profile: &MachineProfile) -> Vec<(String, String)> {
    let figures = figures::figures(profile).into_iter();
    figures.map(|figure| (format!("{}.svg", figure.file), figure.standalone(profile.evidence))).collect()
}

fn title(profile: &MachineProfile) -> String {
    let processor = profile.circumstances.processor.as_deref();
    processor.unwrap_or(&profile.reported.origin).to_owned()
}

struct Body<'a>(&'a MachineProfile);

impl Display for Body<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let profile = self.0;
        header(f, profile)?;
        write!(f, "{}", tables::Machine(profile))?;
        for figure in figures::figures(profile) {
            writeln!(f, "<section>\n<h2>{}</h2>\n<div class=\"scroll\">", Text(&figure.title))?;
            let (drawing, caption) = (figure.embedded(), Text(&figure.caption));
            writeln!(f, "{drawing}</div>\n<p class=\"quiet\">{caption} {}.</p>", evidence(profile))?;
            writeln!(f, "</section>")?;
        }
        page::list(f, "Not measured", &words::missing(profile))?;
        page::list(f, "Notes", &profile.circumstances.notes)?;
        write!(f, "{}{}{}", tables::Deltas(profile), tables::Pairs(profile), tables::Singles(profile))
    }
}

/// The word that every figure carries, as a sentence.
fn evidence(profile: &MachineProfile) -> String {
    let word = profile.evidence.to_string();
    word[..1].to_uppercase() + &word[1..]
}

fn header(f: &mut Formatter<'_>, profile: &MachineProfile) -> Result {
    let about = &profile.circumstances;
    writeln!(f, "<header>\n<p class=\"brand\">corewise calibrate</p>\n<h1>{}</h1>", Text(&title(profile)))?;
    let known = |text: &Option<String>| Known(text.as_deref().map(Text)).to_string();
    let repetitions = format!("{} in {} passes", about.repetitions, about.passes);
    let when = about.unix_time.map(words::utc);
    let facts: [(&str, &dyn Display); 12] = [
        ("Evidence", &profile.evidence),
        ("Machine", &Text(&profile.reported.origin)),
        ("When", &Known(when)),
        ("Duration", &Seconds(about.seconds)),
        ("Kernel", &known(&about.kernel)),
        ("Virtualisation", &known(&about.virtualisation)),
        ("Frequency", &known(&about.frequency)),
        ("Vector unit", &known(&about.vector_unit)),
        ("Repetitions", &repetitions),
        ("Thrown away", &about.discarded),
        ("Time lost to others", &Share(about.lost_share)),
        ("corewise", &Text(&about.corewise)),
    ];
    page::facts(f, &facts)?;
    writeln!(f, "<p class=\"verdict\">{}</p>", Text(&verdict(profile)))?;
    if !profile.complete {
        writeln!(f, "<p class=\"verdict\">Not everything that was planned was measured.</p>")?;
    }
    writeln!(f, "</header>")
}
