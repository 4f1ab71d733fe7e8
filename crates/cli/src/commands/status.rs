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
    #[arg(value_name = "PID", value_parser = crate::options::pid)]
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

fn status(answer: &Value) -> String {
    let text = |key: &str| answer[key].as_str().unwrap_or("unknown");
    let own = answer["own_cpu"].as_f64().map_or("unknown".to_owned(), |own| format!("{:.2} %", own * 100.0));
    let mut out = format!(
        "policy {} on PEs {} for {:.0} s; {} threads, {} of them placed; own cost {own} of a PE\n",
        text("policy"),
        text("pes"),
        answer["seconds"].as_f64().unwrap_or(0.0),
        answer["threads"],
        answer["bound"],
    );
    if let (Some(interval), Some(why)) = (answer["interval"].as_f64(), answer["looks_rarer"].as_str()) {
        out += &format!("  it looks every {interval:.3} s only: {}\n", terminal::printable(why));
    }
    let why = answer["nothing_to_gain"].as_str().map(|why| terminal::printable(why).into_owned());
    let notes = lines(answer, "findings").chain(lines(answer, "notes"));
    why.into_iter().chain(notes).for_each(|line| out += &format!("  {line}\n"));
    out + &rows(answer, "applications", ">>><<<", &["threads", "cpu", "tlp", "class", "name", "executed_by"])
}

/// One process, in sentences, and its threads.
fn explanation(answer: &Value) -> String {
    let text = |key: &str| answer[key].as_str().map(|text| terminal::Name(text).to_string());
    let mut out = format!("{} (process {})", text("program").unwrap_or_default(), answer["pid"]);
    let by = text("executed_by").map(|by| format!(", executed by {by}"));
    let class = text("class").map(|class| format!(", class {class}"));
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
    out + &rows(answer, "threads", "><>>><<", &["tid", "name", "pe", "cpu", "fpu", "bound", "reason"])
}

/// A list of sentences.
fn lines<'a>(answer: &'a Value, key: &str) -> impl Iterator<Item = String> + use<'a> {
    let lines = answer[key].as_array().into_iter().flatten().filter_map(Value::as_str);
    lines.map(|line| terminal::Name(line).to_string())
}

/// The busiest first.
fn rows(answer: &Value, of: &str, aligned: &str, columns: &[&str]) -> String {
    let mut rows: Vec<&Value> = answer[of].as_array().into_iter().flatten().collect();
    let cpu = |row: &Value| row["cpu"].as_f64().unwrap_or(0.0);
    rows.sort_by(|a, b| cpu(b).total_cmp(&cpu(a)));
    let cell = |row: &Value, column: &str| match &row[column] {
        Value::Null => "-".to_owned(),
        Value::String(text) => terminal::Name(text).to_string(),
        Value::Number(number) if number.is_f64() => format!("{:.2}", number.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    };
    let mut table = Table::new(aligned);
    table.row(columns);
    rows.into_iter().for_each(|row| table.row(columns.iter().map(|column| cell(row, column))));
    table.to_string()
}
