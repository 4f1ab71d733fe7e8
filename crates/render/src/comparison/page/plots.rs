//! The drawings of a comparison. Lengths are in units of the drawing, which scales with the page.

use crate::comparison::Comparison;
use crate::page::markup::{Text, colour};
use corewise_core::comparison::{Findings, Metric};
use corewise_core::stats::quantile;
use std::fmt::{Formatter, Result};

const WIDTH: f64 = 1080.0;
const LABEL_WIDTH: f64 = 240.0;
const MARGIN: f64 = 24.0;
const ROW_HEIGHT: f64 = 34.0;
const AXIS_HEIGHT: f64 = 24.0;
const ORDER_HEIGHT: f64 = 220.0;
/// Characters of a name that fit beside a row.
const LABEL_MAX: usize = 32;

/// From a figure to a place.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// From the least to the greatest of the values, with some air.
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        let (low, high) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let air = ((high - low) * 0.04).max(high.abs() * 1e-3).max(1e-9);
        Scale { low: low - air, high: high + air, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        ((self.from + share * (self.to - self.from)) * 10.0).round() / 10.0
    }

    /// Some six round numbers, with as many decimals as tell them apart.
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

fn open(f: &mut Formatter<'_>, heading: &str, legend: &str, height: f64) -> Result {
    writeln!(
        f,
        "<section>\n<h2>{heading}</h2>\n<p class=\"legend\">{legend}</p>\n<div class=\"scroll\">\n\
         <svg class=\"plot\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{heading}; the tables say the same\">"
    )
}

fn close(f: &mut Formatter<'_>) -> Result {
    writeln!(f, "</svg>\n</div>\n</section>")
}

/// A scale along the bottom, with lines up to the top.
fn axis(f: &mut Formatter<'_>, scale: &Scale, height: f64) -> Result {
    let bottom = height - AXIS_HEIGHT;
    for (tick, label) in scale.ticks() {
        let x = scale.at(tick);
        writeln!(f, "<line class=\"grid\" x1=\"{x}\" y1=\"0\" x2=\"{x}\" y2=\"{bottom}\"/>")?;
        writeln!(f, "<text class=\"tick\" x=\"{x}\" y=\"{}\">{label}</text>", height - 6.0)?;
    }
    Ok(())
}

fn label(f: &mut Formatter<'_>, name: &str, top: f64) -> Result {
    let cut = name.chars().count() > LABEL_MAX;
    let short: String = name.chars().take(if cut { LABEL_MAX - 1 } else { LABEL_MAX }).collect();
    let end = if cut { "…" } else { "" };
    writeln!(
        f,
        "<text class=\"name\" x=\"0\" y=\"{}\">{}{end}</text>",
        top + ROW_HEIGHT / 2.0 + 4.0,
        Text(&short)
    )
}

/// The ratios of the times with their intervals, above the noise floor.
pub fn ratios(f: &mut Formatter<'_>, findings: &Findings) -> Result {
    let named = findings
        .variants
        .iter()
        .flat_map(|variant| variant.effect(Metric::Wall).map(|effect| (variant.name.as_str(), effect)));
    let floor =
        findings.noise_floor.iter().find(|(metric, _)| *metric == Metric::Wall).map(|(_, effect)| effect);
    let rows: Vec<_> = named.chain(floor.map(|effect| ("(control)", effect))).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let height = rows.len() as f64 * ROW_HEIGHT + AXIS_HEIGHT;
    let ends = rows.iter().flat_map(|(_, effect)| [effect.low, effect.high]).chain([1.0]);
    let scale = Scale::over(ends, LABEL_WIDTH, WIDTH - MARGIN);
    let legend = "Time over that of the first variant: left of 1 is faster. A line is the 95 % interval; the \
                  band is that of the control, what this machine makes of two equal things.";
    open(f, "Ratio of the times", legend, height)?;
    if let Some(floor) = floor {
        let (low, high) = (scale.at(floor.low), scale.at(floor.high));
        let (width, bottom) = (high - low, height - AXIS_HEIGHT);
        writeln!(f, "<rect class=\"floor\" x=\"{low}\" y=\"0\" width=\"{width:.1}\" height=\"{bottom}\"/>")?;
    }
    axis(f, &scale, height)?;
    let (one, bottom) = (scale.at(1.0), height - AXIS_HEIGHT);
    writeln!(f, "<line class=\"one\" x1=\"{one}\" y1=\"0\" x2=\"{one}\" y2=\"{bottom}\"/>")?;
    for (index, (name, effect)) in rows.iter().enumerate() {
        let top = index as f64 * ROW_HEIGHT;
        let (y, low, high) = (top + ROW_HEIGHT / 2.0, scale.at(effect.low), scale.at(effect.high));
        label(f, name, top)?;
        writeln!(f, "<line class=\"interval\" x1=\"{low}\" y1=\"{y}\" x2=\"{high}\" y2=\"{y}\"/>")?;
        writeln!(f, "<circle class=\"ratio\" cx=\"{}\" cy=\"{y}\" r=\"5\"/>", scale.at(effect.ratio))?;
    }
    close(f)
}

/// Every run's time, a row for each variant.
pub fn times(f: &mut Formatter<'_>, comparison: &Comparison, findings: &Findings) -> Result {
    let plan = &comparison.plan;
    let height = findings.variants.len() as f64 * ROW_HEIGHT + AXIS_HEIGHT;
    let all = comparison.trials.iter().map(|trial| trial.run.wall_seconds);
    let scale = Scale::over(all, LABEL_WIDTH, WIDTH - MARGIN);
    let legend =
        "Seconds. A dot is a run, the box holds the middle half of them, the line in it is the median.";
    open(f, "Times", legend, height)?;
    axis(f, &scale, height)?;
    for (index, variant) in findings.variants.iter().enumerate() {
        let top = index as f64 * ROW_HEIGHT;
        label(f, &variant.name, top)?;
        let runs = comparison.trials.iter().filter(|trial| plan.variant_of(trial.arm) == index);
        let times: Vec<f64> = runs.map(|trial| trial.run.wall_seconds).collect();
        let [low, median, high] =
            [0.25, 0.5, 0.75].map(|q| quantile(&times, q).map_or(0.0, |time| scale.at(time)));
        let (y, width, tall) = (top + 5.0, high - low, ROW_HEIGHT - 10.0);
        writeln!(f, "<rect class=\"box\" x=\"{low}\" y=\"{y}\" width=\"{width:.1}\" height=\"{tall}\"/>")?;
        writeln!(f, "<line class=\"one\" x1=\"{median}\" y1=\"{y}\" x2=\"{median}\" y2=\"{}\"/>", y + tall)?;
        for (run, time) in times.iter().enumerate() {
            // Side by side in a few lanes, so that equal times are seen as several.
            let (x, y) = (scale.at(*time), top + 9.0 + (run % 5) as f64 * 4.0);
            let fill = colour(index);
            writeln!(f, "<circle class=\"run\" cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{fill}\"/>")?;
        }
    }
    close(f)
}

/// Every run's time in the order of the runs.
pub fn order(f: &mut Formatter<'_>, comparison: &Comparison) -> Result {
    let (plan, trials) = (&comparison.plan, &comparison.trials);
    let across = Scale::over([1.0, trials.len() as f64].into_iter(), LABEL_WIDTH, WIDTH - MARGIN);
    let all = trials.iter().map(|trial| trial.run.wall_seconds);
    let up = Scale::over(all, ORDER_HEIGHT - AXIS_HEIGHT, 6.0);
    let legend = "Seconds over the number of the run: what drifts or jumps is seen here.";
    open(f, "In the order of the runs", legend, ORDER_HEIGHT)?;
    for (tick, label) in up.ticks() {
        let y = up.at(tick);
        writeln!(f, "<line class=\"grid\" x1=\"{LABEL_WIDTH}\" y1=\"{y}\" x2=\"{WIDTH}\" y2=\"{y}\"/>")?;
        let x = LABEL_WIDTH - 8.0;
        writeln!(f, "<text class=\"end\" x=\"{x}\" y=\"{}\">{label}</text>", y + 4.0)?;
    }
    for (tick, label) in across.ticks().into_iter().filter(|(tick, _)| tick.fract() == 0.0) {
        let y = ORDER_HEIGHT - 6.0;
        writeln!(f, "<text class=\"tick\" x=\"{}\" y=\"{y}\">{label}</text>", across.at(tick))?;
    }
    for (index, trial) in trials.iter().enumerate() {
        let (x, y) = (across.at(index as f64 + 1.0), up.at(trial.run.wall_seconds));
        let fill = colour(plan.variant_of(trial.arm));
        writeln!(f, "<circle class=\"run\" cx=\"{x}\" cy=\"{y}\" r=\"3.5\" fill=\"{fill}\"/>")?;
    }
    for (index, variant) in plan.variants.iter().enumerate() {
        let y = 16.0 + index as f64 * 18.0;
        let short: String = variant.name.chars().take(LABEL_MAX - 8).collect();
        writeln!(f, "<circle cx=\"6\" cy=\"{}\" r=\"5\" fill=\"{}\"/>", y - 4.0, colour(index))?;
        writeln!(f, "<text class=\"name\" x=\"18\" y=\"{y}\">{}</text>", Text(&short))?;
    }
    close(f)
}
