//! `corewise status`: what the daemon does.

use crate::outputs::JsonOutput;
use anyhow::Result;
use corewise_daemon::client::{Connection, candidates};
use corewise_render::table::Table;
use corewise_render::terminal;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Ask the daemon what it does.
///
/// Shows which programs it watches, how parallel they are, and which threads it has placed, and why: those of
/// this user, to root all. The daemon of this user is asked, else that of the machine.
#[derive(Debug, clap::Args)]
pub struct Status {
    /// One process: what is done with it and why, and its threads
    #[arg(value_name = "PID", value_parser = crate::values::pid)]
    pid: Option<u32>,
    /// The daemon's socket
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    json: JsonOutput,
    /// Print every state from now on, until Ctrl-C: one line of JSON each
    #[arg(long, requires = "json", conflicts_with = "pid")]
    follow: bool,
}

impl Status {
    /// Asks; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        let mut lines = self.json.lines(true)?;
        let mut daemon = Connection::open(&candidates(self.socket.as_deref()))?;
        let (method, parameters) = match self.pid {
            Some(pid) => ("Explain", json!({"pid": pid})),
            None => ("GetStatus", json!({})),
        };
        daemon.call(method, parameters, self.follow, |answer| -> Result<bool> {
            match &mut lines {
                Some(lines) => lines.write(&answer)?,
                None if self.pid.is_some() => terminal::print(&explanation(&answer))?,
                None => terminal::print(&status(&answer))?,
            }
            Ok(true)
        })?;
        Ok(0)
    }
}

/// The fields of an answer that are shown, with the headings that `corewise top` has for them.
const APPLICATION_COLUMNS: [(&str, &str); 6] = [
    ("name", "PROGRAM"),
    ("class", "PARALLEL"),
    ("tlp", "RUNNABLE"),
    ("cpu", "CPU%"),
    ("threads", "THREADS"),
    ("executed_by", "STARTED BY"),
];
const THREAD_COLUMNS: [(&str, &str); 7] = [
    ("name", "THREAD"),
    ("tid", "TID"),
    ("pe", "PE"),
    ("cpu", "CPU%"),
    ("fpu", "FPU%"),
    ("bound", "PLACED"),
    ("reason", "WHY"),
];

/// A class of parallelism in the words of `corewise top`.
fn parallelism(class: &str) -> &str {
    match class {
        "ST" => "no (ST)",
        "PS" => "partly (PS)",
        "HP" => "yes (HP)",
        other => other,
    }
}

fn status(answer: &Value) -> String {
    let text = |key: &str| answer[key].as_str().unwrap_or("unknown");
    let own = answer["own_cpu"].as_f64();
    let own = own.map_or(String::new(), |own| format!(", takes {:.2} % of a PE", own * 100.0));
    let threads = if answer["threads"] == 1 { "thread" } else { "threads" };
    // The words are those of `corewise top`.
    let mut out = format!(
        "The daemon (policy {}) has bound {} of {} {threads}{own}.\n  It has run for {:.0} s, on PEs {}.\n",
        terminal::Name(text("policy")),
        answer["bound"],
        answer["threads"],
        answer["seconds"].as_f64().unwrap_or(0.0),
        terminal::Name(text("pes")),
    );
    if let (Some(interval), Some(why)) = (answer["interval"].as_f64(), answer["looks_rarer"].as_str()) {
        out += &format!("  It looks every {interval:.1} s only: {}.\n", terminal::printable(why));
    }
    let why = answer["nothing_to_gain"].as_str().map(|why| terminal::printable(why).into_owned());
    let notes = lines(answer, "findings").chain(lines(answer, "notes"));
    why.into_iter().chain(notes).for_each(|line| out += &format!("  {line}\n"));
    out + &rows(answer, "applications", "<<>>><", &APPLICATION_COLUMNS)
}

/// One process, in sentences, and its threads.
fn explanation(answer: &Value) -> String {
    let text = |key: &str| answer[key].as_str().map(|text| terminal::Name(text).to_string());
    let mut out = format!("{} (process {})", text("program").unwrap_or_default(), answer["pid"]);
    let by = text("executed_by").map(|by| format!(", executed by {by}"));
    let class = text("class").map(|class| format!(", parallel: {}", parallelism(&class)));
    out.extend(by.into_iter().chain(class));
    out += &match text("rule") {
        Some(rule) => format!("; the rule `{rule}` applies to it\n"),
        None => "; no rule names it\n".to_owned(),
    };
    let alone = text("left_alone").map(|why| format!("left alone: {why}"));
    let waits = match (answer["waits_may_change"] == true, answer["waits_permitted"].as_str()) {
        (true, Some(word @ ("spin" | "turns"))) => {
            Some(format!("waits: as it chose, until that harms others; a rule permits `{word}` only"))
        }
        (true, _) => Some("waits: as it chose, until that harms others".to_owned()),
        (false, _) => Some("waits: as it chose; a rule says so".to_owned()).filter(|_| alone.is_none()),
    };
    let changed = lines(answer, "waits").map(|line| format!("changed: {line}"));
    let among = text("placed_among").map(|pes| format!("placed among PEs {pes} only"));
    let nothing = text("nothing_to_gain").map(|why| format!("placement: {why}"));
    let found = lines(answer, "findings").map(|line| format!("guard: {line}"));
    let lines = alone.into_iter().chain(waits).chain(changed).chain(among).chain(nothing).chain(found);
    lines.for_each(|line| out += &format!("  {line}\n"));
    out + &rows(answer, "threads", "<>>>><<", &THREAD_COLUMNS)
}

/// A list of sentences.
fn lines<'a>(answer: &'a Value, key: &str) -> impl Iterator<Item = String> + use<'a> {
    let lines = answer[key].as_array().into_iter().flatten().filter_map(Value::as_str);
    lines.map(|line| terminal::Name(line).to_string())
}

/// The busiest first.
fn rows(answer: &Value, of: &str, aligned: &str, columns: &[(&str, &str)]) -> String {
    let mut rows: Vec<&Value> = answer[of].as_array().into_iter().flatten().collect();
    let cpu = |row: &Value| row["cpu"].as_f64().unwrap_or(0.0);
    rows.sort_by(|a, b| cpu(b).total_cmp(&cpu(a)));
    let cell = |row: &Value, column: &str| match &row[column] {
        Value::Null => "-".to_owned(),
        Value::String(class) if column == "class" => parallelism(class).to_owned(),
        Value::Number(share) if matches!(column, "cpu" | "fpu") => {
            format!("{:.0}", 100.0 * share.as_f64().unwrap_or(0.0))
        }
        Value::String(text) => terminal::Name(text).to_string(),
        Value::Number(number) if number.is_f64() => format!("{:.1}", number.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    };
    let mut table = Table::new(aligned);
    table.row(columns.iter().map(|(_, heading)| *heading));
    rows.into_iter().for_each(|row| table.row(columns.iter().map(|(column, _)| cell(row, column))));
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_cost_and_the_programs_fit_into_80_columns() {
        let answer = json!({
            "policy": "spread", "pes": "0-1", "seconds": 11.2, "own_cpu": 0.0149, "threads": 13, "bound": 0,
            "applications": [
                {"name": "bash", "class": "ST", "tlp": 0.01, "cpu": 0.01, "threads": 3, "executed_by": "sh"},
                {"name": "regions", "class": "HP", "tlp": 4.2, "cpu": 0.461, "threads": 8},
            ],
        });
        let text = status(&answer);
        assert!(
            text.starts_with("The daemon (policy spread) has bound 0 of 13 threads, takes 1.49 % of a PE.\n"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let rows: Vec<Vec<&str>> = text.lines().skip(2).map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["PROGRAM", "PARALLEL", "RUNNABLE", "CPU%", "THREADS", "STARTED", "BY"]);
        assert_eq!(rows[1], ["regions", "yes", "(HP)", "4.2", "46", "8", "-"], "the busiest first: {text}");
    }
}
