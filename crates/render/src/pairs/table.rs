//! What pairs of programs gain, as text.

use super::{gain, gain_with_interval, pair_of, summary};
use crate::profile::words;
use crate::table::Table;
use crate::terminal::Name;
use corewise_core::pairs::{Findings, Plan};

/// From so many programs on, the square does not fit into a terminal.
const SQUARE_MAX: usize = 12;

/// Returns the text.
pub fn render(plan: &Plan, findings: &Findings) -> String {
    let mut text = format!(
        "{}\nGain of both at once over one after the other; a ~ is a prediction.\n\n",
        summary(plan, findings)
    );
    if findings.programs.len() <= SQUARE_MAX {
        text += &square(findings);
        text.push('\n');
    }
    text + &list(findings)
}

fn square(findings: &Findings) -> String {
    let mut table = Table::new(&format!("><{}", ">".repeat(findings.programs.len())));
    let numbers = (1..=findings.programs.len()).map(|number| number.to_string());
    table.row(["".to_owned(), "".to_owned()].into_iter().chain(numbers));
    for (row, name) in findings.programs.iter().enumerate() {
        let cell = |column| match pair_of(findings, row, column) {
            Some(pair) if pair.measured => gain(&pair.gain),
            Some(pair) => format!("~{}", gain(&pair.gain)),
            None => "–".to_owned(),
        };
        let cells = (0..findings.programs.len()).map(cell);
        table.row([(row + 1).to_string(), Name(name).to_string()].into_iter().chain(cells));
    }
    table.to_string()
}

fn list(findings: &Findings) -> String {
    let mut table = Table::new("<<<<<");
    table.row(["alone", "time in s [95 %]"]);
    for (name, alone) in findings.programs.iter().zip(&findings.alone) {
        let time = alone.map_or_else(|| "–".to_owned(), words::interval);
        table.row([Name(name).to_string(), time]);
    }
    table.row(["program", "beside", "gain [95 %]", "slowdown of the first", "of the second"]);
    for pair in &findings.pairs {
        let name = |index: usize| Name(&findings.programs[index]).to_string();
        let slowdown = |index: usize| match pair.measured {
            true => words::interval(pair.slowdowns[index]),
            false => format!("{:.2} predicted", pair.slowdowns[index].value),
        };
        table.row([name(pair.a), name(pair.b), gain_with_interval(pair), slowdown(0), slowdown(1)]);
    }
    table.to_string()
}
