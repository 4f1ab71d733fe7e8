//! The charts of a comparison. Lengths are in units of the drawing, which scales with the page.

use crate::chart::palette::colour;
use crate::chart::tenth;
use crate::comparison::Comparison;
use crate::page;
use corewise_core::comparison::{Findings, Metric};
use corewise_core::stats::quantile;
use maud::{Markup, html};

const WIDTH: f64 = 1080.0;
const LABEL_WIDTH: f64 = 240.0;
const MARGIN: f64 = 24.0;
const ROW_HEIGHT: f64 = 34.0;
const AXIS_HEIGHT: f64 = 24.0;
const ORDER_HEIGHT: f64 = 220.0;
/// The number of characters of a name that fit beside a row.
const LABEL_MAX: usize = 32;

/// Maps values to positions.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// Covers all values, with a margin.
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        let (low, high) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let air = ((high - low) * 0.04).max(high.abs() * 1e-3).max(1e-9);
        Scale { low: low - air, high: high + air, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        tenth(self.from + share * (self.to - self.from))
    }

    /// Returns some six round numbers, with as many decimals as distinguish them.
    fn ticks(&self) -> Vec<(f64, String)> {
        let rough = (self.high - self.low) / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        let first = (self.low / step).ceil();
        let ticks = (0..12).map(|index| (first + f64::from(index)) * step);
        ticks.take_while(|tick| *tick <= self.high).map(|tick| (tick, format!("{tick:.decimals$}"))).collect()
    }
}

/// A chart with its heading and legend.
fn plot(heading: &str, legend: &str, height: f64, content: &Markup) -> Markup {
    let label = format!("{heading}; the tables say the same");
    let content = html! {
        p.legend { (legend) }
        (page::drawing("plot", (WIDTH, height), &label, content))
    };
    page::section(heading, &content)
}

/// A scale along the bottom, with lines up to the top.
fn axis(scale: &Scale, height: f64) -> Markup {
    html! {
        @for (tick, label) in scale.ticks() {
            @let x = scale.at(tick);
            line.grid x1=(x) y1="0" x2=(x) y2=(height - AXIS_HEIGHT) {}
            text.tick x=(x) y=(height - 6.0) { (label) }
        }
    }
}

/// Cuts a name to a number of characters.
fn short(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    name.chars().take(most - 1).chain(['…']).collect()
}

fn label(name: &str, top: f64) -> Markup {
    html! { text.name x="0" y=(top + ROW_HEIGHT / 2.0 + 4.0) { (short(name, LABEL_MAX)) } }
}

/// Draws the ratios of the times with their intervals, above the noise floor.
pub fn ratios(findings: &Findings) -> Markup {
    let named = findings
        .variants
        .iter()
        .flat_map(|variant| variant.effect(&Metric::Wall).map(|effect| (variant.name.as_str(), effect)));
    let floor =
        findings.noise_floor.iter().find(|(metric, _)| *metric == Metric::Wall).map(|(_, effect)| effect);
    let rows: Vec<_> = named.chain(floor.map(|effect| ("(control)", effect))).collect();
    if rows.is_empty() {
        return Markup::default();
    }
    let height = rows.len() as f64 * ROW_HEIGHT + AXIS_HEIGHT;
    let bottom = height - AXIS_HEIGHT;
    let ends = rows.iter().flat_map(|(_, effect)| [effect.low, effect.high]).chain([1.0]);
    let scale = Scale::over(ends, LABEL_WIDTH, WIDTH - MARGIN);
    let one = scale.at(1.0);
    let content = html! {
        @if let Some(floor) = floor {
            @let (low, high) = (scale.at(floor.low), scale.at(floor.high));
            rect.floor x=(low) y="0" width=(tenth(high - low)) height=(bottom) {}
        }
        (axis(&scale, height))
        line.one x1=(one) y1="0" x2=(one) y2=(bottom) {}
        @for (index, (name, effect)) in rows.iter().enumerate() {
            @let top = index as f64 * ROW_HEIGHT;
            @let y = top + ROW_HEIGHT / 2.0;
            (label(name, top))
            line.interval x1=(scale.at(effect.low)) y1=(y) x2=(scale.at(effect.high)) y2=(y) {}
            circle.ratio cx=(scale.at(effect.ratio)) cy=(y) r="5" {}
        }
    };
    let legend = "Time over that of the first variant: left of 1 is faster. A line is the 95 % interval; the \
                  band is that of the control, which shows the noise of this machine.";
    plot("Ratio of the times", legend, height, &content)
}

/// Draws every run's time, a row for each variant.
pub fn times(comparison: &Comparison, findings: &Findings) -> Markup {
    let height = findings.variants.len() as f64 * ROW_HEIGHT + AXIS_HEIGHT;
    let all = comparison.trials.iter().map(|trial| trial.run.wall_seconds);
    let scale = Scale::over(all, LABEL_WIDTH, WIDTH - MARGIN);
    let content = html! {
        (axis(&scale, height))
        @for (index, variant) in findings.variants.iter().enumerate() {
            (label(&variant.name, index as f64 * ROW_HEIGHT))
            (times_of(comparison, index, &scale))
        }
    };
    let legend =
        "Seconds. A dot is a run, the box contains the middle half of them, the line in it is the median.";
    plot("Times", legend, height, &content)
}

/// Draws one variant's times.
fn times_of(comparison: &Comparison, index: usize, scale: &Scale) -> Markup {
    let runs = comparison.trials.iter().filter(|trial| comparison.plan.variant_of(trial.arm) == index);
    let times: Vec<f64> = runs.map(|trial| trial.run.wall_seconds).collect();
    let [low, median, high] =
        [0.25, 0.5, 0.75].map(|q| quantile(&times, q).map_or(0.0, |time| scale.at(time)));
    let top = index as f64 * ROW_HEIGHT;
    let (y, height) = (top + 5.0, ROW_HEIGHT - 10.0);
    // In several lanes, so that equal times do not hide each other.
    let lane = |run: usize| top + 9.0 + (run % 5) as f64 * 4.0;
    html! {
        rect.box x=(low) y=(y) width=(tenth(high - low)) height=(height) {}
        line.one x1=(median) y1=(y) x2=(median) y2=(y + height) {}
        @for (run, time) in times.iter().enumerate() {
            circle.run cx=(scale.at(*time)) cy=(lane(run)) r="3" fill=(colour(index)) {}
        }
    }
}

/// Draws every run's time in the order of the runs.
pub fn order(comparison: &Comparison) -> Markup {
    let (plan, trials) = (&comparison.plan, &comparison.trials);
    let across = Scale::over([1.0, trials.len() as f64].into_iter(), LABEL_WIDTH, WIDTH - MARGIN);
    let all = trials.iter().map(|trial| trial.run.wall_seconds);
    let up = Scale::over(all, ORDER_HEIGHT - AXIS_HEIGHT, 6.0);
    let content = html! {
        @for (tick, label) in up.ticks() {
            @let y = up.at(tick);
            line.grid x1=(LABEL_WIDTH) y1=(y) x2=(WIDTH) y2=(y) {}
            text.end x=(LABEL_WIDTH - 8.0) y=(y + 4.0) { (label) }
        }
        @for (tick, label) in across.ticks().into_iter().filter(|(tick, _)| tick.fract() == 0.0) {
            text.tick x=(across.at(tick)) y=(ORDER_HEIGHT - 6.0) { (label) }
        }
        @for (index, trial) in trials.iter().enumerate() {
            circle.run cx=(across.at(index as f64 + 1.0)) cy=(up.at(trial.run.wall_seconds)) r="3.5"
                fill=(colour(plan.variant_of(trial.arm))) {}
        }
        @for (index, variant) in plan.variants.iter().enumerate() {
            @let y = 16.0 + index as f64 * 18.0;
            circle cx="6" cy=(y - 4.0) r="5" fill=(colour(index)) {}
            text.name x="18" y=(y) { (short(&variant.name, LABEL_MAX - 8)) }
        }
    };
    let legend = "Seconds by the number of the run: shows drift and jumps.";
    plot("In the order of the runs", legend, ORDER_HEIGHT, &content)
}
