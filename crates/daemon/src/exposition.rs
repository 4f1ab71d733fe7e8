//! The text of a page of metrics.
//!
//! A [`Metric`] says what there is to know, [`Samples`] hold the values, and [`text`] writes both as one of
//! two formats: OpenMetrics 1.0 for clients over HTTP, and Prometheus's older text format for files, as
//! the node exporter reads no other. They differ in the name of a counter and in the last line.
//!
//! By hand: `prometheus-client` writes OpenMetrics only, and leaves control characters in the values of
//! labels. With it, this file had 115 lines of code instead of 77, as the older format had to be made of
//! that.
//!
//! Source: <https://prometheus.io/docs/specs/om/open_metrics_spec/>,
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use corewise_render::terminal::Name;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What there is to know.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name; that of a counter's samples ends in `_total`.
    name: &'static str,
    /// Whether it only grows.
    is_counter: bool,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
}

impl Metric {
    /// Something that only grows.
    pub const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
        Metric { name, is_counter: true, labels, help }
    }

    /// Something that grows and shrinks.
    pub const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
        Metric { name, is_counter: false, labels, help }
    }

    /// Returns the name of its samples.
    pub fn sample_name(&self) -> String {
        format!("{}{}", self.name, if self.is_counter { "_total" } else { "" })
    }
}

/// The formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus's text format 0.0.4.
    Prometheus,
}

impl Format {
    /// Returns its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Values, by the metric's name and the values of its labels.
#[derive(Debug, Clone, Default)]
pub struct Samples(BTreeMap<(&'static str, Vec<String>), f64>);

impl Samples {
    /// Adds to a value, which is 0 before.
    pub fn add(&mut self, metric: &Metric, labels: &[&str], value: f64) {
        debug_assert_eq!(metric.labels.len(), labels.len(), "{}", metric.name);
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        *self.0.entry((metric.name, labels)).or_default() += value;
    }
}

/// Writes the samples of these metrics, each with the labels `common`, too.
pub fn text(metrics: &[&Metric], samples: &Samples, format: Format, common: &[(&str, &str)]) -> String {
    let mut text = String::new();
    let mut written = 0;
    for metric in metrics {
        let Metric { name, is_counter, labels, help } = metric;
        let of_metric = samples.0.range((*name, Vec::new())..).take_while(|((of, _), _)| of == name);
        let of_metric: Vec<_> = of_metric.collect();
        let kind = if *is_counter { "counter" } else { "gauge" };
        let sample = metric.sample_name();
        let family = if format == Format::Prometheus { &sample } else { *name };
        written += of_metric.len();
        if !of_metric.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {family} {help}\n# TYPE {family} {kind}");
        }
        for ((_, values), value) in of_metric {
            let own = labels.iter().copied().zip(values.iter().map(String::as_str));
            let pairs = common.iter().copied().chain(own);
            let pairs: Vec<String> =
                pairs.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let labels = if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
            let _ = writeln!(text, "{sample}{labels} {value}");
        }
    }
    debug_assert_eq!(written, samples.0.len(), "each sample has its metric");
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

/// Control characters are spelled out: a page of metrics is looked at in terminals, too.
fn escaped(label: &str) -> String {
    let spelled = |line| Name(line).to_string();
    let lines: Vec<String> = label.split('\n').map(spelled).collect();
    lines.join("\n").replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKS: Metric = Metric::counter("a_looks", &["rule"], "Looks.");
    const SIZE: Metric = Metric::gauge("a_size_bytes", &[], "Size.");

    #[test]
    fn both_formats_name_families_and_samples_as_their_specifications_say() {
        let mut samples = Samples::default();
        samples.add(&LOOKS, &["a \"b\" \\ c\nd"], 1.0);
        samples.add(&LOOKS, &["a \"b\" \\ c\nd"], 2.0);
        samples.add(&LOOKS, &["\u{1b}[31mred\u{9b}\u{202e}"], 4.0);
        samples.add(&SIZE, &[], 0.25);
        let text = |format| text(&[&SIZE, &LOOKS], &samples, format, &[]);
        let size = "# HELP a_size_bytes Size.\n# TYPE a_size_bytes gauge\na_size_bytes 0.25\n";
        let value = concat!(
            r#"a_looks_total{rule="\\u001b[31mred\\u009b\\u202e"} 4"#,
            "\n",
            r#"a_looks_total{rule="a \"b\" \\ c\nd"} 3"#
        );
        let open = format!("{size}# HELP a_looks Looks.\n# TYPE a_looks counter\n{value}\n# EOF\n");
        assert_eq!(text(Format::OpenMetrics), open);
        let older = format!("{size}# HELP a_looks_total Looks.\n# TYPE a_looks_total counter\n{value}\n");
        assert_eq!(text(Format::Prometheus), older);
    }

    #[test]
    fn common_labels_come_first_in_every_sample() {
        let mut samples = Samples::default();
        samples.add(&LOOKS, &["r"], 1.0);
        samples.add(&SIZE, &[], 2.0);
        let text = super::text(&[&SIZE, &LOOKS], &samples, Format::Prometheus, &[("socket", "/s")]);
        let found: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(found, [r#"a_size_bytes{socket="/s"} 2"#, r#"a_looks_total{socket="/s",rule="r"} 1"#]);
    }
}
