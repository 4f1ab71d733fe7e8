//! A comparison as one HTML page, on [`crate::page`]: the ratios with their intervals and the noise floor,
//! the times of each variant, and every run in its order, so that drift and outliers are seen.

mod plots;

#[cfg(test)]
mod tests;

use super::{Comparison, EVIDENCE, command_line, ratio, short_verdict, verdict};
use crate::page;
use crate::page::markup::{Known, Seconds, Text};
use corewise_core::comparison::{Effect, Findings, Metric};
use std::fmt::{Display, Formatter, Result};

/// The page.
pub fn render(comparison: &Comparison, findings: &Findings) -> String {
    page::document("comparison", include_str!("style.css"), Body { comparison, findings })
}

struct Body<'a> {
    comparison: &'a Comparison,
    findings: &'a Findings,
}

impl Display for Body<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Body { comparison, findings } = self;
        header(f, comparison, findings)?;
        plots::ratios(f, findings)?;
        effects(f, findings)?;
        plots::times(f, comparison, findings)?;
        plots::order(f, comparison)?;
        commands(f, comparison)?;
        page::list(f, "Notes", &findings.notes)
    }
}

fn header(f: &mut Formatter<'_>, comparison: &Comparison, findings: &Findings) -> Result {
    let names: Vec<&str> = findings.variants.iter().map(|variant| variant.name.as_str()).collect();
    writeln!(f, "<header>\n<p class=\"brand\">corewise compare</p>\n<h1>{}</h1>", Text(&names.join(" · ")))?;
    let setting = &comparison.setting;
    let facts: [(&str, &dyn Display); 8] = [
        ("Evidence", &EVIDENCE),
        ("Blocks", &findings.blocks),
        ("Runs", &comparison.trials.len()),
        ("Seed of the order", &comparison.plan.seed),
        ("Processor", &Known(setting.processor.as_deref().map(Text))),
        ("Kernel", &Known(setting.kernel.as_deref().map(Text))),
        ("Scheduler", &Known(setting.scheduler.as_deref().map(Text))),
        ("Clock", &Known(setting.frequency.as_deref().map(Text))),
    ];
    page::facts(f, &facts)?;
    writeln!(
        f,
        "<p class=\"quiet\">Each block has every variant once and the first one twice, in random order. \
         A ratio is that of two runs of one block. The control is the first variant once more: what comes \
         of it is the noise floor. Intervals miss the truth once in twenty.</p>\n</header>"
    )
}

fn effects(f: &mut Formatter<'_>, findings: &Findings) -> Result {
    writeln!(
        f,
        "<section>\n<h2>Against the first variant</h2>\n<div class=\"scroll\">\n<table>\n<thead><tr>\
         <th>Figure</th><th>Variant</th><th>Ratio [95 %]</th><th>Verdict</th></tr></thead>\n<tbody>"
    )?;
    for metric in Metric::ALL {
        let of = |effects: &[(Metric, Effect)]| {
            effects.iter().find(|(one, _)| *one == metric).map(|(_, effect)| *effect)
        };
        for variant in &findings.variants {
            let Some(effect) = of(&variant.effects) else { continue };
            let words =
                if metric == Metric::Wall { verdict(&effect) } else { short_verdict(&effect).to_owned() };
            effect_row(f, metric, &variant.name, &effect, &words)?;
        }
        if let Some(effect) = of(&findings.noise_floor) {
            effect_row(f, metric, "(control)", &effect, "the noise floor")?;
        }
    }
    writeln!(f, "</tbody>\n</table>\n</div>\n</section>")
}

fn effect_row(f: &mut Formatter<'_>, metric: Metric, name: &str, effect: &Effect, words: &str) -> Result {
    writeln!(
        f,
        "<tr><td>{}</td><th scope=\"row\">{}</th><td class=\"figure\">{}</td><td>{}</td></tr>",
        metric.name(),
        Text(name),
        ratio(effect),
        Text(words)
    )
}

fn commands(f: &mut Formatter<'_>, comparison: &Comparison) -> Result {
    writeln!(
        f,
        "<section>\n<h2>Variants</h2>\n<div class=\"scroll\">\n<table>\n<thead><tr><th>Variant</th>\
         <th>Median</th><th>Shortest</th><th>Longest</th><th>Command</th></tr></thead>\n<tbody>"
    )?;
    let found = comparison.findings();
    for (variant, found) in comparison.plan.variants.iter().zip(&found.variants) {
        writeln!(
            f,
            "<tr><th scope=\"row\">{}</th><td class=\"figure\">{}</td><td class=\"figure\">{}</td>\
             <td class=\"figure\">{}</td><td><code>{}</code></td></tr>",
            Text(&variant.name),
            Known(found.wall.map(|wall| Seconds(wall.median))),
            Known(found.wall.map(|wall| Seconds(wall.min))),
            Known(found.wall.map(|wall| Seconds(wall.max))),
            Text(&command_line(variant))
        )?;
    }
    writeln!(f, "</tbody>\n</table>\n</div>\n</section>")
}
